"""Environments of Gymnasium are saved by their attributes, and a trial says whether that is all there is to them."""

import collections
import contextlib
import dataclasses
import enum
import random
import socket
import threading
import weakref
import zlib
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from dac.core.errors import UsageError
from dac.envs import saving
from dac.envs.checked import CheckedEnv, try_saving
from dac.envs.gymnasium import make_gymnasium
from dac.envs.host import CannotSave
from dac.envs.saving import Capturer
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
    capturer = Capturer(env)
    env.reset(seed=0)
    small = len(capturer.capture())
    env.table[3] = 7
    assert small < 10_000 < len(capturer.capture())
    fresh = Everything()
    Capturer(fresh).restore(capturer.capture())
    assert fresh.table[3] == 7


@pytest.mark.parametrize(
    ("env", "why"),
    [
        (Engine, "env.engine is a Hidden, which is no plain data"),
        (Shared, "restored, they go another way after 0 steps"),
    ],
)
def test_what_is_hidden_is_found_out_and_said(env, why):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    envs = make_gymnasium(env, 2)
    assert envs.unsaved == why
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    for call in (envs.state, lambda: envs.restore({})):
        with pytest.raises(UsageError, match=f"these environments cannot be saved: {why}"):
            call()


def test_too_much_is_refused(monkeypatch):
    class Much(Plain):
        def reset(self, *, seed=None, options=None):
            self.bits = [np.random.default_rng(0).bytes(1), *([] for _ in range(50))]
            self.noise = np.random.default_rng(1).uniform(size=20_000)
            return super().reset(seed=seed)

    assert try_saving(Much) is None
    monkeypatch.setattr(saving, "MOST", 40)
    assert try_saving(Much) == "it holds more than 40 values"
    monkeypatch.setattr(saving, "MOST", 400)
    monkeypatch.setattr(saving, "HUGE", 1000)
    assert try_saving(Much) == "env.noise has 0 MiB"
    monkeypatch.setattr(saving, "HUGE", 2**26)
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


def test_an_environment_that_cannot_be_closed_twice_is_no_error():
    class Once(Plain):
        def __init__(self):
            super().__init__()
            self.client = len(clients)
            clients.add(self.client)

        def close(self):
            clients.remove(self.client)
            raise RuntimeError("not connected")

    clients: set[int] = set()
    assert try_saving(Once) is None
    assert not clients  # each closed its own: what belongs to a process was not restored


def test_an_environment_that_is_handed_out_again_is_left_alone():
    env = Plain()
    envs = make_gymnasium(lambda: env, 1)
    envs.reset([0])
    first = steps(envs, 0, 1)
    assert envs.unsaved == "the same environment is handed out at every call"
    assert len(first + steps(envs, 0, 1)) == env.time == 2


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


@dataclasses.dataclass(frozen=True)
class Level:
    gain: float


EASY, HARD = Level(0.1), Level(0.9)
"""Shared by all environments of the process."""


class Pair(NamedTuple):
    left: int
    right: int


class Goal:
    def __init__(self, place):
        self.place = place

    def near(self):
        return self.place

    def far(self):
        return 2 * self.place


class Late(Plain):
    """Changes at its 30th step, which matters from its 130th on: longer than a trial looks."""

    limit = 200

    def __init__(self):
        super().__init__()
        self.name = f"environment {id(self)}"  # not the same in another one
        self.thing = self.start()

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.thing = self.start()
        return answer

    def step(self, action):
        if self.time == 30:
            self.change()
        obs, *rest = super().step(action)
        return (obs * 0 + np.float32(0.1 * self.value()) if self.time > 130 else obs), *rest


def late(start, change, value):
    """An environment of that kind; `change` returns the thing that it has from then on."""

    class Made(Late):
        def start(self):
            return start()

        def change(self):
            self.thing = change(self.thing)

        def value(self):
            return value(self.thing)

    return Made


def put(thing, key, value):
    thing[key] = value
    return thing


def tree():
    root = {"n": 1}
    root["kid"] = {"root": root}
    return root


def grown(thing):
    thing["kid"]["root"]["n"] = 5
    return thing


def aimed():
    goals = [Goal(0), Goal(3), Goal(6)]
    return [goals[0], goals]  # first the one that is aimed at, then all of them


def aimed_at_the_second(thing):
    return [thing[1][1], thing[1]]


def moved(thing):
    thing[0][1] = 4  # one is a view of the other
    return thing


