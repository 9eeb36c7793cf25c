"""SVGD: each formula against a double loop, and particles that find a density they were not told."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms.parts import svgd


def particles(fixed=8, moved=8, size=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(fixed, size)), rng.uniform(-1, 1, size=(moved, size))


@pytest.mark.parametrize(("fixed", "moved", "size"), [(8, 8, 1), (8, 8, 3), (5, 3, 2)])
def test_direction_against_a_double_loop(x64, fixed, moved, size):
    """Bandwidth from numpy's median; 5 x 3 is an odd number of distances."""
    x, y = particles(fixed, moved, size)
    score = np.random.default_rng(1).normal(size=(fixed, size))
    squared = [sum((x[j, d] - y[i, d]) ** 2 for d in range(size)) for j in range(fixed) for i in range(moved)]
    h = np.median(squared) / math.log(fixed)
    expected = np.zeros((moved, size))
    for i in range(moved):
        for j in range(fixed):
            k = math.exp(-sum((x[j] - y[i]) ** 2) / h)
            expected[i] += (k * score[j] - 2 / h * (x[j] - y[i]) * k) / fixed
    found, found_h = svgd.direction(jnp.asarray(score), jnp.asarray(x), jnp.asarray(y))
    assert float(found_h) == pytest.approx(h, rel=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_kernel_gradient_against_finite_differences(x64):
    """With respect to the fixed particle, the bandwidth held where it is."""
    x, y = particles()
    k, gradient, h = svgd.kernel(jnp.asarray(x), jnp.asarray(y))
    step = 1e-6
    for j, i, d in [(0, 0, 0), (3, 5, 1), (7, 2, 0)]:
        ahead, behind = x[j].copy(), x[j].copy()
        ahead[d] += step
        behind[d] -= step
        difference = np.exp(-((ahead - y[i]) ** 2).sum() / h) - np.exp(-((behind - y[i]) ** 2).sum() / h)
        assert float(gradient[j, i, d]) == pytest.approx(difference / (2 * step), rel=1e-6)
        assert float(k[j, i]) == pytest.approx(float(np.exp(-((x[j] - y[i]) ** 2).sum() / h)))


def test_bandwidth_has_a_floor():
    """Particles in one place: without it the kernel would be 0/0."""
    same = jnp.full((8, 2), 0.3)
    k, gradient, h = svgd.kernel(same, same)
    assert float(h) == pytest.approx(1e-3)
    np.testing.assert_array_equal(k, 1.0)
    np.testing.assert_array_equal(gradient, 0.0)


def test_particles_find_both_modes():
    """1/2 N(-1, 0.3^2) + 1/2 N(1, 0.3^2), from one cloud around 0: mean and width of both modes."""

    def log_density(x):
        modes = jnp.array([-1.0, 1.0])
        return jax.nn.logsumexp(-0.5 * (x[0] - modes) ** 2 / 0.3**2)

    def step(x, _):
        return x + 0.02 * svgd.direction(jax.vmap(jax.grad(log_density))(x), x, x)[0], None

    start = 0.3 * jax.random.normal(jax.random.key(0), (40, 1))
    end = np.asarray(jax.jit(lambda x: jax.lax.scan(step, x, length=1000)[0])(start))[:, 0]
    left, right = end[end < 0], end[end > 0]
    assert 10 <= len(left) <= 30
    for mode, found in ((-1, left), (1, right)):
        assert found.mean() == pytest.approx(mode, abs=0.02)
        assert found.std() == pytest.approx(0.3, abs=0.03)


def test_particles_have_the_moments_of_a_gaussian():
    """N(1/2, 0.3^2): not the mode alone, which is where the score by itself would lead."""

    def step(x, _):
        return x + 0.02 * svgd.direction(-(x - 0.5) / 0.3**2, x, x)[0], None

    start = jax.random.uniform(jax.random.key(1), (30, 1))
    end = np.asarray(jax.lax.scan(step, start, length=1000)[0])
    assert end.mean() == pytest.approx(0.5, abs=0.01)
    assert end.std() == pytest.approx(0.3, abs=0.03)
