"""`predict` takes observations as the environment gives them and returns actions as it takes them."""

import gymnasium as gym
import jax
import numpy as np
import pytest

import dac
from dac.api.prediction import Draws, Predictor
from dac.core.architectures import Architecture
from dac.core.networks import SquashedGaussianPolicy
from dac.core.types import EnvSpec
from dac.envs.bounds import ActionBounds
from dac.envs.gymnasium import make_gymnasium
from dac.envs.spaces import Spaces
from tests.api.test_models import TINY, Bow


@pytest.fixture(scope="module")
def bow():
    return dac.SAC(Bow, seed=1, **TINY)


def test_one_observation_and_a_batch_give_the_same_actions(bow):
    space = bow.observation_space
    several = [space.sample() for _ in range(5)]
    batch = {name: np.stack([one[name] for one in several]) for name in space.spaces}
    actions, state = bow.predict(batch)
    assert state is None
    assert actions.shape == (5, 2)
    assert actions.dtype == np.float64
    for one, action in zip(several, actions, strict=True):
        alone, _ = bow.predict(one)
        assert alone.shape == (2,)
        assert bow.action_space.contains(alone)
        np.testing.assert_allclose(alone, action, atol=1e-4)
    assert bow.predict({name: array[:1] for name, array in batch.items()})[0].shape == (1, 2)


def test_actions_are_those_of_training_in_the_environments_own_range(bow):
    """What the training loop's environments do with the network's action, predict does with it too."""
    policy = bow._agents.policies()
    one = jax.tree.map(lambda leaf: leaf[0], policy)
    obs = bow.observation_space.sample()
    flat = gym.spaces.flatten(bow.observation_space, obs).astype(np.float32)
    inside = np.asarray(one.act(flat, jax.random.key(0), explore=False))
    low, high = bow.action_space.low, bow.action_space.high
    np.testing.assert_allclose(bow.predict(obs)[0], low + (inside + 1) / 2 * (high - low), atol=1e-5)


def test_the_bounds_are_reached_exactly():
    space = gym.spaces.Box(np.array([0.1, -0.7]), np.array([0.7, 1 / 3]), dtype=np.float64)
    scale = ActionBounds.of(space).stretch
    np.testing.assert_array_equal(scale(np.array([-1.0, -1.0], np.float32)), space.low)
    np.testing.assert_array_equal(scale(np.array([1.0, 1.0], np.float32)), space.high)
    rows = scale(np.random.default_rng(0).uniform(-1.2, 1.2, (1000, 2)).astype(np.float32))
    assert rows.shape == (1000, 2)
    assert all(space.contains(row) for row in rows)


def test_a_robots_own_range_is_not_one():
    model = dac.SAC("HumanoidStandup", hidden=(8, 8))
    assert model.action_space.high.max() == pytest.approx(0.4)
    action, _ = model.predict(np.zeros(model.observation_space.shape), deterministic=False)
    assert model.action_space.contains(action)


def test_randomness_is_the_models_own_and_seeded(bow):
    obs = bow.observation_space.sample()
    np.testing.assert_array_equal(bow.predict(obs)[0], bow.predict(obs)[0])
    first, second = (bow.predict(obs, deterministic=False)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    same, other = dac.SAC(Bow, seed=1, **TINY), dac.SAC(Bow, seed=2, **TINY)
    draws = [np.stack([m.predict(obs, deterministic=False)[0] for _ in range(3)]) for m in (same, other)]
    np.testing.assert_array_equal(
        draws[0], np.stack([dac.SAC(Bow, seed=1, **TINY).predict(obs, deterministic=False)[0], *draws[0][1:]])
    )
    assert not np.array_equal(*draws)
    rows = {name: np.stack([array] * 3) for name, array in obs.items()}
    assert len(np.unique(bow.predict(rows, deterministic=False)[0], axis=0)) == 3


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"a": np.zeros(2)}, "the observation has keys 'a'; its space has keys 'a', 'b'"),
        (np.zeros(4), "the observation has ndarray; its space has keys 'a', 'b'"),
        ({"a": np.zeros(2), "b": np.zeros(2)}, r"the observation\['b'\] has shape \(2,\); its space has \(1, 2\)"),
        ({"a": np.zeros((3, 2)), "b": np.zeros((2, 1, 2))}, r"the observation\['b'\] has shape \(2, 1, 2\)"),
        ({"a": np.array(["x", "y"]), "b": np.zeros((1, 2))}, "must be an array of numbers"),
    ],
)
def test_a_wrong_observation_is_one_line(bow, obs, message):
    with pytest.raises(dac.UsageError, match=message) as caught:
        bow.predict(obs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("obs", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((4, 3)), 1.0, "left", None, [[1, 2], [3]]])
