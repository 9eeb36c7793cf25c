"""Observations and rewards brought to unit scale, for any off-policy algorithm.

The replay buffer holds what the environment gave. Batches are normalised when they are learnt from, by the statistics
of today: what was stored early is not left on an early scale. Every new transition is counted once, in both loops at
the same place, as part of the algorithm's state. So statistics are saved, frozen and resumed with everything else.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, Following, static
from dac.core.networks import OBS_BOUND, WhitenedPolicy
from dac.core.normalise import Moments
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, float_dtype


class WithWhiteningState(eqx.Module):
    """What an algorithm with normalised observations has learnt."""

    algorithm: Any
    """State of the algorithm."""
    moments: Moments
    """Of the observations in which the agent acted."""


class WithWhitening(AbstractAround[WithWhiteningState]):
    """An algorithm that sees observations less their mean, over their standard deviation, within 10 of them."""

    algorithm: AbstractOffPolicy
    """What learns."""
    normalise_obs: bool = static(False, since="0.2")
    """Show networks observations less their running mean, over their running standard deviation, clipped at 10."""

    @property
    def watches(self) -> bool:
        return True

    def replace(self, **values: Any) -> WithWhitening:
        return type(self)(self.algorithm.replace(**values), self.normalise_obs)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithWhiteningState:
        return WithWhiteningState(self.algorithm.init(key, spec), Moments.create(spec.obs_size))

    def policy(self, state: WithWhiteningState) -> WhitenedPolicy:
        return WhitenedPolicy(self.algorithm.policy(state.algorithm), state.moments)

    def watch(self, state: WithWhiteningState, latest: Transition, valid: Bool[Array, ""]) -> WithWhiteningState:
        moments = state.moments.add(latest.obs, jnp.broadcast_to(valid, latest.reward.shape))
        return WithWhiteningState(state.algorithm, moments)

    def update(self, state: WithWhiteningState, batch: Batch, key: PRNGKey) -> tuple[WithWhiteningState, Metrics]:
        recent = batch.recent
        if recent is not None:
            recent = dataclasses.replace(recent, transitions=_whiten(state.moments, recent.transitions))
        seen = dataclasses.replace(_whiten(state.moments, batch), recent=recent)
        inner, metrics = self.algorithm.update(state.algorithm, seen, key)
        return WithWhiteningState(inner, state.moments), metrics

    def refresh(self, state: WithWhiteningState, latest: Transition, count: Int[Array, ""]) -> WithWhiteningState:
        inner = self.algorithm.refresh(state.algorithm, _whiten(state.moments, latest), count)
        return WithWhiteningState(inner, state.moments)


def _whiten(moments: Moments, seen: Any) -> Any:
    obs, next_obs = (moments.whiten(values, OBS_BOUND) for values in (seen.obs, seen.next_obs))
    return dataclasses.replace(seen, obs=obs, next_obs=next_obs)


class WithRewardScaleState(eqx.Module):
    """What an algorithm with normalised rewards has learnt."""

    algorithm: Any
    """State of the algorithm."""
    returns: Float[Array, " env"]
    """The discounted sum of the rewards so far in every environment's episode."""
    moments: Moments
    """Of all these sums."""


class WithRewardScale(AbstractAround[WithRewardScaleState]):
    """An algorithm whose rewards are divided by the standard deviation of the discounted return so far.

    A bonus is added afterwards, on its own scale. While all rewards are 0 they are divided by 1.
    """

    algorithm: AbstractOffPolicy
    """What learns."""
    envs: int = eqx.field(static=True)
    """Parallel environments of the member."""
    normalise_reward: bool = static(False, since="0.2")
    """Divide rewards by the running standard deviation of the discounted return; what is reported is not divided."""

    @property
    def watches(self) -> bool:
        return True

    def replace(self, **values: Any) -> WithRewardScale:
        return type(self)(self.algorithm.replace(**values), self.envs, self.normalise_reward)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithRewardScaleState:
        nothing = jnp.zeros(self.envs, float_dtype())
        return WithRewardScaleState(self.algorithm.init(key, spec), nothing, Moments.create(1))

    def policy(self, state: WithRewardScaleState) -> Any:
        return self.algorithm.policy(state.algorithm)

    def watch(self, state: WithRewardScaleState, latest: Transition, valid: Bool[Array, ""]) -> WithRewardScaleState:
        inner = self.algorithm.watch(state.algorithm, latest, valid)
        returns = self.setting("gamma") * state.returns + latest.reward
        moments = state.moments.add(returns[:, None], jnp.broadcast_to(valid, returns.shape))
        over = (latest.terminated + latest.truncated) > 0
        return WithRewardScaleState(inner, jnp.where(valid & ~over, returns, 0), moments)

    def update(self, state: WithRewardScaleState, batch: Batch, key: PRNGKey) -> tuple[WithRewardScaleState, Metrics]:
        scale = self.scale(state)
        following = batch.following
        if following is not None:
            later = dataclasses.replace(following.transitions, reward=following.transitions.reward / scale)
            following = Following(later, following.exist)
        scaled = dataclasses.replace(batch, reward=batch.reward / scale, following=following)
        inner, metrics = self.algorithm.update(state.algorithm, scaled, key)
        return WithRewardScaleState(inner, state.returns, state.moments), metrics | {"reward_scale": scale}

    def scale(self, state: WithRewardScaleState) -> Scalar:
        """What rewards are divided by."""
        variance = state.moments.variance[0]
        return jnp.sqrt(jnp.where(variance > 0, variance + 1e-8, 1))

    def refresh(self, state: WithRewardScaleState, latest: Transition, count: Int[Array, ""]) -> WithRewardScaleState:
        inner = self.algorithm.refresh(state.algorithm, latest, count)
        return WithRewardScaleState(inner, state.returns, state.moments)
