"""The wrappers on an environment small enough to know every number of."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

from dac.core.types import UsageError
from dac.envs.wrappers import DelayedReward, SparseReward


class Walk(gym.Env):
    """One step right each time; step k of episode e pays 100 e + k; the `length`-th step ends the episode."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int = 7):
        self.length, self.episode, self.x = length, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.x = self.episode + 1, 0
        return np.array([0.0]), {"x_position": 0.0}

    def step(self, action):
        self.x += 1
        reward = 100.0 * self.episode + self.x
        return np.array([float(self.x)]), reward, self.x >= self.length, False, {"x_position": float(self.x)}


ACTION = np.zeros(1, np.float32)


def rewards_of(env: gym.Env, episodes: int = 2) -> list[float]:
    rewards = []
    for _ in range(episodes):
        env.reset()
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(ACTION)
            rewards.append(reward)
            over = terminated or truncated
    return rewards


@pytest.mark.parametrize("coordinate", ["x_position", lambda env: env.x])
def test_sparse(coordinate):
    assert rewards_of(SparseReward(Walk(5), 2.0, coordinate), 1) == [0, 0, 1, 1, 1]
    assert rewards_of(SparseReward(Walk(5), 2.0, coordinate, origin=1.5), 1) == [0, 0, 0, 1, 1]


def test_sparse_reads_qpos_of_a_mujoco_environment():
    env = SparseReward(gym.make("Hopper-v5"), 0.2, 1)  # the height, above its initial 1.25
    env.reset(seed=0)
    data = env.unwrapped.data
    data.qpos[1] = 1.5
    assert env.step(np.zeros(3, np.float32))[1] == 1.0
    data.qpos[1] = 1.4
    assert env.step(np.zeros(3, np.float32))[1] == 0.0


def test_delayed_pays_at_the_end_of_an_episode_too():
    paid = rewards_of(DelayedReward(Walk(7), 3))
    assert paid == [0, 0, 306, 0, 0, 315, 107, 0, 0, 606, 0, 0, 615, 207]


def test_delayed_pays_at_a_time_out():
    paid = rewards_of(DelayedReward(TimeLimit(Walk(7), 5), 3))
    assert paid == [0, 0, 306, 0, 209, 0, 0, 606, 0, 409]
    assert sum(paid[:5]) == sum(rewards_of(TimeLimit(Walk(7), 5), 1))


def test_delayed_forgets_an_abandoned_episode():
    env = DelayedReward(Walk(7), 2)
    env.reset()
    env.step(ACTION)
    env.reset()
    assert [env.step(ACTION)[1] for _ in range(2)] == [0, 403]


def test_delay_of_one_changes_nothing():
    assert rewards_of(DelayedReward(Walk(4), 1)) == rewards_of(Walk(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DelayedReward(Walk(), 0), "delay must be a whole number of at least 1; got 0"),
        (lambda: DelayedReward(Walk(), True), "delay must be a whole number of at least 1; got True"),
        (lambda: SparseReward(Walk(), float("inf"), "x_position"), "threshold must be a finite number; got inf"),
        (lambda: SparseReward(Walk(), "far", "x_position"), "threshold must be a finite number; got 'far'"),
        (lambda: SparseReward(Walk(), 1.0, 0), "is not a MuJoCo environment"),
        (lambda: SparseReward(Walk(), 1.0, 1.5), "coordinate must be an index into qpos, a key of info or a callable"),
        (lambda: SparseReward(gym.make("Hopper-v5"), 1.0, 6), "coordinate must be between 0 and 5; got 6"),
        (lambda: rewards_of(SparseReward(Walk(), 1.0, "y")), "info has no 'y'; it has x_position"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(UsageError, match=message):
        make()
