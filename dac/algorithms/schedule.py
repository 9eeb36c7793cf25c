"""A learning rate that falls while a run goes on, for any off-policy algorithm."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, choice, count
from dac.core.learner import SCHEDULES
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition


class WithScheduleState(eqx.Module):
    algorithm: Any
    updates: Int[Array, ""]
    """Updates taken."""


class WithSchedule(AbstractAround[WithScheduleState]):
    """An algorithm whose learning rate follows the updates it has taken; that of a bonus does not."""

    algorithm: AbstractOffPolicy
    """What learns."""
    horizon: float
    """Updates after which the schedule is over; then the rate stays what it is."""
    schedule: str = choice("constant", SCHEDULES, since="0.2")
    """How the learning rate falls: not at all, along a line to 0, or along half a cosine to 0."""
    schedule_steps: int = count(0, 0, 2**31 - 1, since="0.2")
    """Environment steps over which the learning rate falls; 0 for those of the run."""

    def replace(self, **values: Any) -> WithSchedule:
        return type(self)(self.algorithm.replace(**values), self.horizon, self.schedule, self.schedule_steps)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithScheduleState:
        return WithScheduleState(self.algorithm.init(key, spec), jnp.zeros((), jnp.int32))

    def policy(self, state: WithScheduleState) -> AbstractPolicy:
        return self.algorithm.policy(state.algorithm)

    def rate(self, updates: Int[Array, ""]) -> Scalar:
        """The learning rate of the update after so many."""
        return self.setting("learning_rate") * SCHEDULES[self.schedule](jnp.clip(updates / self.horizon, 0, 1))

    def update(self, state: WithScheduleState, batch: Batch, key: PRNGKey) -> tuple[WithScheduleState, Metrics]:
        rate: Any = self.rate(state.updates)
        inner, metrics = self.algorithm.replace(learning_rate=rate).update(state.algorithm, batch, key)
        return WithScheduleState(inner, state.updates + 1), metrics | {"learning_rate": rate}

    def refresh(self, state: WithScheduleState, latest: Transition, count: Int[Array, ""]) -> WithScheduleState:
        return WithScheduleState(self.algorithm.refresh(state.algorithm, latest, count), state.updates)
