"""Acting outside training: from an observation as an environment gives it to an action as it takes it, and quickly."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from dac.core.keys import PREDICT, member_key, stream
from dac.envs.bounds import ActionBounds
from dac.envs.spaces import Spaces, flatten_some

Act: TypeAlias = Callable[..., jax.Array]


class Predictor:
    """One policy on the CPU, ready to act: nothing is flattened, moved or compiled when it is asked.

    An answer takes as long as its network and a few microseconds; a policy on an accelerator would cost a round trip.
    """

    def __init__(self, policy: PyTree, spaces: Spaces):
        leaves, structure = jax.tree.flatten(policy)
        self._leaves = tuple(jax.device_put([np.asarray(leaf) for leaf in leaves], _cpu()))
        self._best, self._sample = _program(structure, False), _program(structure, True)
        self._space, self._bounds = spaces.observation, ActionBounds.of(spaces.action)

    def __call__(self, obs: Any, key: Any, draw: int, *, deterministic: bool) -> np.ndarray:
        """Return the action for one observation, or those for a batch; `draw` numbers the draws of the key."""
        rows, batched = flatten_some(self._space, obs)
        count, room = len(rows), _room(len(rows))
        if room != count:
            rows = np.concatenate([rows, np.zeros((room - count, rows.shape[1]), rows.dtype)])
        program = self._best if deterministic else self._sample
        actions = np.asarray(program(self._leaves, rows.astype(_dtype(), copy=False), key, np.uint32(draw)))
        own = self._bounds.stretch(actions[:count] if batched else actions[0])
        return own.reshape(own.shape[:-1] + self._bounds.shape)


class Draws:
    """The randomness of one member's predictions: a stream of its own, which training never sees."""

    def __init__(self, seed: int):
        with jax.default_device(_cpu()):
            self.key = jax.device_put(stream(member_key(seed), PREDICT), _cpu())
        self._count = 0

    def next(self) -> int:
        self._count = (self._count + 1) % 2**32
        return self._count


@functools.lru_cache(maxsize=64)
def _program(structure: Any, explore: bool) -> Act:
    """Return the compiled `act` of every policy of this structure, for a batch."""

    @jax.jit
    def act(leaves: tuple[jax.Array, ...], obs: jax.Array, key: Any, draw: jax.Array) -> jax.Array:
        policy = jax.tree.unflatten(structure, leaves)
        keys = jax.random.split(jax.random.fold_in(key, draw), obs.shape[0])
        return jnp.clip(jax.vmap(lambda o, k: policy.act(o, k, explore=explore))(obs, keys), -1, 1)

    return act


def _room(count: int) -> int:
    """The next power of two: batches of all sizes share a few programs."""
    return 1 << max(count - 1, 0).bit_length()


@functools.cache
def _cpu() -> jax.Device:
    return jax.local_devices(backend="cpu")[0]


@functools.cache
def _float32() -> np.dtype:
    return np.dtype(np.float32)


def _dtype() -> np.dtype:
    return np.dtype(np.float64) if jax.config.jax_enable_x64 else _float32()  # type: ignore[attr-defined]
