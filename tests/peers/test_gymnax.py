"""gymnax's environments in our loop beside gymnax's own functions, called step by step."""

import functools

import gymnasium
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.core.types import UsageError
from dac.tasks import find_task

IDS = {"Pendulum-v1": 200, "MountainCarContinuous-v0": 999, "PointRobot-misc": 100}


@pytest.mark.parametrize("id", IDS)
def test_every_step_is_gymnaxs(id):
    """1200 random steps, new episodes with them: observations before the reset and after it, rewards, ends.

    Each step begins from our state: two programs round differently, and a pendulum would make more of it.
    """
    theirs, params = gymnax.make(id)
    env = find_task(f"jax:gymnax:{id}").device()
    space = theirs.action_space(params)

    @jax.jit
    def ours(state, action, key):
        return env.step(state, action, key)

    reset, step = (jax.jit(functools.partial(f, params=params)) for f in (theirs.reset_env, theirs.step_env))
    key = jax.random.key(7)
    state, obs = jax.jit(env.reset)(key)
    seen, own = reset(key)
    np.testing.assert_array_equal(obs, seen)
    elapsed, lengths = 0, []
    for number in range(1200):
        key, draw = jax.random.split(jax.random.fold_in(key, number))
        action = jax.random.uniform(draw, space.shape, jnp.float32, -1, 1)
        step_key, reset_key = jax.random.split(key)
        own = state.world.state
        state, now = ours(state, action, key)
        seen, own, reward, terminated, _ = step(step_key, own, action * jnp.float32(space.high))
        elapsed += 1
        truncated = bool(theirs.is_truncated(own, params)) and not terminated
        np.testing.assert_allclose(now.next_obs, seen, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(now.reward, reward, rtol=2e-6, atol=2e-6)
        assert (now.terminated, now.truncated) == (terminated, truncated)
        if terminated or truncated:
            lengths.append(elapsed)
            elapsed, (seen, _) = 0, reset(reset_key)
        np.testing.assert_allclose(now.obs, seen, rtol=2e-6, atol=2e-6)
    assert lengths
    assert max(lengths) <= IDS[id]


def test_the_pendulum_is_gymnasiums_too():
    """From the same angle and speed and with the same torques, over an episode."""
    env, own = find_task("jax:gymnax:Pendulum-v1").device(), gymnasium.make("Pendulum-v1").unwrapped
    state, _ = env.reset(jax.random.key(0))
    own.reset(seed=0)
    own.state = np.array([state.world.state.theta, state.world.state.theta_dot], float)
    for number in range(60):
        action = np.random.default_rng(number).uniform(-1, 1, 1).astype(np.float32)
        state, now = env.step(state, jnp.asarray(action), jax.random.key(number))
        obs, reward, *_ = own.step(2 * action)
        np.testing.assert_allclose(now.next_obs, obs, atol=2e-3)
        assert float(now.reward) == pytest.approx(reward, abs=2e-2)


def test_it_is_trained_on_from_a_pair_and_by_name(tmp_path):
    settings = {
        "steps": 60,
        "eval_every": 60,
        "hidden": (8, 8),
        "batch_size": 8,
        "random_steps": 20,
        "update_after": 20,
    }
    for number, task in enumerate([gymnax.make("MountainCarContinuous-v0"), "jax:gymnax:MountainCarContinuous-v0"]):
        run = dac.train("dac", task, out=tmp_path / str(number), **settings)
        assert run.metrics["length"].tolist() == [[999]]


@pytest.mark.parametrize("id", ["CartPole-v1", "Breakout-MinAtar"])
def test_discrete_actions_are_refused(id):
    with pytest.raises(UsageError, match="actions must be real numbers"):
        find_task(f"jax:gymnax:{id}").spec()
