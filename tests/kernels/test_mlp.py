"""Fused passes in Pallas' interpreter against NumPy in double precision, and lowered for CUDA without a GPU."""

from importlib import metadata

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.core.architectures import MLP
from dac.kernels import mlp
from dac.kernels.mlp import How, Network

PRECISIONS = {"bf16": "bfloat16", "float32": "float32"}
NAMES = ("value", *Network._fields, "x")
GPU_NAMES = ("__gpu$xla.gpu.triton", "triton_kernel_call_ffi")
lowers_without_a_gpu = pytest.mark.skipif(
    not metadata.version("jaxlib").startswith("0.10."), reason="later versions compile kernels where they lower them"
)


def draw(members, inputs, hidden, outputs, batch, seed=0):
    """Networks of all members, their batches, and gradients of their outputs."""
    rng = np.random.default_rng(seed)
    shapes = [(inputs, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, outputs), (outputs,)]
    network = Network(*(rng.normal(size=(members, *s)) / np.sqrt(s[0]) for s in shapes))
    x, gradient = rng.normal(size=(members, batch, inputs)), rng.normal(size=(members, batch, outputs))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (network, x, gradient))


def exact(network, x, gradient):
    """The output and every gradient in double precision, written out for one member."""
    w1, b1, w2, b2, w3, b3, x, g = (np.asarray(leaf, np.float64) for leaf in (*network, x, gradient))
    z1 = x @ w1 + b1
    h1 = np.maximum(z1, 0)
    z2 = h1 @ w2 + b2
    h2 = np.maximum(z2, 0)
    d2 = (g @ w3.T) * (z2 > 0)
    d1 = (d2 @ w2.T) * (z1 > 0)
    return [h2 @ w3 + b3, x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ g, g.sum(0), d1 @ w1.T]


def everything(run):
    """The output and every gradient of all members."""

    def of_one(network, x, gradient):
        value, pull_back = jax.vjp(run, network, x)
        to_network, to_x = pull_back(gradient)
        return [value, *to_network, to_x]

    return jax.jit(jax.vmap(of_one))


def fused(precision, interpret=True):
    return everything(lambda network, x: mlp.apply(x, network, How(PRECISIONS[precision], interpret)))


def plain(precision):
    """The network as XLA has it without kernels."""

    def run(network, x):
        w1, b1, w2, b2, w3, b3 = network
        model = MLP(jax.random.key(0), w1.shape[0], (w1.shape[1],) * 2, w3.shape[1], precision=precision)
        return jax.vmap(jax.tree.unflatten(jax.tree.structure(model), [w1, w2, w3, b1, b2, b3]))(x)

    return everything(run)


def errors(found, data):
    """By pass, the largest relative error of any member."""
    result = dict.fromkeys(NAMES, 0.0)
    for member in range(data[1].shape[0]):
        right = exact(*jax.tree.map(lambda leaf, m=member: leaf[m], data))
        for name, leaf, wanted in zip(NAMES, found, right, strict=True):
            error = np.linalg.norm(np.asarray(leaf[member], np.float64) - wanted) / np.linalg.norm(wanted)
            result[name] = max(result[name], float(error))
            assert np.isfinite(error)
    return result


def check(precision, sizes, seed=0):
    data = draw(*sizes, seed=seed)
    ours, xla = (errors(run(precision)(*data), data) for run in (fused, plain))
    for name in NAMES:
        assert ours[name] <= 2 * xla[name] + 1e-6, (name, ours[name], xla[name])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_output_and_gradients_err_as_little_as_those_of_xla(precision):
    """Sizes that fill no tile, and a batch of several tiles."""
    check(precision, (2, 5, 70, 3, 70))


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("seed", range(6))
def test_so_do_those_of_random_sizes(precision, seed):
    rng = np.random.default_rng(seed)
    hidden, batch = rng.integers(64, 513), rng.integers(64, 513)
    members = int(np.exp(rng.uniform(0, np.log(128 * 64 / hidden))))  # 128 of the smallest, for the sake of time
    check(precision, (members, int(rng.integers(2, 377)), hidden, int(rng.integers(1, 35)), batch), seed)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sizes", [(1, 376, 512, 17, 512), (128, 2, 64, 1, 64), (3, 17, 256, 12, 256)])
