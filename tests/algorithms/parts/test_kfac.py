"""K-FAC against Fisher matrices written out, its moving averages, inverses and the KL clip."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms.parts import kfac
from dac.core.architectures import MLP


def make_mlp(key, in_size, hidden, out_size, activation=jnp.tanh):
    """A network whose biases are not zero."""
    mlp = MLP(jax.random.key(key), in_size, hidden, out_size, activation=activation)
    keys = jax.random.split(jax.random.key(key + 100), len(mlp.biases))
    biases = tuple(jax.random.normal(k, b.shape) for k, b in zip(keys, mlp.biases, strict=True))
    return eqx.tree_at(lambda m: m.biases, mlp, biases)


def vector(mlp):
    """All numbers of an MLP in K-FAC's order: layer by layer, the bias as the last row of the weights."""
    layers = zip(mlp.weights, mlp.biases, strict=True)
    return np.concatenate([np.concatenate([w, b[None]]).ravel() for w, b in layers])


def every_outcome(x, out_size, sigma):
    """Each input once per output entry, with scores whose outer products average to the exact I / sigma^2."""
    scores = np.sqrt(out_size) * np.eye(out_size) / sigma
    return jnp.repeat(x, out_size, axis=0), jnp.tile(jnp.asarray(scores), (x.shape[0], 1))


def exact_fisher(mlp, x, sigma):
    """E[J^T J] / sigma^2, with the Jacobian of each example's output by autodiff."""
    total = 0.0
    for row in x:
        jacobian = jax.jacobian(lambda m, row=row: m(row))(mlp)
        layers = zip(jacobian.weights, jacobian.biases, strict=True)
        rows = [np.concatenate([w, b[:, None]], axis=1).reshape(len(w), -1) for w, b in layers]
        rows = np.concatenate(rows, axis=1)
        total = total + rows.T @ rows
    return total / len(x) / sigma**2


def test_a_linear_gaussian_layer_has_its_exact_natural_gradient(x64):
    """The product is exact where g does not depend on a: one linear layer under a Gaussian with constant sigma."""
    sigma, x = 0.7, jax.random.normal(jax.random.key(1), (40, 3)) + 0.5
    mlp, gradient = make_mlp(0, 3, (), 2), make_mlp(5, 3, (), 2)
    transform = kfac.scale_by_kfac(damping=1e-14)
    statistics = kfac.layer_statistics(mlp, *every_outcome(x, 2, sigma))
    found, _ = transform.update(gradient, transform.init(mlp), statistics=statistics)
    expected = np.linalg.solve(exact_fisher(mlp, x, sigma), vector(gradient))
    np.testing.assert_allclose(vector(found), expected, rtol=1e-5)


def test_sampled_outputs_give_the_true_fisher(x64):
    """With scores noise / sigma the direction comes near the exact one, at the rate of sampling."""
    sigma, x = 0.7, jax.random.normal(jax.random.key(1), (100_000, 3)) + 0.5
    mlp, gradient = make_mlp(0, 3, (), 2), make_mlp(5, 3, (), 2)
    score = jax.random.normal(jax.random.key(2), (len(x), 2)) / sigma
    transform = kfac.scale_by_kfac(damping=1e-14)
    statistics = kfac.layer_statistics(mlp, x, score)
    found, _ = transform.update(gradient, transform.init(mlp), statistics=statistics)
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    fisher = np.kron(inputs.T @ inputs / len(x), np.eye(2) / sigma**2)
    expected = np.linalg.solve(fisher, vector(gradient))
    np.testing.assert_allclose(vector(found), expected, atol=0.02 * np.abs(expected).max())


