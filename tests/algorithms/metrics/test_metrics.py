"""Metrics of `--metrics`: right by hand, at no cost to training, and refused where they cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms.metrics import METRICS
from dac.algorithms.metrics.exploration import exploration
from dac.algorithms.metrics.reward_rate import reward_rate
from dac.core.networks import AbstractPolicy
from dac.core.types import Transition, UsageError

SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 120, "eval_every": 60, "update_after": 50, "random_steps": 30}
KEY = jax.random.key(0)


class Straying(AbstractPolicy):
    """Acts 0.5, and explores by adding 0.25 to the first of two entries."""

    def act(self, obs, key, *, explore):
        return jnp.array([0.75 if explore else 0.5, 0.5])


def batch(rewards):
    size = len(rewards)
    zeros = jnp.zeros(size)
    return Transition(
        jnp.zeros((size, 3)), jnp.zeros((size, 2)), jnp.array(rewards), zeros, zeros, jnp.zeros((size, 3))
    )


def test_reward_rate_counts_what_is_not_zero():
    assert float(reward_rate(Straying(), batch([0.0, 1.0, -2.0, 0.0, 0.0]), KEY)) == pytest.approx(0.4)


def test_exploration_is_the_mean_distance_per_entry():
    assert float(exploration(Straying(), batch([0.0, 0.0]), KEY)) == pytest.approx(0.125)


@pytest.mark.parametrize("algorithm", ["dac", pytest.param("rnd", marks=pytest.mark.slow)])
def test_metrics_are_columns_and_training_does_not_notice(tmp_path, algorithm):
    plain = dac.train(algorithm, "target", out=tmp_path / "plain", **SMALL)
    measured = dac.train(algorithm, "target", out=tmp_path / "measured", metrics=list(METRICS), **SMALL)
    assert set(measured.metrics) - set(plain.metrics) == set(METRICS)
    np.testing.assert_array_equal(measured.metrics["return"], plain.metrics["return"])
    # another program, so equal to the last digits and not to the bit
    one, other = (jax.tree.leaves(run.policies()) for run in (plain, measured))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert measured.metrics["reward_rate"][-1] == 1  # every step of the probe pays something
    assert (measured.metrics["exploration"][-1] > 0).all()
    assert measured.config.fingerprint() == plain.config.fingerprint()


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UsageError, match="metrics must be some of reward_rate, exploration, not 'rewards'"):
        dac.train("dac", "target", metrics=["rewards"])
    with pytest.raises(UsageError, match="ppo learns on-policy and takes no metrics"):
        dac.train("ppo", "target", metrics=["exploration"])
