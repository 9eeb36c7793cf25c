"""Noise on rewards: how it is distributed, that it stays with its transition or not, and that nothing else changes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import dac
from dac.algorithms import SAC, WithReturns, WithRewardNoise, make_algorithm
from dac.algorithms.base import Batch, Following
from dac.algorithms.reward_noise import noise_of
from dac.config import resolve
from dac.core.types import EnvSpec, Transition, UsageError

SPEC = EnvSpec(obs_size=2, action_size=2)
TINY = {"hidden": (8, 8), "batch_size": 16}


def transitions(*shape, seed=0):
    rng = np.random.default_rng(seed)
    zeros = jnp.zeros(shape)
    return Transition(
        obs=jnp.array(rng.uniform(0, 100, (*shape, 2)), jnp.float32),
        action=jnp.array(rng.uniform(-1, 1, (*shape, 2)), jnp.float32),
        reward=zeros,
        terminated=zeros,
        truncated=zeros,
        next_obs=jnp.array(rng.uniform(0, 100, (*shape, 2)), jnp.float32),
    )


def batch(*shape, **more):
    return Batch(**vars(transitions(*shape)), **more)


class Seen(SAC):
    """Hands out the rewards it was given instead of learning."""

    def update(self, state, batch, key):
        return state, {"reward": batch.reward}


def rewards(kind, scale, seen, key=1, seed=0):
    agent = WithRewardNoise(Seen(**TINY), reward_noise=kind, reward_noise_scale=scale)
    state = agent.init(jax.random.key(seed), SPEC)
    return np.asarray(agent.update(state, seen, jax.random.key(key))[1]["reward"])


@pytest.mark.parametrize("kind", ["fresh", "stored"])
def test_the_noise_is_normal_and_has_its_scale(kind):
    noise = rewards(kind, 3.0, batch(4000)) / 3
    assert scipy.stats.kstest(noise, "norm").pvalue > 0.001
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.06


def test_stored_noise_stays_with_its_transition_and_fresh_noise_does_not():
    same = [rewards("stored", 1.0, batch(64), key) for key in (1, 2)]
    np.testing.assert_array_equal(*same)
    backwards = jax.tree.map(lambda x: x[::-1], batch(64))
    np.testing.assert_array_equal(rewards("stored", 1.0, backwards), same[0][::-1])
    fresh = [rewards("fresh", 1.0, batch(64), key) for key in (1, 2)]
    assert (fresh[0] != fresh[1]).all()


def test_members_have_other_noise():
    assert abs(np.corrcoef(*(rewards("stored", 1.0, batch(500), seed=seed) for seed in (0, 1)))[0, 1]) < 0.15


def test_near_transitions_have_other_noise():
    """One entry differs by one unit in the last place."""
    seen = transitions(300)
    near = dataclasses.replace(seen, obs=jnp.nextafter(seen.obs, jnp.inf).at[:, 1].set(seen.obs[:, 1]))
    noise = [jax.vmap(lambda t: noise_of(t, jnp.uint32(7)))(each) for each in (seen, near)]
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.2


def test_the_steps_that_follow_have_the_noise_they_would_have_alone():
    """A sum of n rewards holds the noise of each of its transitions."""
    later = transitions(5, 2, seed=3)
    seen = batch(5, following=Following(later, jnp.zeros((5, 2), bool)))
    given = {}

    class Watch(Seen):
        def update(self, state, batch, key):
            given["later"] = batch.following.transitions.reward
            return state, {"reward": batch.reward}

    agent = WithRewardNoise(Watch(**TINY), reward_noise="stored", reward_noise_scale=2.0)
    state = agent.init(jax.random.key(0), SPEC)
    agent.update(state, seen, jax.random.key(1))
    alone = [rewards("stored", 2.0, Batch(**vars(jax.tree.map(lambda x, i=i: x[:, i], later)))) for i in (0, 1)]
    np.testing.assert_array_equal(given["later"], np.stack(alone, axis=1))


@pytest.mark.parametrize("kind", ["fresh", "stored"])
def test_without_scale_it_is_the_algorithm_itself(kind):
    plain = SAC(**TINY)
    noisy = WithRewardNoise(SAC(**TINY), reward_noise=kind, reward_noise_scale=0.0)
    key = jax.random.key(3)
    expected, _ = jax.jit(plain.update)(plain.init(key, SPEC), batch(16), key)
    found, _ = jax.jit(noisy.update)(noisy.init(key, SPEC), batch(16), key)
    for one, other in zip(jax.tree.leaves(found.algorithm), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_is_off_unless_asked_for_and_stands_outside_of_everything():
    assert not isinstance(make_algorithm("sac", settings=TINY), WithRewardNoise)
    made = make_algorithm("dac", "novelty", {"n_step": 3, "reward_noise": "fresh", **TINY})
    assert isinstance(made, WithRewardNoise)
    assert isinstance(made.algorithm.algorithm, WithReturns)
    plain, asked = resolve("sac", "maze"), resolve("sac", "maze", settings={"reward_noise": "stored"})
    assert plain.fingerprint() != asked.fingerprint()
    assert "reward_noise_scale" not in plain.members()[0].hyper
    swept = resolve("sac", "maze", settings={"reward_noise": "fresh", "reward_noise_scale": [0.0, 1.0]})
    assert swept.varied() == ["reward_noise_scale"]
    with pytest.raises(UsageError, match="is for noise on rewards: give `reward_noise=fresh`"):
        resolve("sac", "maze", settings={"reward_noise_scale": 2.0})
    with pytest.raises(UsageError, match="reward_noise must be one of none, fresh, stored, not 'pink'"):
        resolve("sac", "maze", settings={"reward_noise": "pink"})


def test_one_population_holds_several_scales_and_goes_on_as_it_was(tmp_path):
    small = {"eval_every": 60, "random_steps": 20, "update_after": 40, "progress": False, **TINY}
    noise = {"reward_noise": "stored", "reward_noise_scale": [0.0, 1.0]}
    whole = dac.train("sac", "maze", seeds=[0], steps=120, out=tmp_path / "whole", **noise, **small)
    assert len(set(whole.metrics["q_mean"][-1])) == 2
    dac.train("sac", "maze", seeds=[0], steps=60, out=tmp_path / "parts", **noise, **small)
    parts = dac.resume(tmp_path / "parts", steps=120, progress=False)
    np.testing.assert_array_equal(parts.metrics["q_mean"][-1], whole.metrics["q_mean"][-1])
