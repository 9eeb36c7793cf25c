"""How often the replay buffer holds a reward: the first thing to look at where reward is rare."""

from __future__ import annotations

import jax.numpy as jnp

from dac.core.networks import AbstractPolicy
from dac.core.types import PRNGKey, Scalar, Transition, float_dtype


def reward_rate(policy: AbstractPolicy, batch: Transition, key: PRNGKey) -> Scalar:
    """Share of the batch's transitions whose reward is not zero."""
    del policy, key
    return jnp.mean(batch.reward != 0, dtype=float_dtype())
