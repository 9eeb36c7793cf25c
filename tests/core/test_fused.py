"""Where a network of one example meets its batch: which path it takes, and that algorithms learn the same by it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms import ALGORITHMS, make_algorithm
from dac.core.architectures import MLP, Architecture
from dac.core.population import each_member, grid, stack_algorithms, stack_keys
from dac.core.types import EnvSpec, Transition
from tests.kernels.test_mlp import kernels_in, lowers_without_a_gpu

SPEC = EnvSpec(obs_size=3, action_size=2)
HIDDEN = (16, 16)


def build(kernels, hidden=HIDDEN, **more):
    return Architecture(hidden, kernels=kernels, **more)(jax.random.key(0), 3, 2)


def kernels_of(function, *arguments):
    return str(jax.make_jaxpr(function)(*arguments)).count("pallas_call")


def test_a_batch_takes_the_kernel_and_anything_else_the_plain_path():
    network, x = build("interpret"), jnp.ones((20, 3))
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), network)
    assert kernels_of(jax.vmap(network), x) == 1
    assert kernels_of(jax.vmap(lambda n: jax.vmap(n)(x)), twins) == 1  # twins are more programs, not more kernels
    assert kernels_of(network, x[0]) == 0
    assert kernels_of(jax.vmap(network), x[:15]) == 0
    assert kernels_of(jax.vmap(lambda n, row: n(row)), twins, x[:2]) == 0
    assert kernels_of(jax.vmap(jax.grad(lambda row: network(row)[0])), x) == 0  # a gradient for every example
    assert kernels_of(jax.vmap(build("off")), x) == 0


def test_without_a_batch_all_is_as_without_kernels():
    on, off, x = build("interpret"), build("off"), jnp.arange(3.0)
    np.testing.assert_array_equal(on(x), off(x))
    for loss in (lambda n: n(x)[0], lambda n: jnp.sum(jax.vmap(n)(jnp.stack([x, -x])))):
        for found, wanted in zip(*(jax.tree.leaves(jax.grad(loss)(n)) for n in (on, off)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_only_networks_that_have_kernels_take_them():
    assert isinstance(build("on"), MLP)
    assert build("on").kernels == "on"
    for more in (
        {"activation": "tanh"},
        {"norm": "layer"},
        {"hidden": (16, 8)},
        {"hidden": (16,)},
        {"hidden": (513, 513)},
    ):
        assert build("on", **more).kernels == "off"
    assert not hasattr(build("on", network="residual"), "kernels")


def update(name, kernels, precision="float32", hidden=HIDDEN):
    """An update of two members and its arguments."""
    settings = {"hidden": hidden, "kernels": kernels, "precision": precision}
    population = grid(range(2), {})
    algorithm = stack_algorithms(make_algorithm(name, ALGORITHMS[name].bonus, settings), population)
    keys = stack_keys(population)
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 2, 32, 3)).astype(np.float32)
    action = np.tanh(rng.normal(size=(2, 32, 2))).astype(np.float32)
    reward, zeros = rng.normal(size=(2, 32)).astype(np.float32), np.zeros((2, 32), np.float32)
    batch = Transition(obs, action, reward, zeros, zeros, next_obs)
    state = jax.jit(each_member(lambda a, k: a.init(k, SPEC)))(algorithm, keys)
    return each_member(lambda a, s, b, k: a.update(s, b, k)), (algorithm, state, batch, keys)


ORDINARY = ["sac", "dac", "td3", "sql", "sac-div"]


@pytest.mark.parametrize("name", [n if n == "sac" else pytest.param(n, marks=pytest.mark.slow) for n in ORDINARY])
def test_an_update_is_the_same_with_kernels(name):
    results = []
    for kernels in ("off", "interpret"):
        function, arguments = update(name, kernels)
        results.append(jax.tree.leaves(jax.jit(function)(*arguments)))
    for found, wanted in zip(*results, strict=True):
        if jnp.issubdtype(found.dtype, jnp.floating):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@lowers_without_a_gpu
@pytest.mark.parametrize("precision", ["bf16", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "count"), [("sac", 10), pytest.param("dac", 16, marks=pytest.mark.slow)])
def test_the_update_of_a_population_lowers_for_cuda(name, count, precision):
    function, arguments = update(name, "on", precision)
    assert kernels_in(function, *arguments) >= count
