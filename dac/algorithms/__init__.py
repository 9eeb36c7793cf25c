"""Every algorithm and every bonus, by the name it has on the command line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dac.algorithms.acktr import ACKTR as ACKTR
from dac.algorithms.actor_critic import AbstractMaximumEntropy
from dac.algorithms.base import AbstractAlgorithm as AbstractAlgorithm
from dac.algorithms.base import AbstractOffPolicy as AbstractOffPolicy
from dac.algorithms.base import AbstractOnPolicy as AbstractOnPolicy
from dac.algorithms.bonuses.base import AbstractBonus as AbstractBonus
from dac.algorithms.bonuses.base import WithBonus as WithBonus
from dac.algorithms.bonuses.count import VisitCount as VisitCount
from dac.algorithms.bonuses.maxent_state import StateEntropy as StateEntropy
from dac.algorithms.bonuses.novelty import Novelty as Novelty
from dac.algorithms.bonuses.rnd import RandomNetworkDistillation as RandomNetworkDistillation
from dac.algorithms.dac import DAC as DAC
from dac.algorithms.dac_window import WithWindow as WithWindow
from dac.algorithms.de_mme import DEMME as DEMME
from dac.algorithms.fixed_sigma import FixedSigma as FixedSigma
from dac.algorithms.metrics import METRICS as METRICS
from dac.algorithms.metrics import WithMetrics as WithMetrics
from dac.algorithms.mme import MME as MME
from dac.algorithms.n_step import WithReturns as WithReturns
from dac.algorithms.normalisation import WithRewardScale as WithRewardScale
from dac.algorithms.normalisation import WithWhitening as WithWhitening
from dac.algorithms.ppo import PPO as PPO
from dac.algorithms.reward_noise import WithRewardNoise as WithRewardNoise
from dac.algorithms.sac import SAC as SAC
from dac.algorithms.sac_div import SACDiv as SACDiv
from dac.algorithms.schedule import WithSchedule as WithSchedule
from dac.algorithms.sql import SoftQLearning as SoftQLearning
from dac.algorithms.td3 import TD3 as TD3
from dac.algorithms.temperature import WithTemperature as WithTemperature
from dac.core.precision import settled
from dac.core.types import UsageError


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a name stands for: an algorithm, the bonus that belongs to it, and what is built around it."""

    algorithm: type[AbstractAlgorithm]
    """The class, whose fields are its settings."""
    bonus: str = "none"
    """The bonus that belongs to the name."""
    around: type[AbstractOffPolicy] | None = None
    """An algorithm that takes this one as its first argument and has settings of its own."""

    @property
    def summary(self) -> str:
        """One line for `dac list algorithms`."""
        owner = self.algorithm if self.bonus == "none" else BONUSES[self.bonus]
        return (owner.__doc__ or "").splitlines()[0]


ALGORITHMS: dict[str, Entry] = {
    "dac": Entry(DAC, around=WithWindow),
    "sac": Entry(SAC),
    "sac-div": Entry(SACDiv),
    "rnd": Entry(FixedSigma, bonus="rnd"),
    "maxent-state": Entry(FixedSigma, bonus="maxent-state"),
    "td3": Entry(TD3),
    "sql": Entry(SoftQLearning),
    "ppo": Entry(PPO),
    "acktr": Entry(ACKTR),
    "mme": Entry(MME),
    "de-mme": Entry(DEMME),
}
"""Every algorithm by its name on the command line."""
BONUSES: dict[str, type[AbstractBonus]] = {
    "rnd": RandomNetworkDistillation,
    "maxent-state": StateEntropy,
    "novelty": Novelty,
    "count": VisitCount,
}
"""Every bonus by its name in `--bonus`."""


def owners(name: str, bonus: str = "none") -> list[type]:
    """The classes whose fields are the settings of an algorithm with a bonus."""
    entry = ALGORITHMS[name]
    around = [entry.around] if entry.around else []
    temperature = [WithTemperature] if has_temperature(entry.algorithm) else []
    further = (
        [WithSchedule, WithWhitening, WithReturns, WithRewardScale, WithRewardNoise]
        if issubclass(entry.algorithm, AbstractOffPolicy)
        else []
    )
    return [entry.algorithm, *around, *temperature, *further, *([] if bonus == "none" else [BONUSES[bonus]])]


def make_algorithm(
    name: str,
    bonus: str = "none",
    settings: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = (),
    horizon: float = math.inf,
    envs: int = 1,
) -> AbstractAlgorithm:
    """Make the algorithm of that name with its settings, those of the bonus among them, and with more metrics.

    A schedule of the learning rate, if the settings ask for one, is over after `horizon` updates. A member that
    normalises rewards has `envs` environments.
    """
    values = dict(settings or {})
    precision = settled(values.get("precision", "float32"))
    entry = ALGORITHMS[name]

    def make(owner: type, *inside: Any) -> Any:
        own = [field.name for field in dataclasses.fields(owner) if field.name in values]
        return owner(*inside, **{name: values.pop(name) for name in own})

    algorithm = make(entry.algorithm)
    if entry.around is not None:
        algorithm = make(entry.around, algorithm)
    if has_temperature(entry.algorithm):
        adapting = make(WithTemperature, algorithm)
        algorithm = algorithm if adapting.temperature == "fixed" else adapting
    if isinstance(algorithm, AbstractOffPolicy):
        scheduled = make(WithSchedule, algorithm, horizon)
        algorithm = algorithm if scheduled.schedule == "constant" else scheduled
        whitened = make(WithWhitening, algorithm)
        algorithm = whitened if whitened.normalise_obs else algorithm
        summed = make(WithReturns, algorithm)
        algorithm = algorithm if summed.n_step == 1 else summed
    if bonus != "none":
        if not isinstance(algorithm, AbstractOffPolicy):
            raise UsageError(f"{name} learns on-policy and takes no bonus (accepted: {', '.join(off_policy())})")
        algorithm = WithBonus(algorithm, make(BONUSES[bonus]), precision)
    if isinstance(algorithm, AbstractOffPolicy):
        scaled = make(WithRewardScale, algorithm, envs)
        algorithm = scaled if scaled.normalise_reward else algorithm
        noisy = make(WithRewardNoise, algorithm)
        algorithm = noisy if noisy.reward_noise != "none" else algorithm
    if metrics:
        if not isinstance(algorithm, AbstractOffPolicy):
            raise UsageError(f"{name} learns on-policy and takes no metrics (accepted: {', '.join(off_policy())})")
        algorithm = WithMetrics.around(algorithm, {metric: METRICS[metric] for metric in metrics})
    if values:
        raise TypeError(f"{name} has no setting {next(iter(values))!r}")
    return algorithm


def has_temperature(algorithm: type[AbstractAlgorithm]) -> bool:
    """Tell whether an algorithm weighs an entropy by `beta`, which could then be learned."""
    return issubclass(algorithm, AbstractMaximumEntropy)


def off_policy() -> list[str]:
    """Name the algorithms that learn from the replay buffer."""
    return [name for name, entry in ALGORITHMS.items() if issubclass(entry.algorithm, AbstractOffPolicy)]
