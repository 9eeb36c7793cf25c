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
"""One number on the device."""
Metrics: TypeAlias = dict[str, Scalar]
"""What an update measures, by the name of its column in metrics.csv."""
PRNGKey: TypeAlias = Key[Array, ""]
"""A random key of JAX; each is used once."""


class Transition(eqx.Module):
    """What happened in one step; `next_obs` is the observation before any reset."""

    obs: Float[Array, "*axes obs"]
    """Observation in which the agent acted."""
    action: Float[Array, "*axes action"]
    """Action in [-1, 1]; an on-policy algorithm keeps it as drawn."""
    reward: Float[Array, "*axes"]
    """Reward of the step."""
    terminated: Float[Array, "*axes"]
    """1 where the task is over and what follows is worth nothing, else 0; between them for a sum of several steps."""
    truncated: Float[Array, "*axes"]
    """1 where a time-out cut the episode, whose next observation still counts, else 0."""
    next_obs: Float[Array, "*axes obs"]
    """Observation after the step, before any reset."""


class TimeStep(eqx.Module):
    """What an environment answers to an action: the transition's end, and where the next one starts."""

    next_obs: Float[Array, "*axes obs"]
    """Observation after the step, before any reset."""
    reward: Float[Array, "*axes"]
    """Reward of the step."""
    terminated: Float[Array, "*axes"]
    """1 where the task is over, else 0."""
    truncated: Float[Array, "*axes"]
    """1 where a time-out cut the episode, else 0."""
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
