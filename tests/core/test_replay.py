"""The ring against a Python deque."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.core import replay
from dac.core.types import EnvSpec, Transition, pack, row_size, unpack

SPEC = EnvSpec(obs_size=3, action_size=2)


def test_pack_and_unpack_are_inverse():
    keys = jax.random.split(jax.random.key(0), 6)
    shapes = [(4, 3), (4, 2), (4,), (4,), (4,), (4, 3)]
    transition = Transition(*(jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)))
    row = pack(transition)
    assert row.shape == (4, row_size(SPEC))
    for one, other in zip(jax.tree.leaves(unpack(row, SPEC)), jax.tree.leaves(transition), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("envs", [1, 3])
def test_ring_holds_the_latest_rows(envs):
    capacity, ring, model = 12, replay.empty(12, SPEC), deque(maxlen=12)
    for step in range(11):
        rows = jnp.full((envs, row_size(SPEC)), step) + jnp.arange(envs)[:, None] / 10
        ring = replay.insert(ring, jnp.int32(step * envs), rows)
        model.extend(np.asarray(rows[:, 0]).tolist())
        count = (step + 1) * envs
        drawn = replay.sample_indices(capacity, jnp.int32(count), jax.random.key(step), 400)
        assert set(np.asarray(ring[drawn, 0]).tolist()) == set(model)
        assert int(drawn.max()) < min(count, capacity)


def test_sampling_is_uniform_over_what_is_stored():
    counts = np.bincount(np.asarray(replay.sample_indices(50, jnp.int32(20), jax.random.key(0), 20_000)), minlength=50)
    assert not counts[20:].any()
    assert abs(counts[:20] - 1000).max() < 5 * np.sqrt(1000)


def test_a_window_draws_only_the_latest_rows():
    drawn = np.asarray(replay.sample_indices(10, jnp.int32(23), jax.random.key(0), 300, window=4))
    assert set(drawn.tolist()) == {9, 0, 1, 2}  # rows 19 to 22 of a ring of 10
    full = replay.sample_indices(10, jnp.int32(23), jax.random.key(0), 300, window=1000)
    np.testing.assert_array_equal(full, replay.sample_indices(10, jnp.int32(23), jax.random.key(0), 300))
