"""Episodes without exploration, on environments and keys of their own; training never notices."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from dac.core.keys import EVALUATE, stream
from dac.core.networks import AbstractPolicy
from dac.core.population import each_member
from dac.core.types import PRNGKey, Scalar
from dac.envs.base import AbstractDeviceEnv
from dac.training.devices import download, mesh_of, on_each, results, split, spread


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Return and length of the episodes of every member, and their successes."""

    returns: Float[np.ndarray, "member episode"]
    lengths: Int[np.ndarray, "member episode"]
    successes: Bool[np.ndarray, "member episode"] | None = None
    """Whether the task was done at any step of the episode; None where the environment does not say."""


@dataclasses.dataclass(frozen=True)
class Moment:
    """The policies of one step of training, to be tried at once or later."""

    policies: PyTree
    """Stacked over members."""
    step: int
    """Loop iterations; it decides the episodes."""


def evaluate_on_device(
    env: AbstractDeviceEnv, moment: Moment, keys: Key[Array, " member"], episodes: int
) -> Evaluation:
    """One compiled program for all members and episodes."""
    mesh = mesh_of(moment.policies)
    policies, keys = split(moment.policies, mesh), split(spread(keys, mesh), mesh)
    found = on_each(mesh, _episodes, policies, keys, np.int32(moment.step), env, episodes)
    returns, lengths = results(mesh, found)
    return Evaluation(download(returns), download(lengths))


@functools.partial(jax.jit, static_argnums=(3, 4))
def _episodes(
    policies: PyTree, keys: Key[Array, " member"], step: Int[Array, ""], env: AbstractDeviceEnv, episodes: int
) -> tuple[Float[Array, "member episode"], Int[Array, "member episode"]]:
    def one_member(policy: AbstractPolicy, key: PRNGKey, step: Int[Array, ""]):
        episode_keys = jax.random.split(stream(key, EVALUATE, step), episodes)
        return jax.vmap(lambda k: _episode(env, policy, k))(episode_keys)

    return each_member(one_member, shared=(2,))(policies, keys, step)


def _episode(env: AbstractDeviceEnv, policy: AbstractPolicy, key: PRNGKey) -> tuple[Scalar, Int[Array, ""]]:
    reset_key, steps_key = jax.random.split(key)
    state, obs = env.reset(reset_key)

    def body(carry, key):
        state, obs, total, length, alive = carry
        act_key, env_key = jax.random.split(key)
        action = policy.act(obs, act_key, explore=False)
        state, now = env.step(state, action, env_key)
        total = total + jnp.where(alive, now.reward, 0)
        length = length + alive
        alive = alive & (now.terminated == 0) & (now.truncated == 0)
        return (state, now.obs, total, length, alive), None

    start = (state, obs, jnp.zeros((), obs.dtype), jnp.int32(0), jnp.bool(True))
    (_, _, total, length, _), _ = jax.lax.scan(body, start, jax.random.split(steps_key, env.horizon))
    return total, length
