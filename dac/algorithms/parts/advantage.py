"""Generalised advantage estimation (Schulman et al., ICLR 2016)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.core.types import Transition

Values = Float[Array, "time env"]


def generalised_advantages(
    rollout: Transition, value: Values, next_value: Values, gamma: float | Array, lam: float | Array
) -> Values:
    """sum_k (gamma lam)^k delta_{t+k} within an episode, delta = r + gamma (1 - terminated) V(s') - V(s). Eq. 16.

    A time-out cuts the sum, as a termination does, but bootstraps: V(s') is that of the observation before the reset.
    """
    delta = rollout.reward + gamma * (1 - rollout.terminated) * next_value - value
    going_on = (1 - rollout.terminated) * (1 - rollout.truncated)

    def backwards(following: Float[Array, " env"], now: tuple[Float[Array, " env"], Float[Array, " env"]]):
        delta, going_on = now
        advantage = delta + gamma * lam * going_on * following
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, going_on), reverse=True)[1]
