"""Normalised observations and rewards: the statistics are those of what was seen, and go wherever the policy goes."""

import dataclasses

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import SAC, WithRewardScale, WithWhitening, make_algorithm, off_policy
from dac.algorithms.base import Batch
from dac.config import resolve
from dac.core import replay
from dac.core.networks import OBS_BOUND
from dac.core.normalise import Moments
from dac.core.population import grid, pick
from dac.core.types import EnvSpec, UsageError, float_dtype, unpack
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from dac.training.step import fresh_state, learn, watch
from tests.common import everything, schedule
from tests.training.test_host import hoppers, leaves, mazes
from tests.training.test_resume import TINY, files, killed_and_resumed

SETTINGS = {"hidden": (8, 8), "batch_size": 16, "normalise_obs": True, "normalise_reward": True}


def agent(**more):
    return make_algorithm("sac", settings=SETTINGS | more, envs=2)


def test_statistics_are_those_of_all_that_was_seen():
    """In a replay buffer that holds every raw row, with episodes that end: by a loop over them."""
    members = grid([0], {"gamma": [0.9, 0.99]})
    loop = HostLoop(agent(), hoppers, members, schedule(160, envs=2, capacity=160))
    loop.advance(80)
    states = loop.states
    for index, gamma in enumerate([0.9, 0.99]):
        rows = unpack(jnp.asarray(loop.latest_rows(0)[index]), loop.spec)
        moments = jax.tree.map(lambda leaf, i=index: np.asarray(leaf[i]), states.algorithm.moments)
        seen = np.asarray(rows.obs)
        assert moments.count == len(seen) == 158
        np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-3, atol=1e-6)
        sums, returns = [], np.zeros(2)
        over = np.asarray(rows.terminated + rows.truncated).reshape(-1, 2)
        for reward, end in zip(np.asarray(rows.reward).reshape(-1, 2), over, strict=True):
            returns = gamma * returns + reward
            sums.append(returns)
            returns = np.where(end > 0, 0, returns)
        assert over.sum() > 0
        np.testing.assert_allclose(states.moments.variance[index, 0], np.var(sums), rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(states.returns[index], returns, rtol=1e-4, atol=1e-6)
    loop.close()


def test_an_update_is_that_of_the_normalised_batch(x64):
    """While every reward was 0 they are left as they are."""
    variance = 4.0
    spec, rng = EnvSpec(3, 2), np.random.default_rng(0)
    plain = SAC(hidden=(8, 8), batch_size=16)
    wrapped = WithRewardScale(WithWhitening(plain, normalise_obs=True), 1, normalise_reward=True)
    state = wrapped.init(jax.random.key(0), spec)
    mean, spread = jnp.array([1.0, -5.0, 0.0]), jnp.array([4.0, 0.25, 1e-6])
    inner = dataclasses.replace(state.algorithm, moments=Moments(jnp.array(9.0), mean, spread))
    moments = Moments(jnp.array(9.0), jnp.zeros(1), jnp.full(1, variance))
    state = dataclasses.replace(state, algorithm=inner, moments=moments)
    obs, next_obs = rng.normal(size=(2, 16, 3))
    action, reward, zero = np.tanh(rng.normal(size=(16, 2))), rng.normal(size=16), np.zeros(16)
    batch = Batch(*map(jnp.asarray, (obs, action, reward, zero, zero, next_obs)))

    def by_hand(values):
        return jnp.asarray(np.clip((values - np.asarray(mean)) / np.sqrt(np.asarray(spread) + 1e-8), -10, 10))

    nothing = dataclasses.replace(state, moments=dataclasses.replace(moments, variance=jnp.zeros(1)))
    assert wrapped.scale(nothing) == 1
    divided = reward / np.sqrt(variance + 1e-8)
    seen = dataclasses.replace(batch, obs=by_hand(obs), next_obs=by_hand(next_obs), reward=jnp.asarray(divided))
    assert np.abs(seen.obs).max() == OBS_BOUND
    found, metrics = wrapped.update(state, batch, jax.random.key(1))
    expected, expected_metrics = plain.update(plain.init(jax.random.key(0), spec), seen, jax.random.key(1))
    for one, other in zip(leaves(found.algorithm.algorithm), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert metrics.keys() - expected_metrics.keys() == {"reward_scale"}
    key = jax.random.key(2)
    np.testing.assert_allclose(
        wrapped.policy(found).act(jnp.asarray(obs[0]), key, explore=True),
        plain.policy(expected).act(by_hand(obs)[0], key, explore=True),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_both_loops_and_both_places_of_the_replay_buffer_agree():
    members, sched = grid([0], {}), schedule(120, envs=2)
    loops = [DeviceLoop(agent(n_step=2), FourRoomMaze(), members, sched)]
    loops += [HostLoop(agent(n_step=2), mazes, members, sched, host_replay=place) for place in (False, True)]
    for loop in loops:
        loop.advance(60)
    device, *hosts = (leaves(loop.states) for loop in loops)
    for host in hosts:
        for one, other in zip(device, host, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=5e-3)
    for loop in loops:
        loop.close()


class Odd(gym.Env):
    """One of these, the first that is made, shows something that is no number at its 40th step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    made = 0

    def __init__(self):
        self.odd, self.steps = Odd.made == 0, 0
        Odd.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        shown = np.nan if self.odd and self.steps == 40 else self.np_random.normal()
        return np.array([shown, 1], np.float32), float(action[0]), False, self.steps % 7 == 0, {}


def test_a_number_that_is_none_stays_with_its_member(monkeypatch):
    """The other member's statistics are to the bit what they are without."""
    loops = []
    for made in (0, 1):
        monkeypatch.setattr(Odd, "made", made)
        algorithm = make_algorithm("sac", settings=SETTINGS)
        loops.append(
            HostLoop(algorithm, lambda n: make_gymnasium(Odd, n, check_finite=False), grid([0, 1], {}), schedule())
        )
        loops[-1].advance(80)
    assert list(loops[0].health.failures) == [0]
    assert loops[1].health.failures == {}
    one, other = (everything(loop, 1) for loop in loops)
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)
    assert all(np.isfinite(leaf).all() for leaf in leaves(pick(loops[0].policies(), 0)))
    for loop in loops:
        loop.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = TINY | {"steps": 100, "eval_every": 50, "checkpoint_every": 30, "seeds": [0]}
    settings |= {"normalise_obs": True, "normalise_reward": True, "time_limit": 30}
    return dac.train("sac", "SparseHopper", out=tmp_path_factory.mktemp("runs") / "whole", **settings), settings


def test_it_resumes_to_the_bit(run, tmp_path, monkeypatch):
    whole, settings = run
    parts = killed_and_resumed("sac", "SparseHopper", tmp_path / "parts", monkeypatch, 50, **settings)
    assert files(whole) == files(parts)


def test_a_saved_policy_normalises(run):
    """It is given the raw observation; for what is exported see tests/export/test_policies.py."""
    whole, _ = run
    policy = pick(whole.policies(), 0)
    obs = np.random.default_rng(0).normal(size=(5, 11)).astype(np.float32)
    seen = policy.moments.whiten(jnp.asarray(obs), OBS_BOUND)
    assert np.abs(seen - obs).max() > 0.5
    expected = np.asarray(jax.vmap(lambda o: policy.policy.act(o, jax.random.key(0), explore=False))(seen))
    np.testing.assert_allclose(whole.model(0).predict(obs)[0], expected, atol=1e-5)


@pytest.mark.parametrize("name", [*off_policy(), "dac-window"])
def test_every_off_policy_algorithm_takes_it(name):
    settings = SETTINGS | {"n_step": 3} | ({"q_window": 10} if name == "dac-window" else {})
    algorithm = make_algorithm(name.removesuffix("-window"), "maxent-state", settings, ["exploration"], envs=2)
    spec, rows = EnvSpec(obs_size=3, action_size=2), jnp.zeros((2, 11))

    def once(key):
        state = fresh_state(algorithm, key, spec)
        watched = watch(algorithm, state, rows.astype(float_dtype()), jnp.int32(5), spec)
        return state, learn(algorithm, watched, replay.empty(20, spec), key, jnp.int32(5), jnp.int32(10), spec, 2, 2)

    with jax.numpy_rank_promotion("raise"):
        before, after = jax.eval_shape(once, jax.random.key(0))
    assert jax.tree.structure(before) == jax.tree.structure(after)


def test_what_cannot_be_is_said_in_one_line():
    with pytest.raises(UsageError, match=r"normalise_obs counts what a run sees .* takes no init_replay"):
        resolve("sac", "maze", 0, {"normalise_obs": True, "init_replay": "minari:a/b-v0"})
    with pytest.raises(UsageError, match="unknown setting 'normalise_obs' for ppo: it is a setting of dac, sac"):
        resolve("ppo", "maze", 0, {"normalise_obs": True})
    off = {"normalise_obs": False, "normalise_reward": False}
    assert resolve("sac", "maze", 0, off).fingerprint() == resolve("sac", "maze", 0).fingerprint()
    assert isinstance(resolve("sac", "maze", 0, off).make_algorithm(), SAC)
