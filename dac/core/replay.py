"""The ring: the last `capacity` transitions of one member, packed, on the device.

How many rows were ever inserted (`count`) is shared by all members and kept by the training loop, so the position
to write at stays a scalar and the ring itself is nothing but its rows.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.core.keys import OFFLINE, side_key
from dac.core.types import EnvSpec, PRNGKey, float_dtype, row_size

Ring = Float[Array, "capacity row"]
Dataset = Float[Array, "dataset row"]
"""Transitions from elsewhere, packed as in the ring; they never change, and all members share them."""
Count = Int[Array, ""]


class Mix(eqx.Module):
    """How batches are mixed where there is a dataset beside the ring.

    Its rows are numbered behind those of the ring: its row i is at position capacity + i.
    """

    share: float = eqx.field(static=True)
    """Share of every batch that comes from the dataset."""
    size: Int[Array, ""] | int
    """Rows of the dataset."""


def empty(capacity: int, spec: EnvSpec) -> Ring:
    """A ring of zeros; nothing is read before it was written."""
    return jnp.zeros((capacity, row_size(spec)), float_dtype())


def insert(ring: Ring, count: Count, rows: Float[Array, "env row"]) -> Ring:
    """Write one row per parallel environment over the oldest ones; the capacity is a multiple of their number."""
    return jax.lax.dynamic_update_slice(ring, rows, (count % ring.shape[0], jnp.zeros_like(count)))


def sample_indices(
    capacity: int, count: Count, key: PRNGKey, size: int, window: int | None = None
) -> Int[Array, " batch"]:
    """Uniform positions, with replacement, among the rows stored, or among the latest `window` of them."""
    stored = jnp.minimum(count, capacity)
    reach = stored if window is None else jnp.minimum(stored, window)
    age = jax.random.randint(key, (size,), 0, reach)  # 0 is the newest row
    return (count - 1 - age) % capacity


def sample_mixed(capacity: int, count: Count, key: PRNGKey, size: int, mix: Mix) -> Int[Array, " batch"]:
    """Uniform positions in the ring and, for the share of the batch that the mix asks for, in the dataset.

    No more of them are in the ring than it has rows, so that the first transitions of a run are not in every batch a
    hundred times; from an empty ring all come from the dataset.
    """
    online = sample_indices(capacity, count, key, size)
    offline = capacity + jax.random.randint(side_key(key, OFFLINE), (size,), 0, mix.size)
    most = size - round(mix.share * size)
    return jnp.where(jnp.arange(size) < jnp.minimum(most, count), online, offline)


def following(
    capacity: int, count: Count, positions: Int[Array, " batch"], steps: int, envs: int, mix: Mix | None = None
) -> Int[Array, "batch step"]:
    """Positions of the next `steps` transitions of the same environment; where there are no more, of the last one.

    Rows of one environment are `envs` apart, and none follows the newest; those of a dataset are neighbours.
    """
    ahead = jnp.arange(1, steps + 1)
    left = (count - 1 - positions) % capacity // envs
    online = (positions[:, None] + envs * jnp.minimum(ahead[None], left[:, None])) % capacity
    if mix is None:
        return online
    offline = jnp.minimum(positions[:, None] + ahead[None], capacity + mix.size - 1)
    return jnp.where(positions[:, None] < capacity, online, offline)


def gather(ring: Ring, positions: Int[Array, "*batch"], dataset: Dataset | None = None) -> Float[Array, "*batch row"]:
    """The rows at these positions, which are known to be inside: in the ring, or behind it in the dataset."""
    if dataset is None:
        return ring.at[positions].get(mode="promise_in_bounds")
    last = ring.shape[0] - 1
    online = ring.at[jnp.minimum(positions, last)].get(mode="promise_in_bounds")
    offline = dataset.at[jnp.maximum(positions - last - 1, 0)].get(mode="promise_in_bounds")
    return jnp.where((positions <= last)[..., None], online, offline)