def test_so_do_those_of_the_largest_and_the_smallest(precision, sizes):
    check(precision, sizes)


def test_gradients_are_finite_differences():
    """Along the gradient of each array, where what single units add by being switched on or off matters least."""
    network, x, gradient = jax.tree.map(lambda leaf: leaf[0], draw(1, 4, 24, 2, 20))

    def apply(network, x):
        return mlp.apply(x, network, How("float32", True))

    slopes = jax.jit(jax.grad(lambda network, x: jnp.sum(gradient * apply(network, x)), argnums=(0, 1)))(network, x)
    leaves, structure = jax.tree.flatten((network, x))
    output = jax.jit(apply)
    for place, slope in enumerate(jax.tree.leaves(slopes)):
        length, step = np.linalg.norm(slope), 3e-4
        ends = [leaves[place] + way * step * slope / length for way in (-1, 1)]
        below, above = (
            np.asarray(output(*jax.tree.unflatten(structure, [*leaves[:place], end, *leaves[place + 1 :]])), np.float64)
            for end in ends
        )
        np.testing.assert_allclose(np.sum(gradient * (above - below)) / (2 * step), length, rtol=2e-2)


def test_what_is_not_finite_in_one_member_stays_there():
    data = draw(3, 3, 20, 2, 18)
    network = data[0]._replace(w2=data[0].w2.at[1, 4, 7].set(jnp.nan))
    found, whole = fused("bf16")(network, *data[1:]), fused("bf16")(*data)
    assert np.isnan(found[0][1]).any()
    for leaf, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(np.asarray(leaf)[[0, 2]], np.asarray(other)[[0, 2]])


def test_where_there_is_no_gpu_the_reference_gives_the_same():
    data = draw(2, 5, 40, 3, 33)
    for found, wanted in zip(fused("bf16", interpret=False)(*data), fused("bf16")(*data), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def kernels_in(function, *arguments):
    """How many kernels the program for CUDA calls."""
    text = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    return sum(text.count(name) for name in GPU_NAMES)


@lowers_without_a_gpu
def test_only_what_is_asked_for_is_computed():
    network, x, _ = draw(2, 5, 40, 1, 33)

    def loss(network, x):
        return jnp.sum(jax.vmap(lambda n, x: mlp.apply(x, n, How("bfloat16", False)))(network, x))

    assert kernels_in(loss, network, x) == 1
    assert kernels_in(jax.grad(loss), network, x) == 2
    assert kernels_in(jax.grad(loss, argnums=1), network, x) == 2
    assert kernels_in(jax.grad(loss, argnums=(0, 1)), network, x) == 3


@lowers_without_a_gpu
@pytest.mark.parametrize(("inputs", "hidden", "outputs"), [(23, 256, 1), (376, 500, 17)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_kernel_lowers_for_cuda(precision, inputs, hidden, outputs):
    """Triton takes no other than powers of two, and few of JAX's operations."""
    assert kernels_in(fused(precision, interpret=False), *draw(2, inputs, hidden, outputs, 256)) == 3


@pytest.mark.parametrize("name", mlp.TILES)
def test_tiles_are_cut_to_what_a_program_can_hold(name):
    for inputs, hidden, width in ((16, 16, 2), (32, 256, 2), (32, 256, 4), (512, 512, 2), (512, 512, 4)):
        tile = mlp.fitting(name, 256, inputs, hidden, width)
        assert mlp._shared_bytes(name, tile, inputs, hidden, width) <= mlp.MOST_SHARED
        assert mlp._sums(name, tile, inputs, hidden) <= mlp.MOST_SUMS
        assert min(tile.rows, tile.hidden) >= mlp.SMALLEST
    assert mlp.fitting(name, 256, 32, 256, 2) == mlp.TILES[name]  # the paper's sizes are what they were chosen for
