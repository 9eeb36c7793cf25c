"""Stable-Baselines3 takes our models for policies, and our environments for environments."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import dac
from tests.api.test_models import TINY, Bow


@pytest.fixture(scope="module")
def model():
    return dac.SAC("Pendulum-v1", seed=1, **TINY).learn(60)


def returns(model, seed, episodes):
    """Returns of one environment's consecutive episodes, by a plain loop over Gymnasium."""
    env, found = gym.make("Pendulum-v1"), []
    obs, _ = env.reset(seed=seed)
    for _ in range(episodes):
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
            total, over = total + float(reward), terminated or truncated
        found.append(total)
        obs, _ = env.reset()
    return found


def test_evaluate_policy_finds_the_returns_of_a_plain_loop(model):
    env = Monitor(gym.make("Pendulum-v1"))
    env.reset(seed=7)
    vector = DummyVecEnv([lambda: env])
    vector.seed(7)
    found, lengths = evaluate_policy(model, vector, n_eval_episodes=2, return_episode_rewards=True)
    np.testing.assert_allclose(found, returns(model, 7, 2), rtol=1e-4)
    assert lengths == [200, 200]


def test_evaluate_policy_takes_one_environment_and_several(model):
    with pytest.warns(UserWarning, match="Monitor"):  # theirs, of an environment that counts nothing
        mean, std = evaluate_policy(model, gym.make("Pendulum-v1"), n_eval_episodes=2)
    assert -2500 < mean < 0 <= std
    vector = DummyVecEnv([lambda: Monitor(gym.make("Pendulum-v1"))] * 3)
    vector.seed(3)  # environment k has seed 3 + k, and one episode each
    found, _ = evaluate_policy(model, vector, n_eval_episodes=3, return_episode_rewards=True)
    np.testing.assert_allclose(np.sort(found), np.sort([returns(model, 3 + k, 1)[0] for k in range(3)]), rtol=1e-4)


def test_evaluate_policy_takes_a_dict_to_see_and_an_own_range_to_act_in():
    """The environment asserts that it is given actions of its own space and dtype."""
    vector = DummyVecEnv([lambda: Monitor(Bow())] * 2)
    for deterministic in (True, False):
        mean, _ = evaluate_policy(dac.SAC(Bow, **TINY), vector, n_eval_episodes=4, deterministic=deterministic)
        assert 0 <= mean <= 100


def test_evaluate_policy_takes_a_member_of_a_population():
    population = dac.Population(dac.SAC, "Pendulum-v1", seeds=range(2), **TINY).learn(60)
    vector = DummyVecEnv([lambda: Monitor(gym.make("Pendulum-v1"))])
    vector.seed(0)
    found, _ = evaluate_policy(population[1], vector, n_eval_episodes=1, return_episode_rewards=True)
    np.testing.assert_allclose(found, returns(population[1], 0, 1), rtol=1e-4)


@pytest.mark.parametrize("name", ["dac/SparseHopper-v0", "dac/FourRoomMaze-v0"])
def test_their_checker_passes_our_environments(name):
    check_env(gym.make(name), skip_render_check=True)