def test_a_wrong_array_is_one_line(obs):
    with pytest.raises(dac.UsageError, match=r"the observation (has shape|must be an array)") as caught:
        dac.DAC("maze", hidden=(8, 8)).predict(obs)
    assert "\n" not in str(caught.value)


class Vector:
    """The part of Stable-Baselines3's VecEnv that its evaluate_policy uses: batches, and resets by itself."""

    def __init__(self, count):
        self.envs = [gym.make("Pendulum-v1") for _ in range(count)]
        self.num_envs = count

    def reset(self):
        return np.stack([env.reset(seed=k)[0] for k, env in enumerate(self.envs)])

    def step(self, actions):
        assert actions.shape == (self.num_envs, 1)
        rows = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        obs, rewards, terminated, truncated, infos = map(list, zip(*rows, strict=True))
        dones = np.logical_or(terminated, truncated)
        obs = [env.reset()[0] if done else o for env, o, done in zip(self.envs, obs, dones, strict=True)]
        return np.stack(obs), np.array(rewards, np.float32), dones, infos


def test_the_calls_of_evaluate_policy_are_answered():
    """The loop of stable_baselines3.common.evaluation.evaluate_policy, with its arguments by their names."""
    model, env, episodes = dac.SAC("Pendulum-v1", **TINY), Vector(2), 2
    observations, states = env.reset(), None
    starts = np.ones((env.num_envs,), dtype=bool)
    totals, returns = np.zeros(env.num_envs), []
    while len(returns) < episodes:
        actions, states = model.predict(observations, state=states, episode_start=starts, deterministic=True)
        observations, rewards, starts, _ = env.step(actions)
        totals += rewards
        for k in np.flatnonzero(starts):
            returns.append(totals[k])
            totals[k] = 0
    assert states is None
    assert -2500 < np.mean(returns) < 0


def test_a_batch_of_any_size_shares_few_programs():
    spec = EnvSpec(3, 2)
    policy = SquashedGaussianPolicy(jax.random.key(0), spec, Architecture((4,)))
    predictor, draws = Predictor(policy, Spaces.flat(spec, ActionBounds.unit(2))), Draws(0)
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for count in range(1, 10):
        found = predictor(rows[:count], draws.key, draws.next(), deterministic=True)
        assert found.shape == (count, 2)
        np.testing.assert_allclose(found, np.tanh(np.stack([policy(row).mean for row in rows[:count]])), atol=1e-6)
    assert predictor._best._cache_size() <= 5  # 1, 2, 4, 8 and 16 rows


def test_nothing_is_made_anew_between_two_predictions(bow, monkeypatch):
    """What a prediction costs, it costs once: trees are flattened and programs found when the policy changes."""
    obs = bow.observation_space.sample()
    for deterministic in (True, False):
        bow.predict(obs, deterministic=deterministic)

    def refuse(*arguments, **named):
        raise AssertionError("a prediction flattened a tree")

    monkeypatch.setattr("dac.api.agents.Predictor", refuse)
    monkeypatch.setattr("dac.api.agents.Draws", refuse)
    monkeypatch.setattr(jax.tree, "flatten", refuse)
    for deterministic in (True, False):
        bow.predict(obs, deterministic=deterministic)


def test_a_policy_acts_in_a_real_environment_as_in_training():
    """The same episode through predict and Gymnasium as through the training loop's evaluation."""
    model = dac.SAC("Pendulum-v1", **TINY)
    from dac.core.keys import EVALUATE, env_seed

    found = model.evaluate(episodes=1)
    env = gym.make("Pendulum-v1")
    obs, _ = env.reset(seed=env_seed(0, EVALUATE, 2**31 - 1, 0))
    total, over = 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(model.predict(obs)[0])
        total, over = total + float(reward), terminated or truncated
    assert total == pytest.approx(found.mean, rel=1e-3)


def test_observations_are_laid_out_as_in_training():
    envs = make_gymnasium(Bow, 1)
    assert envs.spec.obs_size == 4
    envs.close()
