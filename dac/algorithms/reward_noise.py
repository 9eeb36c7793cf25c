"""Gaussian noise on rewards, as a control: does a method explore by what it measures, or by the error of measuring?

A learned bonus, as DAC's ratio term, is its true value plus an error. Noise of the same size, without the value, tells
how much of an effect the error alone has. There are two kinds, since an error may last:

- fresh: drawn anew whenever a transition is learnt from, so that it averages out;
- stored: the same whenever the transition is learnt from, as if the environment had paid it. It is computed from the
  transition's own numbers and needs no place in the replay buffer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, Following, choice, number
from dac.core.keys import REWARD_NOISE, side_key
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition

ODD = 2654435769
"""2^32 over the golden ratio: its odd multiples are far apart, which is what a hash of numbers needs."""


class WithRewardNoiseState(eqx.Module):
    """What an algorithm with noisy rewards has learnt."""

    algorithm: Any
    """State of the algorithm."""
    salt: UInt32[Array, ""]
    """Drawn once, so that members with the same transitions have other noise."""


class WithRewardNoise(AbstractAround[WithRewardNoiseState]):
    """An algorithm that learns from rewards with zero-mean Gaussian noise; reported returns have none."""

    algorithm: AbstractOffPolicy
    """What learns."""
    reward_noise: str = choice("none", ("none", "fresh", "stored"), since="0.2")
    """Gaussian noise on rewards when they are learnt from: none, drawn anew each time, or one number per transition."""
    reward_noise_scale: float = number(1.0, 0, since="0.2")
    """Standard deviation of the noise on rewards, in units of the task's reward."""

    def replace(self, **values: Any) -> WithRewardNoise:
        own: dict[str, Any] = {n: values.pop(n) for n in ("reward_noise_scale",) if n in values}
        return dataclasses.replace(self, algorithm=self.algorithm.replace(**values), **own)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithRewardNoiseState:
        salt = jax.random.bits(side_key(key, REWARD_NOISE), dtype=jnp.uint32)
        return WithRewardNoiseState(self.algorithm.init(key, spec), salt)

    def policy(self, state: WithRewardNoiseState) -> AbstractPolicy:
        return self.algorithm.policy(state.algorithm)

    def update(self, state: WithRewardNoiseState, batch: Batch, key: PRNGKey) -> tuple[WithRewardNoiseState, Metrics]:
        now, later = jax.random.split(side_key(key, REWARD_NOISE))
        following = batch.following
        if following is not None:
            following = Following(self._disturb(state, following.transitions, later), following.exist)
        noisy = dataclasses.replace(self._disturb(state, batch, now), following=following)
        inner, metrics = self.algorithm.update(state.algorithm, noisy, key)
        return WithRewardNoiseState(inner, state.salt), metrics

    def _disturb(self, state: WithRewardNoiseState, seen: Any, key: PRNGKey) -> Any:
        """Add the noise to the rewards of transitions with any number of axes before their own."""
        if self.reward_noise == "fresh":
            noise = jax.random.normal(key, seen.reward.shape, seen.reward.dtype)
        else:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[seen.reward.ndim :]), _only_transition(seen))
            noise = jax.vmap(lambda one: noise_of(one, state.salt))(flat).reshape(seen.reward.shape)
        return dataclasses.replace(seen, reward=seen.reward + self.reward_noise_scale * noise)

    def watch(self, state: WithRewardNoiseState, latest: Transition, valid: Bool[Array, ""]) -> WithRewardNoiseState:
        return WithRewardNoiseState(self.algorithm.watch(state.algorithm, latest, valid), state.salt)

    def refresh(self, state: WithRewardNoiseState, latest: Transition, count: Int[Array, ""]) -> WithRewardNoiseState:
        return WithRewardNoiseState(self.algorithm.refresh(state.algorithm, latest, count), state.salt)


def _only_transition(seen: Any) -> Transition:
    return Transition(**{field.name: getattr(seen, field.name) for field in dataclasses.fields(Transition)})


def noise_of(transition: Transition, salt: UInt32[Array, ""]) -> Scalar:
    """A standard normal number that follows from one transition: where it was, what it did, where it came to."""
    numbers: Float[Array, " n"] = jnp.concatenate([transition.obs, transition.action, transition.next_obs])
    bits = jax.lax.bitcast_convert_type(numbers.astype(jnp.float32), jnp.uint32)
    odd = (2 * jnp.arange(bits.size, dtype=jnp.uint32) + 1) * jnp.uint32(ODD)
    key = jax.random.fold_in(jax.random.key(salt), jnp.sum(bits * odd, dtype=jnp.uint32))
    return jax.random.normal(key, (), transition.reward.dtype)
