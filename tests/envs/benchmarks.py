"""Environments of the shape of benchmarks that are not installed here. Importing this module registers one of them."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Reaching(gym.Env):
    """As Meta-World: one of some goals is drawn before the seed is looked at, the goals when it is made; the
    environment truncates by itself, and `success` is a number."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Box(-1, 1, (2,), np.float32)
    limit = 25

    def __init__(self, seed=None):
        self.goals = np.random.default_rng(seed).uniform(-1, 1, (50, 2))

    def reset(self, *, seed=None, options=None):
        goal = self.goals[self.np_random.integers(50)]
        super().reset(seed=seed)
        self.place, self.goal, self.time = self.np_random.uniform(-1, 1, 2), goal, 0
        return np.concatenate([self.place, self.goal]), {}

    def step(self, action):
        self.time += 1
        self.place = np.clip(self.place + 0.1 * action, -1, 1)
        distance = np.linalg.norm(self.place - self.goal)
        info = {"success": float(distance < 0.3), "near_object": distance}
        return np.concatenate([self.place, self.goal]), 10 * np.exp(-distance), False, self.time >= self.limit, info


class DrawsTask(gym.Wrapper):
    """The wrapper of docs/benchmarks.md."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.unwrapped.np_random = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)


def make_reaching():
    return DrawsTask(Reaching(seed=0))


class Posing(gym.Env):
    """As MyoSuite: muscles from 0 to 1, a time limit of the registry's, dictionaries in `info`, and `solved`."""

    observation_space = spaces.Box(-10, 10, (4,), np.float32)
    action_space = spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angle = float(self.np_random.uniform(-1, 1))
        return self._observe(), {}

    def step(self, action):
        self.angle = float(np.clip(self.angle + 0.2 * (action[0] - action[1]), -1, 1))
        solved = np.bool_(abs(self.angle) < 0.2)
        info = {"rwd_dense": -abs(self.angle), "solved": solved, "rwd_dict": {"solved": solved}, "time": 0.0}
        return self._observe(), -abs(self.angle), False, False, info

    def _observe(self):
        return np.array([self.angle, abs(self.angle), 0, 0], np.float32)


gym.register("myoPretended-v0", entry_point=Posing, max_episode_steps=20)