def test_statistics_multiply_to_the_gradient_of_every_layer(x64):
    """The definition of g: for each example the gradient of log N(y; f(x), sigma^2) is a' g^T, in every layer."""
    sigma, mlp = 0.6, make_mlp(0, 3, (5, 4), 2, jax.nn.elu)
    x, noise = jax.random.normal(jax.random.key(1), (7, 3)), jax.random.normal(jax.random.key(2), (7, 2))
    layers = kfac.layer_statistics(mlp, x, noise / sigma)
    for i in range(7):
        sample = mlp(x[i]) + sigma * noise[i]
        gradient = jax.grad(lambda m, i=i, y=sample: -jnp.sum((y - m(x[i])) ** 2) / (2 * sigma**2))(mlp)
        for layer, weight, bias in zip(layers, gradient.weights, gradient.biases, strict=True):
            np.testing.assert_allclose(np.outer(layer.inputs[i], layer.gradients[i]), weight, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(layer.gradients[i], bias, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("damping", [1e-3, 0.1, 10.0])
def test_two_layers_against_the_block_diagonal_written_out(x64, damping):
    """Blocks kron(A, G) from loops over examples, damped as Martens & Grosse do, inverted as one matrix."""
    mlp, gradient = make_mlp(0, 3, (4,), 2), make_mlp(5, 3, (4,), 2)
    x, score = jax.random.normal(jax.random.key(1), (9, 3)), jax.random.normal(jax.random.key(2), (9, 2))
    transform = kfac.scale_by_kfac(damping=damping)
    found, _ = transform.update(gradient, transform.init(mlp), statistics=kfac.layer_statistics(mlp, x, score))

    w1, w2, b1 = (np.asarray(p) for p in (mlp.weights[0], mlp.weights[1], mlp.biases[0]))
    sums = [np.zeros((4, 4)), np.zeros((4, 4)), np.zeros((5, 5)), np.zeros((2, 2))]
    for i in range(9):
        hidden = np.tanh(np.asarray(x[i]) @ w1 + b1)
        g2 = np.asarray(score[i])
        g1 = (w2 @ g2) * (1 - hidden**2)
        for total, v in zip(sums, (np.append(x[i], 1), g1, np.append(hidden, 1), g2), strict=True):
            total += np.outer(v, v) / 9
    blocks = []
    for a, g in (sums[:2], sums[2:]):
        pi = np.sqrt(np.trace(a) / len(a) / (np.trace(g) / len(g)))
        damped = a + pi * np.sqrt(damping) * np.eye(len(a)), g + np.sqrt(damping) / pi * np.eye(len(g))
        blocks.append(np.kron(*damped))
    whole = np.zeros((16 + 10, 16 + 10))
    whole[:16, :16], whole[16:, 16:] = blocks
    np.testing.assert_allclose(vector(found), np.linalg.solve(whole, vector(gradient)), rtol=1e-8)


def test_factors_are_means_at_first_and_then_moving_averages(x64):
    decay, mlp = 0.75, make_mlp(0, 2, (3,), 1)
    transform = kfac.scale_by_kfac(decay=decay)
    state, expected = transform.init(mlp), None
    for t in range(1, 9):
        x, score = jax.random.normal(jax.random.key(t), (6, 2)), jax.random.normal(jax.random.key(-t), (6, 1))
        _, state = transform.update(mlp, state, statistics=kfac.layer_statistics(mlp, x, score))
        hidden = np.concatenate([np.tanh(x @ mlp.weights[0] + mlp.biases[0][None]), np.ones((6, 1))], axis=1)
        new = hidden.T @ hidden / 6
        kept = min(1 - 1 / t, decay)
        expected = new if expected is None else kept * expected + (1 - kept) * new
        np.testing.assert_allclose(state.factors[1].inputs, expected, rtol=1e-10)
    assert int(state.count) == 8


def test_inverses_are_kept_between_refreshes(x64):
    """Without a refresh the direction is that of the earlier factors, while the factors go on."""
    mlp, gradient = make_mlp(0, 2, (3,), 1), make_mlp(5, 2, (3,), 1)
    transform = kfac.scale_by_kfac()

    def statistics(seed):
        key = jax.random.key(seed)
        return kfac.layer_statistics(mlp, jax.random.normal(key, (6, 2)), jnp.ones((6, 1)) * seed)

    first, state = transform.update(gradient, transform.init(mlp), statistics=statistics(1))
    update = jax.jit(lambda s, refresh: transform.update(gradient, s, statistics=statistics(2), refresh=refresh))
    kept, state_kept = update(state, False)
    fresh, state_fresh = update(state, True)
    np.testing.assert_allclose(vector(kept), vector(first), rtol=1e-10)
    assert np.abs(vector(fresh) - vector(first)).max() > 1e-2
    np.testing.assert_array_equal(state_kept.factors[0].inputs, state_fresh.factors[0].inputs)


@pytest.mark.parametrize("size", [1, 2, 17, 65])
def test_inverse_in_single_precision(size):
    """A damped covariance of fewer examples than entries: eigenvalues from 0.01 to above 10."""
    rows = np.random.default_rng(size).normal(size=(max(1, size // 2), size))
    matrix = rows.T @ rows / len(rows) + 0.01 * np.eye(size)
    found = np.asarray(kfac.inverse(jnp.asarray(matrix, jnp.float32)))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, np.linalg.inv(matrix), atol=1e-4 * np.abs(np.linalg.inv(matrix)).max())


def test_a_layer_that_no_signal_reaches_gets_a_finite_direction():
    """Output weights of zero: G of the first layer is zero."""
    mlp, gradient = make_mlp(0, 2, (3,), 1), make_mlp(5, 2, (3,), 1)
    mlp = eqx.tree_at(lambda m: m.weights[1], mlp, jnp.zeros((3, 1)))
    transform = kfac.scale_by_kfac(damping=0.01)
    statistics = kfac.layer_statistics(mlp, jnp.ones((4, 2)), jnp.ones((4, 1)))
    found, _ = transform.update(gradient, transform.init(mlp), statistics=statistics)
    assert np.isfinite(vector(found)).all()


@pytest.mark.parametrize("learning_rate", [1e-3, 0.1, 1.0, 30.0])
def test_clip_bounds_the_predicted_divergence(x64, learning_rate):
    """1/2 lr^2 d^T F d <= clip / 2 for the Kronecker Fisher, and for large steps of an undamped one with equality."""
    clip, mlp, gradient = 0.01, make_mlp(0, 3, (4,), 2), make_mlp(5, 3, (4,), 2)
    x, score = jax.random.normal(jax.random.key(1), (50, 3)), jax.random.normal(jax.random.key(2), (50, 2))
    for damping in (1e-12, 0.01, 1.0):
        transform = kfac.scale_by_kfac(damping=damping)
        direction, state = transform.update(
            gradient, transform.init(mlp), statistics=kfac.layer_statistics(mlp, x, score)
        )
        scale = float(kfac.clip_scale(gradient, direction, learning_rate, clip))
        whole = np.zeros((26, 26))
        whole[:16, :16], whole[16:, 16:] = (np.kron(f.inputs, f.gradients) for f in state.factors)
        step = learning_rate * scale * vector(direction)
        divergence = 0.5 * step @ whole @ step
        assert 0 < scale <= 1
        assert divergence <= clip / 2 * (1 + 1e-6)
        if scale < 1 and damping == 1e-12:
            assert divergence == pytest.approx(clip / 2, rel=1e-3)


def test_clip_leaves_short_steps_and_no_step_alone():
    mlp = make_mlp(0, 3, (4,), 2)
    assert float(kfac.clip_scale(mlp, mlp, 1e-9, 0.01)) == 1
    nothing = jax.tree.map(jnp.zeros_like, mlp)
    assert float(kfac.clip_scale(nothing, nothing, 1.0, 0.01)) == 1


def test_members_together_are_members_one_by_one(x64):
    """Mapped, with a decay and a damping of their own, and with a shared condition for the inverses."""
    mlps = jax.vmap(lambda k: MLP(k, 3, (4,), 2, activation=jnp.tanh))(jax.random.split(jax.random.key(0), 3))
    x = jax.random.normal(jax.random.key(1), (3, 8, 3))
    scores = jax.random.normal(jax.random.key(2), (3, 5, 8, 2))
    decays, dampings = jnp.array([0.5, 0.9, 0.99]), jnp.array([0.01, 0.1, 1.0])

    def several(mlp, x, scores, decay, damping):
        transform = kfac.scale_by_kfac(decay, damping)

        def one(carry, now):
            mlp, state = carry
            i, score = now
            statistics = kfac.layer_statistics(mlp, x, score)
            direction, state = transform.update(mlp, state, statistics=statistics, refresh=i % 2 == 0)
            return (jax.tree.map(lambda p, d: p - 0.01 * d, mlp, direction), state), None

        return jax.lax.scan(one, (mlp, transform.init(mlp)), (jnp.arange(5), scores))[0][0]

    together = jax.jit(jax.vmap(several))(mlps, x, scores, decays, dampings)
    for i in range(3):
        alone = several(jax.tree.map(lambda leaf, i=i: leaf[i], mlps), x[i], scores[i], decays[i], dampings[i])
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(one[i], other, rtol=1e-9, atol=1e-12)


STRESS = """
import threading
import jax, jax.numpy as jnp
from dac.algorithms.parts.density import KernelDensity, random_projection
from dac.algorithms.parts.kfac import inverse

MEMBERS, THREADS, REPEATS = 8, 4, 5
sizes = [18, 65, 65, 65, 64, 6, 64, 1]
keys = jax.random.split(jax.random.key(0), len(sizes))
draws = [jax.random.normal(k, (MEMBERS, n, 2 * n)) for k, n in zip(keys, sizes)]
matrices = [x @ x.transpose(0, 2, 1) / x.shape[1] for x in draws]
points, projection = jax.random.normal(jax.random.key(1), (MEMBERS, 500, 17)), random_projection(jax.random.key(2), 17)
invert = jax.jit(jax.vmap(lambda matrices: [inverse(m) for m in matrices]))
fit = jax.jit(jax.vmap(lambda x: KernelDensity.fit(x, jnp.ones(500, bool), projection, 500)))

def work():
    for _ in range(REPEATS):
        jax.block_until_ready((invert(matrices), fit(points)))

work()
threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
errors = [jnp.abs(m @ i - jnp.eye(m.shape[1])[None]).max() for m, i in zip(matrices, invert(matrices))]
assert max(errors) < 1e-2, errors
"""


@pytest.mark.slow
def test_many_inverses_and_density_fits_at_once_come_back():
    """Members times layers times threads: where LAPACK's Cholesky, called so, waits for ever. See `kfac.inverse`."""
    subprocess.run([sys.executable, "-c", STRESS], check=True, timeout=300)
