"""The bonus by visits: against counts made by hand and by brute force, and what it leads an agent to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import VisitCount
from dac.algorithms.parts.density import GRIDS
from dac.config import resolve
from tests.algorithms.bonuses.test_bonuses import SPEC, paid_for, refreshed


def test_it_pays_one_over_the_root_of_the_visits():
    """Cells visited 64, 25, 9 and 1 times, and one never, which is paid as one that was visited once."""
    cells = np.repeat([[0.5, 0.5], [0.5, 1.5], [-3.5, 7.5], [90.1, 99.9]], [64, 25, 9, 1], axis=0)
    rows = np.concatenate([np.random.default_rng(0).permutation(cells), np.full((50, 2), 0.5)]).astype(np.float32)
    bonus = VisitCount(bonus_density="histogram", bonus_window=200, bonus_scale=0.3)
    state = refreshed(bonus, jnp.asarray(rows), 99)  # the rows behind these hold nothing
    queries = jnp.array([[0.9, 0.1], [0.0, 1.0], [-3.1, 7.0], [90.9, 99.0], [40.0, 40.0]])
    np.testing.assert_allclose(paid_for(bonus, state, queries), 0.3 / np.array([8, 5, 3, 1, 1]), rtol=1e-6)


def test_by_a_kernel_it_counts_what_is_near():
    """In every shifted grid the points that share the query's cell are found by looking at each of them."""
    points = jax.random.normal(jax.random.key(0), (3000, 2)) * jnp.array([1.0, 5.0]) + 2
    bonus = VisitCount(bonus_window=3000)
    state = refreshed(bonus, points)
    placed = np.asarray(state.density._placed(points[:40])), np.asarray(state.density._placed(points))
    inside = state.density.histograms
    found = np.zeros(40)
    for shift in np.asarray(inside.shifts):
        queries, all_of_them = (np.floor(p / float(inside.width) + shift) for p in placed)
        found += (queries[:, None] == all_of_them[None]).all(axis=-1).sum(axis=1) / GRIDS
    np.testing.assert_allclose(paid_for(bonus, state, points[:40]), 0.5 / np.sqrt(np.maximum(found, 1)), rtol=1e-4)
    far = paid_for(bonus, state, points[:1] + 1000)
    np.testing.assert_allclose(far, 0.5)


@pytest.mark.parametrize("density", ["kernel", "histogram"])
def test_before_anything_was_seen_everything_is_new(density):
    bonus = VisitCount(bonus_density=density, bonus_window=50)
    np.testing.assert_allclose(paid_for(bonus, bonus.init(jax.random.key(0), SPEC), jnp.ones((4, 3))), 0.5)


def test_its_defaults_are_the_tasks():
    assert resolve("sac", "maze", settings={"bonus": "count"}).hyper["bonus_density"] == "histogram"
    assert resolve("sac", "SparseHopper", settings={"bonus": "count"}).hyper["bonus_density"] == "kernel"


@pytest.mark.slow
def test_it_leads_out_of_the_first_room(tmp_path):
    """In the same steps SAC with it visits at least 1.3 times the cells of SAC without."""
    small = {"seeds": range(3), "steps": 12_000, "eval_every": 12_000, "hidden": (128, 128), "batch_size": 64}
    common = small | {"gamma": 0.99, "beta": 0.3, "progress": False, "checkpoint_every": 0}
    paid = dac.train("sac", "maze", bonus="count", bonus_refresh=500, out=tmp_path / "paid", **common)
    plain = dac.train("sac", "maze", out=tmp_path / "plain", **common)
    visited = [run.metrics["visited"][-1].mean() for run in (paid, plain)]
    assert visited[0] > 1.3 * visited[1]
    assert (paid.metrics["visits_mean"][-1] > 1).all()
