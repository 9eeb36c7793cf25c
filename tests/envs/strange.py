"""Environments as users bring them: some unusual, some that cannot be trained on. All observe two numbers."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

PAIR = spaces.Box(-1, 1, (2,))


class Plain(gym.Env):
    """Episodes of 20 steps with random observations; the base of the others."""

    observation_space: gym.Space = PAIR
    action_space: gym.Space = spaces.Box(-1, 1, (1,))
    limit = 20
    built = 0

    def __init__(self):
        type(self).built += 1

    def observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reward(self, action):
        return -float(np.square(action).sum())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        return self.observe(), self.reward(action), False, self.time == self.limit, {}


class DictObservations(Plain):
    observation_space = spaces.Dict(position=spaces.Box(-1, 1, (1,)), velocity=spaces.Box(-1, 1, (1,)))

    def observe(self):
        return {"position": np.zeros(1, np.float32), "velocity": np.ones(1, np.float32)}


class DoublePrecision(Plain):
    observation_space = spaces.Box(-1, 1, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float64)

    def observe(self):
        return self.np_random.uniform(-1, 1, 2)


class Asymmetric(Plain):
    """Raises where an action is not within its bounds."""

    action_space = spaces.Box(-0.25, 3.0, (1,))

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(action)


class NoTimeLimit(Plain):
    limit = None


class Succeeds(Plain):
    """Says of every step whether the task is done: only the seventh is, where the seed can be divided by three."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        lucky = self.np_random_seed % 3 == 0
        return obs, reward, terminated, truncated, info | {"success": float(lucky and self.time == 7)}


class SucceedsAtLast(Plain):
    """Speaks of success only where there is one, after so many steps of all its episodes that a run is under way."""

    total = 0

    def step(self, action):
        self.total += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | ({"is_success": True} if self.total > 50 else {})


class NaNRewards(Plain):
    def reward(self, action):
        return float("nan") if self.time == 10 else 0.0


class DiscreteActions(Plain):
    action_space = spaces.Discrete(3)


class SeveralDiscreteActions(Plain):
    action_space = spaces.MultiDiscrete([3, 2])


class BinaryActions(Plain):
    action_space = spaces.MultiBinary(4)


class ImagesAmongOthers(Plain):
    observation_space = spaces.Dict(camera=spaces.Box(0, 255, (3, 64, 64), np.uint8), joints=PAIR)


class DictActions(Plain):
    action_space = spaces.Dict(left=spaces.Box(-1, 1, (1,)), right=spaces.Box(-1, 1, (1,)))


class UnboundedActions(Plain):
    action_space = spaces.Box(-np.inf, np.inf, (1,))


class Images(Plain):
    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)


class DiscreteObservations(Plain):
    observation_space = spaces.Discrete(5)


class WrongShape(Plain):
    def observe(self):
        return np.zeros(3, np.float32)


class ResetWithoutSeed(Plain):
    def reset(self):
        return np.zeros(2, np.float32), {}


class OldReset(Plain):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Plain):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class FailsToBuild(Plain):
    def __init__(self):
        raise FileNotFoundError("no such model: robot.xml")


class SeveralAgents:
    """As PettingZoo's ParallelEnv is."""

    possible_agents = ("one", "two")

    def reset(self, seed=None, options=None):
        return {name: np.zeros(2) for name in self.possible_agents}, {}

    def step(self, actions): ...


class NoBase:
    observation_space, action_space = Plain.observation_space, Plain.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class FailsAtSeed(Plain):
    """Raises in the third step where it was given a certain seed."""

    def __init__(self, seed):
        super().__init__()
        self.bad = seed

    def step(self, action):
        if self.np_random_seed == self.bad and self.time == 2:
            raise LookupError("too late")
        return super().step(action)


class Drawn(DictObservations):
    """Draws a bar as long as the time, on 33 x 47 pixels; its bounds are checked as those of `Asymmetric`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium has it
    action_space = Asymmetric.action_space
    limit = None

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        image = np.zeros((33, 47, 3), np.uint8)
        image[:, : 1 + self.time % 46] = 255
        return image


class DrawnAsText(Drawn):
    def render(self):
        return "o--"


def make_without_drawing():
    return Drawn()


def make_for_films(**keywords):
    if keywords:
        raise OSError("no display")
    return Drawn()
