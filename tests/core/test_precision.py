"""Products in each precision against NumPy in double precision, forward and backward, mapped in every way."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from dac.algorithms import ALGORITHMS, make_algorithm
from dac.config import resolve
from dac.core.architectures import MLP, Architecture
from dac.core.population import each_member, grid, stack_algorithms, stack_keys
from dac.core.precision import PRECISIONS, product
from dac.core.types import EnvSpec, Transition, UsageError

SPEC = EnvSpec(obs_size=3, action_size=2)
UNIT = {"float32": 2.0**-24, "tf32": 2.0**-24, "bf16": 2.0**-8}
"""Largest relative error of one operand, rounded to the nearest; on a CPU tf32 is float32."""


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(x):
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


def batched(precision):
    """A network's way to multiply: one example at a time, mapped over the batch."""
    return lambda x, weight: jax.vmap(lambda row: product(row, weight, precision))(x)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sizes", [(6, 6, 6), (5, 7, 3), (4, 1, 9), (3, 8, 1), (1, 5, 5)])
def test_a_product_and_its_gradients_have_the_error_of_their_precision(precision, sizes):
    """Both operands of each of the three products are rounded, and nothing else is."""
    batch, inner, outer = sizes
    x, weight, cotangent = draw(batch, inner), draw(inner, outer, seed=1), draw(batch, outer, seed=2)
    value, pull_back = jax.vjp(batched(precision), x, weight)
    found = [value, *pull_back(jnp.asarray(cotangent))]
    for result, left, right in zip(found, (x, cotangent, x.T), (weight, weight.T, cotangent), strict=True):
        exact = left.astype(np.float64) @ right
        size = np.abs(left).astype(np.float64) @ np.abs(right)
        adding = (left.shape[1] + 2) * 2.0**-24 * size
        assert (np.abs(result - exact) <= (2 * UNIT[precision] + UNIT[precision] ** 2) * size + adding).all()
        if precision == "bf16":
            np.testing.assert_array_less(np.abs(result - rounded(left) @ rounded(right)), adding + 1e-12)
        assert result.dtype == jnp.float32


def test_bf16_is_rounded_also_where_all_is_double(x64):
    x, weight = (np.asarray(draw(4, 4, seed=seed), np.float64) for seed in (0, 1))
    found = batched("bf16")(x, weight)
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, rounded(x) @ rounded(weight), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("x_has", "weight_has"), [(True, True), (True, False), (False, True)])
def test_products_mapped_over_members_and_twins_are_those_of_each(x_has, weight_has):
    """Members outside, twins within: also where all share the input, or the weights."""
    x = draw(*((3, 2) if x_has else ()), 5, 4)
    weight = draw(*((3, 2) if weight_has else ()), 4, 6, seed=1)
    axes = (0 if x_has else None, 0 if weight_has else None)

    def loss(x, weight):
        return jnp.sum(jnp.sin(batched("bf16")(x, weight)))

    both = jax.value_and_grad(loss, argnums=(0, 1))
    values, gradients = jax.jit(jax.vmap(jax.vmap(both, axes), axes))(x, weight)
    for member in range(3):
        for twin in range(2):
            at = member, twin
            expected = both(x[at] if x_has else x, weight[at] if weight_has else weight)
            np.testing.assert_allclose(values[at], expected[0], rtol=1e-5)
            for found, alone in zip(gradients, expected[1], strict=True):
                np.testing.assert_allclose(found[at], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "residual"])
def test_the_gradient_of_a_bf16_network_is_nearly_that_in_float32(network):
    build = {p: Architecture((32, 32), network, activation="tanh", precision=p) for p in PRECISIONS}
    x = draw(64, 3)

    def gradient(precision):
        model = build[precision](jax.random.key(0), 3, 2)
        found = jax.jit(jax.grad(lambda model: jnp.mean(jnp.sum(jax.vmap(model)(x) ** 2, axis=1))))(model)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])

    exact, coarse = gradient("float32"), gradient("bf16")
    error = np.linalg.norm(coarse - exact) / np.linalg.norm(exact)
    assert 1e-4 < error < 0.02  # four or five roundings to 8 bits one after the other
    np.testing.assert_array_equal(gradient("tf32"), exact)


