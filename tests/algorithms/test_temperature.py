"""A learned beta: what an algorithm learns with, which way it moves, and where it ends if the answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import DAC, SAC, WithTemperature, make_algorithm
from dac.algorithms.base import Batch
from dac.config import resolve
from dac.core.types import EnvSpec, UsageError

SPEC = EnvSpec(obs_size=3, action_size=2)
SMALL = {"hidden": (8, 8), "batch_size": 16}


def make_batch():
    keys = jax.random.split(jax.random.key(7), 4)
    return Batch(
        obs=jax.random.normal(keys[0], (16, 3)),
        action=jnp.tanh(jax.random.normal(keys[1], (16, 2))),
        reward=jax.random.normal(keys[2], (16,)),
        terminated=jnp.zeros(16),
        truncated=jnp.zeros(16),
        next_obs=jax.random.normal(keys[3], (16, 3)),
    )


@pytest.mark.parametrize(("algorithm", "measured"), [(SAC, "policy_entropy"), (DAC, "mixture_entropy")])
@pytest.mark.parametrize(("given", "units"), [("auto", "reward"), ("entropy", "entropy")])
def test_the_algorithm_learns_with_the_present_beta_and_beta_follows_its_entropy(algorithm, measured, given, units):
    """The state is that of the same algorithm with this beta fixed; a first step of Adam has the size of its rate.

    Values are in units of reward unless others are asked for, since beta is about to change.
    """
    plain = algorithm(beta=0.3, learning_rate=1e-3, value_units=units, **SMALL)
    batch, key = make_batch(), jax.random.key(1)
    expected, plain_metrics = jax.jit(plain.update)(plain.init(jax.random.key(0), SPEC), batch, key)
    for target, direction in ((-50.0, -1), (50.0, 1)):
        adapting = WithTemperature(
            algorithm(beta=0.3, learning_rate=1e-3, value_units=given, **SMALL),
            entropy_target=target,
            beta_rate=2.0,
            temperature="adapt",
        )
        state, metrics = jax.jit(adapting.update)(adapting.init(jax.random.key(0), SPEC), batch, key)
        for one, other in zip(jax.tree.leaves(state.algorithm), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
        assert float(metrics["temperature"]) == pytest.approx(0.3, rel=1e-6)
        excess = float(plain_metrics[measured]) - 2 * target
        assert float(metrics["entropy_excess"]) == pytest.approx(excess, rel=1e-4)
        moved = float(state.temperature.model.log_beta) - np.log(0.3)
        assert moved == pytest.approx(direction * 2e-3, rel=1e-3)


def test_beta_stays_within_its_bounds():
    adapting = WithTemperature(
        SAC(beta=1e-6, learning_rate=1.0, **SMALL), entropy_target=-100.0, beta_rate=50.0, temperature="adapt"
    )
    state = adapting.init(jax.random.key(0), SPEC)
    state, _ = jax.jit(adapting.update)(state, make_batch(), jax.random.key(1))
    assert float(state.temperature.model.log_beta) == pytest.approx(np.log(1e-6), rel=1e-6)


def test_a_fixed_temperature_is_the_algorithm_itself():
    assert not isinstance(make_algorithm("sac", settings=SMALL), WithTemperature)
    given = resolve("dac", "maze", settings={"alpha": "adapt", "temperature": "adapt", "entropy_target": [-1.0, 0.5]})
    assert given.varied() == ["entropy_target"]
    without = resolve("dac", "maze")
    assert without.fingerprint() != resolve("dac", "maze", settings={"temperature": "adapt"}).fingerprint()
    for lonely in ({"entropy_target": -0.5}, {"beta_rate": [1.0, 2.0]}):
        with pytest.raises(UsageError, match="is for a beta that adapts: give `temperature=adapt`"):
            resolve("sac", "maze", settings=lonely)
    assert not {"entropy_target", "beta_rate"} & set(without.members()[0].hyper)
    with pytest.raises(UsageError, match="unknown setting 'temperature' for td3"):
        resolve("td3", "maze", settings={"temperature": "adapt"})


@pytest.mark.slow
def test_beta_finds_the_known_answer_from_both_sides(tmp_path):
    """See s, act a, earn -(a - s/2)^2: the best policy at beta is a normal one of variance beta / 2 (as long as it is
    narrow), its entropy log(pi e beta) / 2. So a target of h is held by beta = e^(2h) / (pi e)."""
    run = dac.train(
        "sac", "target", seeds=[0], beta=[0.001, 0.1], temperature="adapt", entropy_target=[-1.0, -1.5],
        learning_rate=1e-3, steps=15_000, eval_every=15_000, out=tmp_path / "run", progress=False,
    )  # fmt: skip
    found = np.asarray(run.metrics["temperature"][-1])
    targets = np.array([member.hyper["entropy_target"] for member in run.config.members()])
    for target in (-1.0, -1.5):
        known = np.exp(2 * target) / (np.pi * np.e)
        np.testing.assert_allclose(found[targets == target], known, rtol=0.4)


def test_joint_adaptation_runs_in_one_population(tmp_path):
    """Alpha and beta adapt together, from several starts, and a stopped run goes on with its beta."""
    small = {"steps": 120, "eval_every": 60, "random_steps": 20, "update_after": 40}
    run = dac.train(
        "dac", "target", seeds=[0], alpha="adapt", beta=[0.01, 1.0], temperature="adapt", out=tmp_path / "run",
        progress=False, hidden=(8, 8), batch_size=16, **small,
    )  # fmt: skip
    temperature = np.asarray(run.metrics["temperature"])
    assert temperature.shape == (2, 2)
    assert (abs(temperature[-1] - [0.01, 1.0]) > 1e-6).all()
    assert {"alpha_mean", "entropy_excess"} <= set(run.metrics)
