"""Which settings come next: Optuna's sampler, asked for one trial after the other.

A sampler sees every trial that was measured. One that waits on a rung for others to be compared with is still running
in the storage; the sampler is shown it as pruned at its rung, with the value that it has, since a running trial counts
as a bad one to avoid. Its random numbers follow from the study's seed and the trial's number, so a study that was
killed goes on with the trials that it would have had.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dac.cluster.tuning.folder import Tuning

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

SAMPLERS = ("tpe", "random")
STARTUP = 10
"""Trials that are measured before TPE models anything, if a population holds as many."""


def distributions_of(tuning: Tuning) -> dict[str, BaseDistribution]:
    """The space in Optuna's terms."""
    from optuna.distributions import FloatDistribution

    return {name: FloatDistribution(span.low, span.high, log=span.log) for name, span in tuning.space.items()}


def sample(tuning: Tuning, trials: Sequence[FrozenTrial]) -> dict[str, float]:
    """Choose the settings of the next trial, after these; the first has the default settings."""
    import optuna

    defaults = tuning.defaults()
    if not trials and defaults is not None:
        return defaults
    seen = optuna.create_study(direction="maximize", sampler=_make_sampler(tuning, len(trials)))
    seen.add_trials([_as_seen(trial) for trial in trials])
    distributions = distributions_of(tuning)
    return {name: float(value) for name, value in seen.ask(distributions).params.items()}


def _make_sampler(tuning: Tuning, number: int) -> BaseSampler:
    from optuna.samplers import RandomSampler, TPESampler

    seed = (tuning.sampler_seed * 1_000_003 + number) % 2**32
    if tuning.sampler == "random":
        return RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls two of these experimental
        return TPESampler(
            n_startup_trials=min(STARTUP, tuning.at_once), multivariate=True, constant_liar=True, seed=seed
        )


def _as_seen(trial: FrozenTrial) -> FrozenTrial:
    from optuna.trial import TrialState, create_trial

    if trial.state.is_finished() or not trial.intermediate_values:
        return trial
    last = trial.intermediate_values[max(trial.intermediate_values)]
    return create_trial(
        state=TrialState.PRUNED,
        value=last,
        params=trial.params,
        distributions=trial.distributions,
        intermediate_values=trial.intermediate_values,
    )
