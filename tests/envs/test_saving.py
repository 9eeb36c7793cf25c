"""Environments of Gymnasium are saved by their attributes, and a trial says whether that is all there is to them."""

import collections
import contextlib
import enum
import random

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from dac.core.errors import UsageError
from dac.envs import saving
from dac.envs.checked import CheckedEnv, try_saving
from dac.envs.gymnasium import make_gymnasium
from dac.envs.saving import CannotSave, Capturer
from tests.envs.strange import Plain


class Phase(enum.Enum):
    OUT = 1
    BACK = 2


class Part:
    def __init__(self, owner):
        self.owner = owner  # a way back
        self.history = collections.deque(maxlen=3)
        self.seen = set()


class Everything(Plain):
    """An environment whose next step depends on data of every kind, some of it shared, some of it there only later."""

    def __init__(self):
        super().__init__()
        self.part, self.spare = Part(self), {1: [0.0], "two": (1, None)}
        self.position = np.zeros(2)
        self.same = self.position
        self.phase, self.legacy, self.python = Phase.OUT, np.random.RandomState(), random.Random()
        self.table = np.arange(20_000.0)  # never changes
        self.scale = np.float32(1.5)
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.legacy.seed(seed)
            self.python.seed(seed)
            self.episodes = 0
        self.episodes += 1
        self.phase = Phase.BACK if self.episodes % 2 else Phase.OUT
        self.position[:] = 0
        vars(self).pop("late", None)
        return super().reset(seed=seed)

    def step(self, action):
        self.same += self.phase.value * float(action[0])  # seen through the other name
        self.part.history.append(float(self.position[0]))
        self.part.owner.spare[1] = [sum(self.part.history), *self.spare[1]][:4]
        self.part.seen.add(round(self.python.random(), 1))
        self.late = getattr(self, "late", 0) + 1
        return super().step(action)

    def observe(self):
        noise = self.legacy.uniform() + self.python.random() + self.np_random.normal() + len(self.part.seen)
        past = sum(self.spare[1]) + self.episodes + getattr(self, "late", 0) + self.table[3]
        return np.tanh([0.1 * (self.position[0] + noise), 0.01 * self.scale * past]).astype(np.float32)


class Hidden:
    """Out of Python's sight, as an engine in C++ is."""

    __slots__ = ("value",)


class Engine(Plain):
    def __init__(self):
        super().__init__()
        self.engine = Hidden()

    def reset(self, *, seed=None, options=None):
        self.engine.value = 0.0
        return super().reset(seed=seed)

    def step(self, action):
        self.engine.value += 0.01
        return super().step(action)

    def observe(self):
        return super().observe() * 0 + np.float32(self.engine.value)


class Shared(Plain):
    """Draws from the generator that everything in the process shares."""

    def observe(self):
        return np.random.uniform(-1, 1, 2).astype(np.float32)  # noqa: NPY002


def steps(envs, seed, count=60):
    actions = np.random.default_rng(seed).uniform(-1, 1, (count, envs.num, envs.spec.action_size)).astype(np.float32)
    return [np.concatenate([np.ravel(part).astype(np.float64) for part in envs.step(row)]) for row in actions]


def continued(env, workers=0, more_workers=0, count=60):
    """What environments do after they were saved in the middle of episodes, and what others do that are restored."""
    with contextlib.closing(make_gymnasium(env, 3, workers=workers)) as envs:
        envs.reset([1, 2, 3])
        steps(envs, 0, 33)
        state = envs.state()
        latest, expected = envs.state()["obs"], steps(envs, 1, count)
    with contextlib.closing(make_gymnasium(env, 3, workers=more_workers)) as others:
        others.reset([4, 5, 6])
        steps(others, 2, 7)
        np.testing.assert_array_equal(others.restore(state), latest)
        return expected, steps(others, 1, count), state


def test_data_of_every_kind_comes_back():
    assert try_saving(Everything) is None
    expected, found, _ = continued(Everything)
    np.testing.assert_array_equal(found, expected)
    assert np.std(expected, axis=0).max() > 0.1  # it does depend on what it was given


def test_shared_arrays_stay_shared_and_what_was_not_there_goes():
    one, other = Everything(), Everything()
    for env, count in ((one, 0), (other, 5)):
        env.reset(seed=count)
        for _ in range(count):
            env.step(np.ones(1))
    Capturer(other).restore(Capturer(one).capture())
    assert other.same is other.position
    assert other.part.owner is other
    assert not hasattr(other, "late")
    assert other.phase is Phase.BACK
    assert other.part.history.maxlen == 3
    assert type(other.scale) is np.float32


