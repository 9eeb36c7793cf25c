"""The ring: the last `capacity` transitions of one member, packed, on the device.

How many rows were ever inserted (`count`) is shared by all members and kept by the training loop, so the position
to write at stays a scalar and the ring itself is nothing but its rows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.core.types import EnvSpec, PRNGKey, float_dtype, row_size

Ring = Float[Array, "capacity row"]
Count = Int[Array, ""]


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


def gather(ring: Ring, positions: Int[Array, "*batch"]) -> Float[Array, "*batch row"]:
    """The rows at these positions, which are known to be inside."""
    return ring.at[positions].get(mode="promise_in_bounds")
