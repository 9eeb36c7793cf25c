"""Optimisers and learning-rate schedules are Optax's, by name; without them nothing is different from before."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dac
from dac.algorithms import WithSchedule, make_algorithm
from dac.config import resolve, with_steps
from dac.core.learner import OPTIMISERS, Learner
from dac.core.population import Member, stack_algorithms
from dac.core.types import EnvSpec, Transition
from tests.api.test_models import TINY

BY_HAND = {
    "adam": optax.adam,
    "adamw": optax.adamw,
    "amsgrad": optax.amsgrad,
    "lion": functools.partial(optax.lion, weight_decay=0.0),
    "momentum": functools.partial(optax.sgd, momentum=0.9),
    "nadam": optax.nadam,
    "rmsprop": optax.rmsprop,
    "sgd": optax.sgd,
}
RATE = 0.03


class Line(eqx.Module):
    slope: jax.Array


def test_every_optimiser_is_optax_own():
    assert set(BY_HAND) == set(OPTIMISERS)
    for name, make in BY_HAND.items():
        model, by_hand = Learner.create(Line(jnp.array([1.0, -2.0])), OPTIMISERS[name]), make(RATE)
        expected, state = model.model, by_hand.init(model.model)
        for gradient in (Line(jnp.array(g)) for g in ([0.5, -0.1], [-2.0, 0.3], [0.1, 0.0])):
            model = model.descend(gradient, RATE)
            updates, state = by_hand.update(gradient, state, expected)
            expected = optax.apply_updates(expected, updates)
        np.testing.assert_allclose(model.model.slope, expected.slope, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("schedule", "by_hand"),
    [
        ("linear", optax.linear_schedule(RATE, 0.0, 40)),
        ("cosine", optax.cosine_decay_schedule(RATE, 40)),
    ],
)
def test_every_schedule_is_optax_own(schedule, by_hand):
    algorithm = make_algorithm("dac", settings={"schedule": schedule, "learning_rate": RATE, "q_window": 9}, horizon=40)
    updates = jnp.arange(0, 60, 3)
    found = jax.vmap(algorithm.rate)(updates)
    np.testing.assert_allclose(found, jax.vmap(by_hand)(updates), atol=1e-8)


def test_an_update_under_a_schedule_is_an_update_with_that_rate():
    """The third update of SAC with a schedule, by SAC itself with the rate that Optax's schedule has there."""
    spec, key = EnvSpec(2, 1), jax.random.key(0)
    settings = {"hidden": (8,), "batch_size": 4, "learning_rate": RATE, "optimiser": "rmsprop"}
    plain = make_algorithm("sac", settings=settings)
    scheduled = make_algorithm("sac", settings=settings | {"schedule": "linear"}, horizon=10)
    batch = Transition(
        jnp.ones((4, 2)), jnp.ones((4, 1)) / 2, jnp.ones(4), jnp.zeros(4), jnp.zeros(4), jnp.ones((4, 2))
    )
    state, other = plain.init(key, spec), scheduled.init(key, spec)
    update = eqx.filter_jit(lambda algorithm, state, batch, key: algorithm.update(state, batch, key))
    rates = optax.linear_schedule(RATE, 0.0, 10)
    for step in range(3):
        state, _ = update(plain.replace(learning_rate=jnp.float32(rates(step))), state, batch, key)
        other, measured = update(scheduled, other, batch, key)
    np.testing.assert_allclose(measured["learning_rate"], rates(2), rtol=1e-6)
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(other.algorithm), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_run_reaches_zero_at_its_end_and_members_differ(tmp_path):
    settings = TINY | {"schedule": "linear", "optimiser": "adamw", "learning_rate": [1e-3, 1e-2]}
    run = dac.train("sac", "target", steps=90, out=tmp_path / "run", **settings)
    rates, updates = run.metrics["learning_rate"], run.metrics["updates"]
    np.testing.assert_allclose(rates[1:], np.array([[1e-3, 1e-2]]) * (1 - updates[1:] / 40), rtol=1e-4, atol=1e-9)
    assert updates[-1, 0] == 40
    assert run.config.follows_length()


def test_the_default_is_what_it_was_before():
    """No state is added, no rate is multiplied, and checkpoints of runs without these settings are found."""
    before = {
        ("dac", "maze"): "8ae0f57cb0456fa8e4af59e018057c5a",
        ("sac", "Hopper"): "b4e6f90c15e3eb1ef282a1d51034f740",
        ("td3", "gym:Pendulum-v1"): "d4e64a930e9737532e250e2381e4d71f",
        ("sql", "SparseAnt"): "10a0f6aa44a1d4bf885ca403febc1895",
        ("ppo", "gym:Pendulum-v1"): "44eee5d4443dea31d3c8c9a82b3ca488",
        ("rnd", "maze"): "ac04e67c3b19c922e8bb25138171055c",
    }
    for (algorithm, task), fingerprint in before.items():
        config = resolve(algorithm, task, [0, 1], {})
        assert config.fingerprint() == fingerprint
        assert config.make_algorithm().__class__ is not WithSchedule
        assert config.follows_length() == (algorithm == "ppo")
    scheduled = resolve("sac", "maze", 0, {"schedule": "cosine"})
    assert scheduled.fingerprint() != resolve("sac", "maze", 0, {}).fingerprint()
    assert scheduled.fingerprint() == with_steps(scheduled, 1_000_000).fingerprint()
    assert not resolve("sac", "maze", 0, {"schedule": "cosine", "schedule_steps": 500}).follows_length()


def test_the_length_of_a_run_is_no_part_of_the_program():
    members = [Member(0, {"learning_rate": RATE}), Member(1, {"learning_rate": 2 * RATE})]
    short, long = (
        stack_algorithms(resolve("sac", "maze", 0, {"schedule": "linear", "steps": n}).make_algorithm(), members)
        for n in (10_000, 20_000)
    )
    assert jax.tree.structure(short) == jax.tree.structure(long)
    assert short.horizon.tolist() == [9000.0, 9000.0]
    assert long.horizon.tolist() == [19000.0, 19000.0]


def test_what_there_is_not_is_refused():
    with pytest.raises(dac.UsageError, match="optimiser must be one of adam, adamw, amsgrad, lion"):
        resolve("dac", "maze", 0, {"optimiser": "shampoo"})
    with pytest.raises(dac.UsageError, match="schedule must be one of constant, linear, cosine, not 'step'"):
        resolve("dac", "maze", 0, {"schedule": "step"})
    with pytest.raises(dac.UsageError, match="unknown setting 'optimiser' for acktr: it is a setting of dac, sac"):
        resolve("acktr", "maze", 0, {"optimiser": "sgd"})