def test_what_is_not_finite_in_one_member_stays_there():
    x, weight = draw(3, 5, 4), draw(3, 4, 6, seed=1)
    broken = weight.copy()
    broken[1, 2, 3] = np.nan
    run = jax.jit(jax.vmap(jax.value_and_grad(lambda x, w: jnp.sum(batched("bf16")(x, w) ** 2), argnums=(0, 1))))
    good, bad = (jax.tree.leaves(run(x, w)) for w in (weight, broken))
    for healthy, found in zip(good, bad, strict=True):
        assert np.isnan(np.asarray(found)[1]).any()
        for member in (0, 2):
            np.testing.assert_array_equal(healthy[member], found[member])


def test_every_product_of_an_update_reads_bf16_and_adds_in_float32():
    """Forward, weight gradient and input gradient: in the program, all products are bf16 x bf16 -> f32."""
    algorithms = stack_algorithms(
        make_algorithm("dac", settings={"hidden": (8, 8), "precision": "bf16"}), grid([0], {})
    )
    keys = stack_keys(grid([0], {}))
    states = eqx.filter_eval_shape(each_member(lambda a, k: a.init(k, SPEC)), algorithms, keys)
    row = jnp.zeros((1, 4))
    batch = Transition(jnp.zeros((1, 4, 3)), jnp.zeros((1, 4, 2)), row, row, row, jnp.zeros((1, 4, 3)))
    update = each_member(lambda a, s, b, k: a.update(s, b, k)[0])
    text = jax.jit(update).lower(algorithms, states, batch, keys).as_text()
    products = re.findall(r"stablehlo\.dot_general.*: \((.*)\) -> (.*)", text)
    assert len(products) > 20
    for operands, result in products:
        assert re.fullmatch(r"tensor<[\dx]+xbf16>, tensor<[\dx]+xbf16>", operands)
        assert result.endswith("xf32>")


def test_tf32_is_asked_for_on_a_gpu(monkeypatch):
    x, weight = draw(4, 4), draw(4, 4, seed=1)
    np.testing.assert_array_equal(product(x, weight, "tf32"), product(x, weight, "float32"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    traced = jax.jit(jax.value_and_grad(lambda w: jnp.sum(product(x, w, "tf32")))).trace(weight)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert len(re.findall("dot_general", text)) == len(re.findall("lhs_precision_type = tf32", text)) == 2


@pytest.mark.parametrize(
    ("name", "bonus"), [*((name, ALGORITHMS[name].bonus) for name in ALGORITHMS), ("sac", "novelty")]
)
def test_every_network_of_every_algorithm_has_the_precision(name, bonus):
    settings = {"hidden": (8, 8), "precision": "bf16"} | ({"adapt": True} if name == "dac" else {})
    algorithm = make_algorithm(name, bonus, settings)
    state = jax.eval_shape(lambda: algorithm.init(jax.random.key(0), SPEC))
    found = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, MLP))
    networks = [part for part in found if isinstance(part, MLP)]
    assert networks
    assert {network.precision for network in networks} == {"bf16"}


def test_the_default_is_what_runs_were_before():
    plain, coarse = (resolve("dac", "maze", settings=s) for s in ({}, {"precision": "bf16"}))
    assert plain.hyper["precision"] == "float32"
    assert plain.fingerprint() == resolve("dac", "maze", settings={"precision": "float32"}).fingerprint()
    assert plain.fingerprint() != coarse.fingerprint()
    with pytest.raises(UsageError, match="precision must be one of float32, tf32, bf16, auto, not 'fp8'"):
        resolve("dac", "maze", settings={"precision": "fp8"})