def test_what_has_not_changed_is_not_written():
    env = Everything()
    env.reset(seed=0)
    capturer = Capturer(env)
    small = len(capturer.capture())
    env.table[3] = 7
    assert small < 10_000 < len(capturer.capture())
    fresh = Everything()
    Capturer(fresh).restore(capturer.capture())
    assert fresh.table[3] == 7


@pytest.mark.parametrize(("env", "why"), [(Engine, "go another way after 0 steps"), (Shared, "go another way after 0")])
def test_what_is_hidden_is_found_out_and_said(env, why):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    envs = make_gymnasium(env, 2)
    assert why in envs.unsaved
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    for call in (envs.state, lambda: envs.restore({})):
        with pytest.raises(UsageError, match=f"these environments cannot be saved: restored, they {why}"):
            call()


def test_too_much_is_refused(monkeypatch):
    class Much(Plain):
        def reset(self, *, seed=None, options=None):
            self.bits = [np.random.default_rng(0).bytes(1), *([] for _ in range(50))]
            self.noise = np.random.default_rng(1).uniform(size=20_000)
            return super().reset(seed=seed)

    assert try_saving(Much) is None
    monkeypatch.setattr(saving, "MOST", 40)
    assert try_saving(Much) == "it has more than 40 objects"
    monkeypatch.setattr(saving, "MOST", 400)
    monkeypatch.setattr(saving, "LARGEST", 1000)
    assert "its state has 0 MiB, more than" in try_saving(Much)


def test_an_environment_that_fails_in_the_trial_is_not_saved_and_closed():
    class Fails(Plain):
        open = 0

        def __init__(self):
            super().__init__()
            Fails.open += 1

        def step(self, action):
            raise RuntimeError("no licence")

        def close(self):
            Fails.open -= 1

    assert "no licence" in try_saving(Fails)
    assert Fails.open == 0


def test_another_make_is_refused():
    class Other(Plain):
        def __init__(self):
            super().__init__()
            self.part = Everything()

    class Less(Plain):
        part = None

    captured = CheckedEnv(Other, 0, True).capture()
    with pytest.raises(CannotSave, match=r"env is a .*Less and was a .*Other"):
        CheckedEnv(Less, 0, True).restore(captured)
    with pytest.raises(CannotSave, match="Error"):
        CheckedEnv(Other, 0, True).restore(captured._replace(packed=b"damaged"))
    envs = make_gymnasium(Plain, 2)
    with pytest.raises(UsageError, match=r"call reset\(seeds\) before state"):
        envs.state()
    envs.reset([0, 1])
    state = envs.state()
    with pytest.raises(UsageError, match="the state has no 'sizes'"):
        envs.restore({})
    for wrong in (state["captured"][1:], state["captured"][:, :9], state["captured"].astype(int)):
        with pytest.raises(UsageError, match=r"'captured' of the state must have 2 rows of \d+ bytes"):
            envs.restore(state | {"captured": wrong})


def test_worker_processes_save_the_same():
    expected, found, state = continued("Pendulum-v1", workers=2, more_workers=0)
    np.testing.assert_array_equal(found, expected)
    here, _, alike = continued("Pendulum-v1", workers=0, more_workers=3)
    np.testing.assert_array_equal(here, expected)
    for name, array in state.items():
        np.testing.assert_array_equal(alike[name], array, err_msg=name)


class Draws(gym.Env):
    """Draws its observations from its own space, whose generator is there only once it was asked for."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.observation_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_a_space_that_is_drawn_from_is_saved():
    expected, found, _ = continued(Draws)
    np.testing.assert_array_equal(found, expected)


slow = pytest.mark.slow
ROBOTS = ["FetchPush-v4", pytest.param("FetchSlide-v4", marks=slow), pytest.param("HandReach-v3", marks=slow)]
ROBOTS += [pytest.param(f"AdroitHand{name}-v1", marks=slow) for name in ("Hammer", "Pen", "Relocate")]
ROBOTS += [pytest.param(f"HandManipulate{name}-v1", marks=slow) for name in ("Block", "Egg", "Pen")]
ROBOTS += [pytest.param("FrankaKitchen-v1", marks=slow), "AdroitHandDoor-v1"]


@pytest.mark.parametrize("id", ROBOTS)
def test_robots_with_goals_and_tools_come_back_to_the_bit(id):
    """Over the ends of episodes of 50 steps: goals, what was drawn into the model, and what MuJoCo computed before."""
    expected, found, _ = continued(id, count=120)
    np.testing.assert_array_equal(found, expected)