def viewed():
    whole = np.zeros(4)
    return [whole, whole[1:3]]


PLAIN = {
    "a shared constant": (lambda: EASY, lambda _: HARD, lambda t: t.gain),
    "one of several": (aimed, aimed_at_the_second, lambda t: t[0].place + sum(g.place for g in t[1]) / 10),
    "a named tuple": (lambda: Pair(1, 2), lambda t: t._replace(right=7), lambda t: t.right),
    "bytes": (lambda: b"a", lambda _: b"abc", len),
    "a complex number": (lambda: 1j, lambda _: 4 + 2j, abs),
    "a frozen set": (frozenset, lambda _: frozenset({1, 2}), len),
    "an ordered dictionary": (collections.OrderedDict, lambda t: put(t, 3, 4), len),
    "a counter": (collections.Counter, lambda t: t + collections.Counter("aab"), lambda t: t["a"]),
    "a dictionary with a default": (lambda: collections.defaultdict(int), lambda t: put(t, 1, 5), lambda t: t[1]),
    "times": (lambda: np.datetime64("2021-07-18"), lambda t: t + 3, lambda t: t.astype(int) % 7),
    "an array of strings": (lambda: np.array(["a"]), lambda _: np.array(["abc"]), lambda t: len(t[0])),
    "a large map": (lambda: np.zeros(20_000), lambda t: put(t, 5, 3.0), np.sum),
    "a view": (viewed, moved, lambda t: t[1][0]),
    "a method": (lambda: Goal(2).near, lambda t: t.__self__.far, lambda t: t()),
    "a circle": (tree, grown, lambda t: t["n"]),
    "generators of a generator": (
        lambda: np.random.default_rng(5),
        lambda t: (t.spawn(1), t)[1],
        lambda t: t.spawn(1)[0].uniform(),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_matters_later_than_a_trial_looks_comes_back(name):
    env = late(*PLAIN[name])
    assert try_saving(env) is None
    expected, found, _ = continued(env, count=250)
    np.testing.assert_array_equal(found, expected)
    assert (EASY.gain, HARD.gain) == (0.1, 0.9)
    assert len({tuple(row[:2]) for row in expected}) > 10


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (lambda: iter([1, 2]), "env.thing is a list_iterator, which is no plain data"),
        (lambda: np.array([None, 1]), "env.thing is a ndarray, which is no plain data"),
        (lambda: type("Own", (dict,), {})(), "env.thing is a Own, which is no plain data"),
        (lambda: [threading.Lock()], "env.thing[0] is a lock, which is no plain data"),
        (lambda: {"a": {1: socket.socket}}, None),
    ],
)
def test_what_is_no_plain_data_is_named(start, said):
    assert try_saving(late(start, lambda t: t, lambda t: 1)) == said


def test_looking_at_an_environment_harms_nobody():
    """Proxies to what is gone, arrays larger than any memory: it cannot be saved, and can be trained on."""

    class Gone:
        pass

    class Strange(Plain):
        def __init__(self):
            super().__init__()
            self.gone = weakref.proxy(Gone())
            self.wide = np.broadcast_to(np.zeros(1), (10**6, 10**6))

    envs = make_gymnasium(Strange, 1)
    envs.reset([0])
    assert envs.unsaved
    assert len(steps(envs, 0, 3)) == 3


def test_a_model_whose_options_change_is_saved():
    class Lighter(gym.Wrapper):
        def step(self, action):
            self.unwrapped.model.opt.gravity[2] += 0.01
            return self.env.step(action)

    def make():
        return Lighter(gym.make("InvertedPendulum-v5", disable_env_checker=True))

    expected, found, _ = continued(make, count=120)
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


def test_what_belongs_to_the_make_stays_out_of_checkpoints():
    """Also of those that are written after a restore, when objects have been replaced by copies."""

    class Client:
        def __init__(self):
            self.token, self.calls = "secret", 0

    class Connected(Plain):
        def __init__(self):
            super().__init__()
            self.client = Client()

        def step(self, action):
            self.client.calls += 1
            return super().step(action)

    one, other = (CheckedEnv(Connected, row, True) for row in range(2))
    for env in (one, other):
        env.reset(0)
    one.step(np.zeros(1, np.float32))
    before = other.env.client
    other.restore(one.capture())
    assert (other.env.client.calls, before.calls) == (1, 0)
    for env in (one, other):
        written = zlib.decompress(env.capture().packed)
        assert b"secret" not in written
        assert b"calls" in written
