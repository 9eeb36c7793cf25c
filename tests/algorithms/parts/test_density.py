"""Density estimates against known densities, NumPy's histogram and a kernel estimate written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms.parts.density import (
    GRIDS,
    KernelDensity,
    ShiftedHistograms,
    even_shifts,
    histogram,
    random_projection,
)

POINTS = 100_000
MEANS = np.array([[1.2, 0, 0, 0, 0], [-1.2, 0, 0, 0, 0], [0, 1.0, 0, 0, 0]])
STDS = np.array([0.8, 1.0, 1.2])
WEIGHTS = np.array([0.3, 0.4, 0.3])


def mixture(rng, size, axes):
    which = rng.choice(3, size, p=WEIGHTS)
    return MEANS[which, :axes] + STDS[which, None] * rng.normal(size=(size, axes))


def log_mixture(x):
    axes = x.shape[1]
    squares = ((x[:, None] - MEANS[:, :axes]) ** 2).sum(axis=2) / STDS**2
    terms = np.log(WEIGHTS) - squares / 2 - axes * np.log(STDS * np.sqrt(2 * np.pi))
    return np.logaddexp.reduce(terms, axis=1)


def kernel_fit(points, count=None, window=None, key=0):
    valid = jnp.arange(len(points)) < (len(points) if count is None else count)
    points = jnp.asarray(points, jnp.float32)
    projection = random_projection(jax.random.key(key), points.shape[1])
    return jax.jit(KernelDensity.fit, static_argnums=3)(points, valid, projection, window or len(points))


def log_density(fit, points):
    """In the coordinates of the points themselves, for a projection that drops nothing."""
    volume = np.log(np.sqrt(np.asarray(fit.moments.variance, float))).sum()
    return np.asarray(jax.jit(lambda f, p: f.log_density(p))(fit, jnp.asarray(points, jnp.float32))) - volume


def gaussian_kernel(points, queries):
    """The estimate that the histograms stand for: every point asked, bandwidth N^(-1/(k+4)) of unit variance."""
    size, axes = points.shape
    h = size ** (-1 / (axes + 4))
    spread = np.linalg.cholesky(np.cov(points.T))
    z, q = (np.linalg.solve(spread, x.T).T for x in (points, queries))
    density = [np.exp(-((z - x) ** 2).sum(axis=1) / (2 * h**2)).mean() for x in q]
    return np.log(density) - axes * np.log(h * np.sqrt(2 * np.pi)) - np.log(np.diag(spread)).sum()


@pytest.mark.parametrize(("axes", "median", "share"), [(2, 0.03, 0.99), (5, 0.12, 0.78)])
def test_a_known_mixture_of_gaussians(axes, median, share):
    """100,000 samples, asked in the region of highest density that holds 85% of the mass. Most errors of the log are
    below 0.2; in five dimensions no kernel of this width does much better, which the last lines check."""
    rng = np.random.default_rng(0)
    points, queries = mixture(rng, POINTS, axes), mixture(rng, 3000, axes)
    truth = log_mixture(queries)
    bulk = truth > np.quantile(truth, 0.15)
    fit = kernel_fit(points)
    error = np.abs(log_density(fit, queries) - truth)[bulk]
    assert np.median(error) < median
    assert (error < 0.2).mean() > share
    few = np.flatnonzero(bulk)[:300]
    kernel = np.abs(gaussian_kernel(points, queries[few]) - truth[few])
    assert np.median(error[:300]) < 1.25 * np.median(kernel) + 0.005


def test_the_density_is_of_the_projection():
    """Twenty dimensions to five: the true density of the projected points, in the projected whitened space."""
    rng = np.random.default_rng(1)
    scales = np.linspace(0.1, 30, 20)
    points, queries = rng.normal(size=(50_000, 20)) * scales + 7, rng.normal(size=(2000, 20)) * scales + 7
    fit = kernel_fit(points)
    projection = np.asarray(fit.projection, float)
    np.testing.assert_allclose(projection.T @ projection, np.eye(5), atol=1e-6)
    projected = (queries - 7) / scales @ projection  # standard normal again
    truth = -(projected**2).sum(axis=1) / 2 - 2.5 * np.log(2 * np.pi)
    bulk = truth > np.quantile(truth, 0.2)
    error = np.abs(np.asarray(fit.log_density(jnp.asarray(queries, jnp.float32))) - truth)[bulk]
    assert np.median(error) < 0.15


def test_correlated_entries():
    """The kernel follows the shape of the window: a narrow ellipse is no worse than a circle."""
    rng = np.random.default_rng(2)
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    points, queries = (rng.multivariate_normal([3, -3], covariance, n) for n in (POINTS, 2000))
    away = queries - [3, -3]
    squares = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    truth = -squares / 2 - np.log(2 * np.pi) - np.log(np.linalg.det(covariance)) / 2
    bulk = truth > np.quantile(truth, 0.15)
    assert np.median(np.abs(log_density(kernel_fit(points), queries) - truth)[bulk]) < 0.04


def test_exact_histogram_is_numpys():
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(30, 15, (20_000, 2)), rng.normal(-60, 3, (5000, 2))]).astype(np.float32)
    edges = np.arange(-128, 128.5, 1.0)
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=(edges, edges))
    fit = jax.jit(histogram, static_argnums=3)(points, jnp.ones(25_000, bool), 1.0, 30_000)
    corners = np.stack(np.meshgrid(edges[:-1], edges[:-1], indexing="ij"), axis=-1).reshape(-1, 2)
    hits = np.asarray(fit.hits(jnp.asarray(corners + 0.5, jnp.float32)))
    np.testing.assert_array_equal(hits.reshape(256, 256), counts)
    there = counts.reshape(-1) > 0
    found = np.exp(np.asarray(fit.log_density(jnp.asarray(corners + 0.5, jnp.float32))))
    np.testing.assert_allclose(found[there], counts.reshape(-1)[there] / 25_000, rtol=1e-5)
    np.testing.assert_allclose(found[~there], 1 / 25_000, rtol=1e-5)  # the floor: as if once


@pytest.mark.parametrize("cell", [0.5, 4.0])
def test_cells_of_another_size(cell):
    """Density is per unit of volume: over all cells it sums to 1."""
    points = np.random.default_rng(4).uniform(0, 40, (50_000, 2)).astype(np.float32)
    fit = histogram(jnp.asarray(points), jnp.ones(50_000, bool), cell, 50_000)
    corners = np.stack(np.meshgrid(np.arange(0, 40, cell), np.arange(0, 40, cell)), axis=-1).reshape(-1, 2)
    middle = jnp.asarray(corners + cell / 2, jnp.float32)
    density = np.asarray(fit.hits(middle)) / 50_000 / cell**2
    assert density.sum() * cell**2 == pytest.approx(1)
    there = density > 0
    np.testing.assert_allclose(np.exp(np.asarray(fit.log_density(middle)))[there], density[there], rtol=1e-5)


def test_rows_beyond_the_count_do_not_exist():
    """7000 of 20,000 rows valid: the same as a window of those, whatever the others hold."""
    rng = np.random.default_rng(5)
    points, queries = rng.normal(size=(20_000, 3)), jnp.asarray(rng.normal(size=(500, 3)), jnp.float32)
    points[7000:] = 1e6
    part, alone = kernel_fit(points, count=7000), kernel_fit(points[:7000], window=20_000)
    np.testing.assert_allclose(part.log_density(queries), alone.log_density(queries), atol=1e-3)
    assert float(part.histograms.count) == 7000
    raw = [
        histogram(jnp.asarray(p, jnp.float32), jnp.arange(len(p)) < 7000, 0.5, 20_000) for p in (points, points[:7000])
    ]
    np.testing.assert_array_equal(raw[0].cells, raw[1].cells)


def test_the_order_of_the_points_does_not_matter():
    rng = np.random.default_rng(6)
    points, queries = rng.normal(size=(5000, 5)), jnp.asarray(rng.normal(size=(500, 5)), jnp.float32)
    one, other = kernel_fit(points), kernel_fit(rng.permutation(points))
    # sums of floats in another order move the edges of cells by 1e-7: a point in a thousand changes its cell
    np.testing.assert_allclose(one.log_density(queries), other.log_density(queries), atol=0.02)
    exact = [histogram(jnp.asarray(p, jnp.float32), jnp.ones(5000, bool), 1.0, 5000) for p in (points, points[::-1])]
    np.testing.assert_array_equal(exact[0].cells, exact[1].cells)


def test_nothing_and_far_away_are_finite():
    empty = kernel_fit(np.ones((100, 4)), count=0)
    queries = jnp.array([[0.0] * 4, [1e9] * 4, [-1e9] * 4])
    assert len(np.unique(np.asarray(empty.log_density(queries)))) == 1
    assert np.isfinite(np.asarray(empty.log_density(queries))).all()
    constant = kernel_fit(np.ones((100, 4)))
    values = np.asarray(constant.log_density(jnp.concatenate([queries, jnp.ones((1, 4))])))
    assert np.isfinite(values).all()
    assert values[3] > values[:3].max() + 3  # where all points are, it is dense; nowhere else
    one = kernel_fit(np.ones((100, 4)), count=1)
    assert np.isfinite(np.asarray(one.log_density(queries))).all()


def test_the_average_over_shifts_is_a_triangular_kernel():
    """One point: the share of grids in which a query has its cell is the product of 1 - |distance| / w."""
    width = 0.7
    grids = ShiftedHistograms.fit(
        jnp.zeros((1, 2)), jnp.ones(1, bool), jnp.float32(width), jnp.asarray(even_shifts(4096, 2), jnp.float32), 1
    )
    queries = np.random.default_rng(7).uniform(-1, 1, (200, 2)).astype(np.float32)
    expected = np.prod(np.maximum(0, 1 - np.abs(queries) / width), axis=1)
    np.testing.assert_allclose(grids.hits(jnp.asarray(queries)), expected, atol=0.01)


def test_shifts_are_even():
    for axes in (1, 2, 5):
        shifts = even_shifts(GRIDS, axes)
        np.testing.assert_allclose(
            np.sort(shifts, axis=0), np.repeat((np.arange(GRIDS) + 0.5)[:, None] / GRIDS, axes, 1)
        )
    assert abs(np.corrcoef(shifts.T) - np.eye(5)).max() < 0.5
