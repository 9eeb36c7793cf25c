"""The words the package is written in.

Axes, as jaxtyping spells them:

    member    one trained agent of a population; only `population.py` adds this axis
    env       parallel environments of one member
    batch     transitions drawn from the ring for one update
    obs       observation entries         action   action entries, always in [-1, 1]
    row       one packed transition       twin     the two Q-networks

Symbols, as the paper (Han & Sung, ICML 2021) uses them:

    alpha     weight of the policy in the mixture alpha * pi + (1 - alpha) * q
    beta      entropy coefficient; rewards are divided by it
    q         distribution of the actions stored in the ring, given the state
    R         ratio alpha * pi / (alpha * pi + (1 - alpha) * q)
"""

from __future__ import annotations

from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from dac.core.errors import UsageError as UsageError
from dac.core.spec import EnvSpec as EnvSpec

Scalar: TypeAlias = Float[Array, ""]
Metrics: TypeAlias = dict[str, Scalar]
PRNGKey: TypeAlias = Key[Array, ""]


class Transition(eqx.Module):
    """What happened in one step; `next_obs` is the observation before any reset."""

    obs: Float[Array, "*axes obs"]
    action: Float[Array, "*axes action"]
    reward: Float[Array, "*axes"]
    terminated: Float[Array, "*axes"]
    truncated: Float[Array, "*axes"]
    next_obs: Float[Array, "*axes obs"]


class TimeStep(eqx.Module):
    """What an environment answers to an action: the transition's end, and where the next one starts."""

    next_obs: Float[Array, "*axes obs"]
    reward: Float[Array, "*axes"]
    terminated: Float[Array, "*axes"]
    truncated: Float[Array, "*axes"]
    obs: Float[Array, "*axes obs"]
    """Equal to `next_obs` unless the episode ended; then the first observation of the next one."""


def row_size(spec: EnvSpec) -> int:
    """Number of floats in one packed transition."""
    return 2 * spec.obs_size + spec.action_size + 3


def pack(transition: Transition) -> Float[Array, "*axes row"]:
    """Lay a transition out as one row, so that the ring is one array and sampling is one gather."""
    flags = jnp.stack([transition.reward, transition.terminated, transition.truncated], axis=-1)
    return jnp.concatenate([transition.obs, transition.action, flags, transition.next_obs], axis=-1)


def unpack(row: Float[Array, "*axes row"], spec: EnvSpec) -> Transition:
    """Undo `pack`."""
    n, a = spec.obs_size, spec.action_size
    obs, action, flags, next_obs = jnp.split(row, [n, n + a, n + a + 3], axis=-1)
    reward, terminated, truncated = (flags[..., i] for i in range(3))
    return Transition(obs, action, reward, terminated, truncated, next_obs)


def float_dtype() -> jnp.dtype:
    """The float type in force: float32, or float64 once `jax_enable_x64` is on."""
    return jax.dtypes.canonicalize_dtype(jnp.float64)
