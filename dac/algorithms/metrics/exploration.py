"""How far the policy strays when it explores, in units of the action, comparable between algorithms."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dac.core.networks import AbstractPolicy
from dac.core.types import PRNGKey, Scalar, Transition


def exploration(policy: AbstractPolicy, batch: Transition, key: PRNGKey) -> Scalar:
    """Mean distance, per action entry, of an exploring action from the one without exploration in the same state."""
    keys = jax.random.split(key, batch.obs.shape[0])
    strays = jax.vmap(lambda obs, k: policy.act(obs, k, explore=True) - policy.act(obs, k, explore=False))
    return jnp.mean(jnp.abs(strays(batch.obs, keys)))
