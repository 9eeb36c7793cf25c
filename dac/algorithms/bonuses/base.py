"""Intrinsic reward: a bonus for where an action leads, on top of any off-policy algorithm.

A bonus is computed anew for every batch, so that it is never older than the networks that learn from it. Which
algorithm learns from the sum does not matter: `--bonus rnd` goes with dac, sac or td3 as with the paper's own pairing.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Generic

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, Following, State
from dac.core.keys import BONUS, side_key
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition


class AbstractBonus(eqx.Module, Generic[State]):
    """A reward for being somewhere new, and how it learns what is new. Its settings begin with `bonus_`."""

    @abc.abstractmethod
    def init(self, key: PRNGKey, spec: EnvSpec, precision: str = "float32") -> State:
        """Nothing seen yet; `precision` is that of the algorithm's networks, for a bonus that has its own."""

    @abc.abstractmethod
    def update(self, state: State, batch: Transition) -> tuple[State, Float[Array, " batch"], Metrics]:
        """Learn from a batch; the bonus of its transitions is the one before learning."""

    @property
    def refresh_every(self) -> int:
        """See `AbstractOffPolicy.refresh_every`."""
        return 0

    @property
    def refresh_window(self) -> int:
        """See `AbstractOffPolicy.refresh_window`."""
        return 0

    def refresh(self, state: State, latest: Transition, count: Int[Array, ""]) -> State:
        """See `AbstractOffPolicy.refresh`."""
        del latest, count
        return state


class WithBonusState(eqx.Module):
    """What an algorithm with a bonus has learnt."""

    algorithm: Any
    """State of the algorithm."""
    bonus: Any
    """State of the bonus."""


class WithBonus(AbstractAround[WithBonusState]):
    """An algorithm whose batches carry reward + bonus."""

    algorithm: AbstractOffPolicy
    """What learns from the sum."""
    bonus: AbstractBonus
    """What is added to the reward."""
    precision: str = eqx.field(static=True, default="float32")
    """Of the matrix products of the bonus's networks."""

    @property
    def refresh_every(self) -> int:
        return self.bonus.refresh_every

    @property
    def refresh_window(self) -> int:
        return self.bonus.refresh_window

    def replace(self, **values: Any) -> WithBonus:
        own = {field.name for field in dataclasses.fields(self.bonus)}
        algorithm = self.algorithm.replace(**{n: v for n, v in values.items() if n not in own})
        bonus = dataclasses.replace(self.bonus, **{n: v for n, v in values.items() if n in own})
        return type(self)(algorithm, bonus, self.precision)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithBonusState:
        # the algorithm's key is untouched: with and without a bonus, the same networks
        bonus = self.bonus.init(side_key(key, BONUS), spec, self.precision)
        return WithBonusState(self.algorithm.init(key, spec), bonus)

    def policy(self, state: WithBonusState) -> AbstractPolicy:
        return self.algorithm.policy(state.algorithm)

    def update(self, state: WithBonusState, batch: Batch, key: PRNGKey) -> tuple[WithBonusState, Metrics]:
        bonus_state, bonus, bonus_metrics = self.bonus.update(state.bonus, batch)
        following = None if batch.following is None else self._pay(state.bonus, batch.following)
        paid = dataclasses.replace(batch, reward=batch.reward + bonus, following=following)
        inner, metrics = self.algorithm.update(state.algorithm, paid, key)
        bonus_metrics = {"bonus_mean": jnp.mean(bonus), "bonus_std": jnp.std(bonus)} | bonus_metrics
        return WithBonusState(inner, bonus_state), metrics | bonus_metrics

    def watch(self, state: WithBonusState, latest: Transition, valid: Bool[Array, ""]) -> WithBonusState:
        return WithBonusState(self.algorithm.watch(state.algorithm, latest, valid), state.bonus)

    def _pay(self, state: Any, following: Following) -> Following:
        """Add the bonus to later steps too, each step a batch of its own, of which nothing is learnt."""
        later = following.transitions
        bonus = jax.vmap(lambda step: self.bonus.update(state, step)[1], in_axes=1, out_axes=1)(later)
        return dataclasses.replace(following, transitions=dataclasses.replace(later, reward=later.reward + bonus))

    def refresh(self, state: WithBonusState, latest: Transition, count: Int[Array, ""]) -> WithBonusState:
        return WithBonusState(state.algorithm, self.bonus.refresh(state.bonus, latest, count))
