"""The novelty bonus: against densities that are known, and one update written out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dac.algorithms import Novelty
from dac.algorithms.base import Batch
from dac.core.types import EnvSpec


def batch_of(next_obs):
    rows = len(next_obs)
    nothing = jnp.zeros(rows)
    return Batch(
        obs=next_obs,
        action=jnp.zeros((rows, 1)),
        reward=nothing,
        terminated=nothing,
        truncated=nothing,
        next_obs=next_obs,
    )


def test_the_bonus_is_minus_the_log_density_of_the_buffer():
    """In [0, 10] x [-1, 1] with a triangular density along the first axis, p(x) = x / 50, and a uniform one along the
    other: log d/u = log(x / 5)."""
    bonus = Novelty(bonus_scale=1.0, bonus_learning_rate=1e-3, bonus_hidden=(32, 32))
    state = bonus.init(jax.random.key(0), EnvSpec(obs_size=2, action_size=1))
    draws = jax.random.uniform(jax.random.key(1), (3000, 256, 2))
    rows = jnp.stack([10 * jnp.sqrt(draws[..., 0]), 2 * draws[..., 1] - 1], axis=-1)

    state, _ = jax.lax.scan(lambda s, obs: (bonus.update(s, batch_of(obs))[0], None), state, rows)
    asked = jnp.stack([jnp.linspace(1.0, 9.5, 30), jnp.linspace(-0.9, 0.9, 30)], axis=-1)
    _, paid, metrics = bonus.update(state, batch_of(asked))
    np.testing.assert_allclose(paid, -np.log(asked[:, 0] / 5), atol=0.25)
    assert float(metrics["state_divergence"]) == pytest.approx(-float(paid.mean()), abs=1e-5)


def test_one_update_written_out(x64):
    """Bonus, loss and one step of Adam, from the equations, in the box of the batch."""
    bonus = Novelty(bonus_scale=0.5, bonus_learning_rate=1e-2, bonus_hidden=(8,))
    start = bonus.init(jax.random.key(3), EnvSpec(obs_size=2, action_size=1))
    rows = np.random.default_rng(0).normal(size=(16, 2))
    after, paid, metrics = jax.jit(bonus.update)(start, batch_of(jnp.asarray(rows)))

    low, high = rows.min(0), rows.max(0)
    seen = 2 * (rows - low) / (high - low) - 1
    anywhere = 2 * ((np.asarray(start.reference) + 0.618033988749895) % 1) - 1

    def g(weights, places):
        (inner, outer), (first, last) = weights
        return (jnp.maximum(places @ inner + first, 0) @ outer + last)[:, 0]

    def loss(weights):  # minus the log-likelihood of telling the two apart
        right = jnp.log(1 / (1 + jnp.exp(-g(weights, seen)))).mean()
        wrong = jnp.log(1 - 1 / (1 + jnp.exp(-g(weights, anywhere)))).mean()
        return -right - wrong

    weights = start.ratio.model.weights, start.ratio.model.biases
    adam = optax.adam(1e-2)
    step, _ = adam.update(jax.grad(loss)(weights), adam.init(weights))
    np.testing.assert_allclose(paid, -0.5 * g(weights, seen), rtol=1e-10)
    assert float(metrics["bonus_loss"]) == pytest.approx(float(loss(weights)), rel=1e-10)
    expected = optax.apply_updates(weights, step)
    found = after.ratio.model.weights, after.ratio.model.biases
    jax.tree.map(lambda e, f: np.testing.assert_allclose(f, e, rtol=1e-8), expected, found)
    np.testing.assert_array_equal(after.low, low)
    np.testing.assert_array_equal(after.high, high)


def test_the_box_grows_and_an_entry_that_never_varies_says_nothing():
    bonus = Novelty(bonus_hidden=(8,))
    state = bonus.init(jax.random.key(0), EnvSpec(obs_size=2, action_size=1))
    update = jax.jit(bonus.update)
    for reach in (1.0, 3.0, 2.0):
        rows = jnp.stack([jnp.linspace(-reach, reach, 8), jnp.full(8, 4.0)], axis=-1)
        state, paid, _ = update(state, batch_of(rows))
        assert np.isfinite(paid).all()
    np.testing.assert_array_equal(state.low, [-3.0, 4.0])
    np.testing.assert_array_equal(state.high, [3.0, 4.0])


def test_reference_points_are_soon_everywhere():
    """No tenth of the box is left out, nor has too much, over 200 updates."""
    bonus = Novelty(bonus_hidden=(8,))
    state = bonus.init(jax.random.key(0), EnvSpec(obs_size=1, action_size=1))
    update = jax.jit(bonus.update)
    rows, points = jnp.linspace(0.0, 1.0, 8)[:, None], []
    for _ in range(200):
        state, _, _ = update(state, batch_of(rows))
        points.append(np.asarray(state.reference))
    shares, _ = np.histogram(np.concatenate(points), bins=10, range=(0, 1))
    np.testing.assert_allclose(shares / shares.sum(), 0.1, atol=0.005)
