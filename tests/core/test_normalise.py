"""Running moments against NumPy's of everything at once."""

import jax.numpy as jnp
import numpy as np
import pytest

from dac.core.normalise import Moments


def test_moments_of_pieces_are_the_moments_of_the_whole(x64):
    values = np.random.default_rng(0).normal(size=(50, 3)) * [1, 10, 0.1] + [0, 100, -5]
    moments = Moments.create(3)
    for piece in np.split(values, [1, 8, 8, 30]):  # one of them empty
        moments = moments.add(jnp.asarray(piece))
    assert float(moments.count) == 50
    np.testing.assert_allclose(moments.mean, values.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, values.var(axis=0), rtol=1e-12)


def test_only_valid_rows_count(x64):
    values = np.random.default_rng(1).normal(size=(20, 2))
    valid = np.arange(20) % 3 == 0
    start = Moments.create(2).add(jnp.asarray(values[:5]))
    moments = start.add(jnp.asarray(values), jnp.asarray(valid))
    whole = np.concatenate([values[:5], values[valid]])
    np.testing.assert_allclose(moments.mean, whole.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, whole.var(axis=0), rtol=1e-12)
    for one, other in zip(start.add(jnp.asarray(values), jnp.zeros(20, bool)).mean, start.mean, strict=True):
        assert float(one) == float(other)


def test_of_nothing_the_mean_is_zero_and_the_variance_one():
    moments = Moments.create(2).add(jnp.ones((3, 2)), jnp.zeros(3, bool))
    np.testing.assert_array_equal(moments.mean, [0, 0])
    np.testing.assert_array_equal(moments.variance, [1, 1])
    np.testing.assert_allclose(moments.whiten(jnp.array([0.5, -3.0]), 10.0), [0.5, -3.0], rtol=1e-6)


def test_moments_far_from_zero_keep_their_variance():
    """In float32, squares minus the square of the mean would have lost it."""
    values = np.random.default_rng(2).normal(size=(4000, 1)).astype(np.float32) + 1000
    moments = Moments.create(1)
    for piece in np.split(values, 40):
        moments = moments.add(jnp.asarray(piece))
    assert float(moments.variance[0]) == pytest.approx(values.astype(np.float64).var(), rel=1e-3)


def test_whitened_values_have_unit_scale_and_are_clipped(x64):
    values = np.random.default_rng(3).normal(size=(100, 2)) * [3, 0.2] + [7, -1]
    moments = Moments.create(2).add(jnp.asarray(values))
    white = np.asarray(moments.whiten(jnp.asarray(values.reshape(4, 25, 2)), 10.0)).reshape(100, 2)
    np.testing.assert_allclose(white, (values - values.mean(axis=0)) / values.std(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(moments.whiten(jnp.array([1e6, -1e6]), 10.0), [10, -10])
