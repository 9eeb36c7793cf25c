"""Values in units of reward and in units of entropy are the same problem, once the networks are in the same units."""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest

from dac.algorithms import ALGORITHMS, DAC, DEMME, MME, SAC, SACDiv, has_temperature
from dac.core.learner import Learner
from tests.algorithms.test_dac import leaves, make_batch, run

BETA = 0.05
VALUES = ("critics", "value", "value_target")


def times(network, factor):
    """The same network with an output so many times as large."""
    return eqx.tree_at(lambda n: (n.mlp.weights[-1], n.mlp.biases[-1]), network, replace_fn=lambda leaf: factor * leaf)


def in_reward(side):
    """The value networks of a state, or of a part of one, in units of reward instead of entropy."""
    found = {}
    for name in VALUES:
        part = getattr(side, name)
        if isinstance(part, Learner):
            found[name] = dataclasses.replace(part, model=times(part.model, BETA))
        else:
            found[name] = times(part, BETA)
    return dataclasses.replace(side, **found)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (SAC, {}),
        (SAC, {"policy_q": "min", "value_entropy": 0.5}),
        (DAC, {"alpha": 0.3}),
        (DAC, {"adapt": True, "value_entropy": -0.5}),
        (SACDiv, {"divergence": "js"}),
        (MME, {}),
        (DEMME, {}),
    ],
)
def test_an_update_in_either_unit_learns_the_same(x64, algorithm, settings):
    """The policy and all that is not a value move alike; the errors of values are beta times as large."""
    made = {"beta": BETA, "hidden": (8, 8)} | settings
    by_entropy, by_reward = (algorithm(**made, value_units=units) for units in ("entropy", "reward"))
    state, _ = run(by_entropy, updates=3)
    scaled = dataclasses.replace(state, task=in_reward(state.task)) if algorithm is DEMME else in_reward(state)
    batch, key = make_batch(7), jax.random.key(1)
    one, metrics = jax.jit(by_entropy.update)(state, batch, key)
    other, scaled_metrics = jax.jit(by_reward.update)(scaled, batch, key)
    unscaled = ["novelty"] if algorithm is DEMME else [n for n in vars(state) if n not in VALUES]
    policies = [(s.task.policy if algorithm is DEMME else s.policy) for s in (one, other)]
    for found, expected in zip(leaves(policies[1]), leaves(policies[0]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)
    for name in unscaled:
        for found, expected in zip(leaves(getattr(other, name)), leaves(getattr(one, name)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)
    powers = {"q_mean": 1, "v_mean": 1, "critic_loss": 2, "value_loss": 2}
    for name, value in metrics.items():
        expected = float(value) * BETA ** powers.get(name, 0)
        assert float(scaled_metrics[name]) == pytest.approx(expected, rel=1e-9), name


def test_left_alone_values_are_in_units_of_entropy():
    """`auto` is what every run was before there was a choice, to the bit, where beta is fixed."""
    for one, other in zip(
        *(leaves(run(SAC(beta=0.3, hidden=(8,), **units))[0]) for units in ({}, {"value_units": "entropy"})),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_every_algorithm_with_an_entropy_has_the_choice():
    having = {name for name, entry in ALGORITHMS.items() if has_temperature(entry.algorithm)}
    assert having == {"dac", "sac", "sac-div", "mme", "de-mme"}
    assert all(hasattr(ALGORITHMS[name].algorithm(), "value_units") for name in having)
