"""Every algorithm and every bonus, by the name it has on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dac.algorithms.acktr import ACKTR as ACKTR
from dac.algorithms.base import AbstractAlgorithm as AbstractAlgorithm
from dac.algorithms.base import AbstractOffPolicy as AbstractOffPolicy
from dac.algorithms.base import AbstractOnPolicy as AbstractOnPolicy
from dac.algorithms.bonus import AbstractBonus as AbstractBonus
from dac.algorithms.bonus import WithBonus as WithBonus
from dac.algorithms.dac import DAC as DAC
from dac.algorithms.fixed_sigma import FixedSigma as FixedSigma
from dac.algorithms.maxent_state import StateEntropy as StateEntropy
from dac.algorithms.ppo import PPO as PPO
from dac.algorithms.rnd import RandomNetworkDistillation as RandomNetworkDistillation
from dac.algorithms.sac import SAC as SAC
from dac.algorithms.sac_div import SACDiv as SACDiv
from dac.algorithms.sql import SoftQLearning as SoftQLearning
from dac.algorithms.td3 import TD3 as TD3
from dac.types import UsageError


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a name stands for: an algorithm, and the bonus that belongs to it."""

    algorithm: type[AbstractAlgorithm]
    bonus: str = "none"

    @property
    def summary(self) -> str:
        owner = self.algorithm if self.bonus == "none" else BONUSES[self.bonus]
        return (owner.__doc__ or "").splitlines()[0]


ALGORITHMS: dict[str, Entry] = {
    "dac": Entry(DAC),
    "sac": Entry(SAC),
    "sac-div": Entry(SACDiv),
    "rnd": Entry(FixedSigma, bonus="rnd"),
    "maxent-state": Entry(FixedSigma, bonus="maxent-state"),
    "td3": Entry(TD3),
    "sql": Entry(SoftQLearning),
    "ppo": Entry(PPO),
    "acktr": Entry(ACKTR),
}
BONUSES: dict[str, type[AbstractBonus]] = {
    "rnd": RandomNetworkDistillation,
    "maxent-state": StateEntropy,
}


def owners(name: str, bonus: str = "none") -> list[type]:
    """The classes whose fields are the settings of an algorithm with a bonus."""
    return [ALGORITHMS[name].algorithm] + ([] if bonus == "none" else [BONUSES[bonus]])


def make_algorithm(name: str, bonus: str = "none", settings: Mapping[str, Any] | None = None) -> AbstractAlgorithm:
    """The algorithm of that name with its settings, those of the bonus among them."""
    values = dict(settings or {})
    classes = owners(name, bonus)
    split = [{f.name: values.pop(f.name) for f in dataclasses.fields(c) if f.name in values} for c in classes]
    if values:
        raise TypeError(f"{name} has no setting {next(iter(values))!r}")
    algorithm = classes[0](**split[0])
    if bonus == "none":
        return algorithm
    if not isinstance(algorithm, AbstractOffPolicy):
        raise UsageError(f"{name} learns on-policy and takes no bonus (accepted: {', '.join(off_policy())})")
    return WithBonus(algorithm, classes[1](**split[1]))


def off_policy() -> list[str]:
    return [name for name, entry in ALGORITHMS.items() if issubclass(entry.algorithm, AbstractOffPolicy)]
