"""Any Gymnasium environment as a vector one, against plain loops and environments small enough to know."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import subprocess
import sys
import time
import traceback

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from dac.core.types import UsageError
from dac.envs.checked import NO_LIMIT
from dac.envs.gymnasium import GymnasiumEnvs, make_gymnasium
from dac.envs.host import HostStep
from dac.envs.mujoco import make_mujoco
from dac.envs.success import read_success

REALS = spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Count(gym.Env):
    """Observes (episode, step); step k of episode e pays 100 e + k; the `length`-th step ends the episode."""

    observation_space = REALS
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int = 3, ends: str = "terminated"):
        self.length, self.ends, self.episode, self.k, self.closed = length, ends, 0, 0, 0

    def observe(self):
        return np.array([self.episode, self.k], np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.k = 1 if seed is not None else self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        self.k += 1
        over = self.k >= self.length
        flags = (over and self.ends != "truncated", over and self.ends != "terminated")
        return self.observe(), 100.0 * self.episode + self.k, *flags, {}

    def close(self):
        self.closed += 1


class Noise(Count):
    """Every number, and the end of episodes, is drawn from the environment's own generator."""

    def observe(self):
        return self.np_random.standard_normal(2)

    def step(self, action):
        obs = self.observe() * (1 if action[0] > 0 else 2)
        return obs, float(obs.sum()), bool(self.np_random.random() < 0.2), bool(self.np_random.random() < 0.2), {}


class Echo(Count):
    """Observes the last action as it arrived."""

    def __init__(self, space: spaces.Box):
        super().__init__(length=1000)
        self.action_space = space
        self.observation_space = spaces.Box(-np.inf, np.inf, space.shape, np.float64)
        self.last = np.zeros(space.shape)

    def observe(self):
        return self.last

    def step(self, action):
        assert action.dtype == self.action_space.dtype
        assert action in self.action_space
        self.last = action.astype(np.float64)
        return super().step(action)


class Broken(Count):
    """Does something else in one of its steps: returns what `fault` makes of the right answer."""

    def __init__(self, fault, at: int = 3, length: int = 100):
        super().__init__(length)
        self.fault, self.at, self.total = fault, at, 0

    def step(self, action):
        self.total += 1
        answer = super().step(action)
        return self.fault(answer) if self.total == self.at else answer


class Of(Count):
    """`Count` with other spaces and a constant observation."""

    def __init__(self, observation_space=REALS, action_space=Count.action_space, obs=None, **attributes):
        super().__init__()
        self.observation_space, self.action_space, self.obs = observation_space, action_space, obs
        for name, value in attributes.items():
            setattr(self, name, value)

    def observe(self):
        return self.observation_space.sample() if self.obs is None else self.obs


def run(envs: GymnasiumEnvs, actions: np.ndarray) -> HostStep:
    """All steps, stacked in time."""
    return HostStep(*(np.stack(parts) for parts in zip(*(envs.step(action) for action in actions), strict=True)))


def draw_actions(envs: GymnasiumEnvs, steps: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, envs.num, envs.spec.action_size)).astype(np.float32)


def assert_same(left: HostStep, right: HostStep) -> None:
    for name, ours, theirs in zip(HostStep._fields, left, right, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        assert ours.dtype == theirs.dtype, name


def plain_loop(make, seed: int, actions: np.ndarray) -> HostStep:
    """One environment stepped as Gymnasium's documentation does it."""
    env, rows = make(), []
    env.reset(seed=seed)
    for action in actions:
        next_obs, reward, terminated, truncated, _ = env.step(action)
        obs = env.reset()[0] if terminated or truncated else next_obs
        rows.append((next_obs, reward, terminated, truncated and not terminated, obs))
    next_obs, reward, terminated, truncated, obs = (np.array(column) for column in zip(*rows, strict=True))
    return HostStep(
        next_obs.astype(np.float32), reward.astype(np.float32), terminated, truncated, obs.astype(np.float32)
    )


def row_of(step: HostStep, row: int) -> HostStep:
    return HostStep(*(part[:, row] for part in step))


def test_pendulum_is_a_plain_loops_bit_for_bit_here_and_in_processes():
    seeds = [3, 4, 5]
    here = make_gymnasium("Pendulum-v1", 3)
    assert (here.spec.obs_size, here.spec.action_size, here.horizon, here.cells) == (3, 1, 200, None)
    first = here.reset(seeds)
    actions = draw_actions(here, 450)  # the time-out, and the episodes after it, too
    steps = run(here, actions)
    assert [part.dtype for part in steps] == [np.float32, np.float32, np.bool_, np.bool_, np.float32]
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 1]), [199, 399])
    for row, seed in enumerate(seeds):
        np.testing.assert_array_equal(first[row], gym.make("Pendulum-v1").reset(seed=seed)[0])
        assert_same(row_of(steps, row), plain_loop(lambda: gym.make("Pendulum-v1"), seed, 2 * actions[:, row]))
    np.testing.assert_array_equal(here.visited_cells(), [-1, -1, -1])

    there = make_gymnasium("Pendulum-v1", 3, workers=2)
    assert len(multiprocessing.active_children()) == 2
    assert (there.spec, there.horizon, there.cells) == (here.spec, here.horizon, here.cells)
    np.testing.assert_array_equal(there.reset(seeds), first)
    assert_same(run(there, actions), steps)
    np.testing.assert_array_equal(there.visited_cells(), [-1, -1, -1])
    there.close()
    there.close()
    assert not multiprocessing.active_children()
    with pytest.raises(UsageError, match="these environments are closed"):
        there.step(actions[0])


def test_mujoco_tasks_are_the_vector_ones():
    envs, others = make_gymnasium("dac/SparseHopper-v0", 2), make_mujoco("SparseHopper", 2)
    assert (envs.spec, envs.horizon) == (others.spec, others.horizon)
    np.testing.assert_array_equal(envs.reset([1, 2]), others.reset([1, 2]))
    actions = draw_actions(envs, 150)
    steps = run(envs, actions)
    assert steps.terminated.any()
    assert_same(steps, run(others, actions))


@pytest.mark.parametrize("ends", ["terminated", "truncated", "both"])
def test_next_obs_is_before_the_reset_and_obs_after(ends):
    envs = make_gymnasium(lambda: Count(3, ends), 2)
    assert envs.horizon == NO_LIMIT
    np.testing.assert_array_equal(envs.reset([0, 1]), [[1, 0]] * 2)
    steps = row_of(run(envs, np.zeros((7, 2, 1))), 1)
    np.testing.assert_array_equal(steps.next_obs, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1)])
    np.testing.assert_array_equal(steps.obs, [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
    np.testing.assert_array_equal(steps.reward, [101, 102, 103, 201, 202, 203, 301])
    over = np.array([0, 0, 1, 0, 0, 1, 0], bool)
    np.testing.assert_array_equal(steps.terminated, over if ends != "truncated" else False)
    np.testing.assert_array_equal(steps.truncated, over if ends == "truncated" else False)  # a termination wins


def test_an_environment_depends_on_its_own_seed_and_actions_only():
    together = make_gymnasium(Noise, 3)
    together.reset([7, 8, 7])
    actions = draw_actions(together, 60)
    actions[:, 2] = actions[:, 0]
    steps = run(together, actions)
    assert steps.terminated.any()
    assert steps.truncated.any()
    for row, seed in enumerate([7, 8, 7]):
        assert_same(row_of(steps, row), plain_loop(Noise, seed, actions[:, row]))
    assert_same(row_of(steps, 0), row_of(steps, 2))
    assert (steps.next_obs[:, 0] != steps.next_obs[:, 1]).all()
    alone = make_gymnasium(Noise, 1)
    for _ in range(2):  # a reset with seeds begins anew
        alone.reset([np.int64(8)])
        assert_same(run(alone, actions[:, [1]]), HostStep(*(part[:, [1]] for part in steps)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_stretched_over_the_bounds(dtype):
    low = np.array([[-2.0, 0.1, -1e-12], [3.3, -1.0, 0.7]], dtype)
    high = np.array([[2.0, 0.3, 1e5], [3.4, 1.0, 0.7]], dtype)
    envs = make_gymnasium(lambda: Echo(spaces.Box(low, high, dtype=dtype)), 1)
    assert (envs.spec.obs_size, envs.spec.action_size) == (6, 6)
    envs.reset([0])
    echo = envs._rows._envs[0].env  # in its own precision, before the observation is rounded to float32
    for action, expected in ((-1.0, low), (1.0, high), (-7.0, low), (7.0, high)):
        envs.step(np.full((1, 6), action, np.float32))
        np.testing.assert_array_equal(echo.last, expected)
    envs.step(np.zeros((1, 6)))
    np.testing.assert_allclose(echo.last, (low.astype(np.float64) + high) / 2, rtol=1e-7)
    action = np.linspace(-0.9, 0.9, 6, dtype=np.float32)[None]
    step = envs.step(action)
    np.testing.assert_allclose(echo.last.ravel(), low.ravel() + (action[0] + 1.0) / 2 * (high - low).ravel(), rtol=1e-6)
    np.testing.assert_array_equal(step.next_obs[0], echo.last.ravel().astype(np.float32))
    # bounds of [-1, 1] change nothing, and symmetric ones are one multiplication
    tiny = np.float32(1.2345e-30)
    envs.step(np.full((1, 6), tiny))
    assert echo.last[1, 1] == tiny
    assert echo.last[0, 0] == 2 * tiny


def test_a_scalar_box_is_a_vector_of_one():
    envs = make_gymnasium(lambda: Echo(spaces.Box(-3, 1, (), np.float32)), 2)
    assert (envs.spec.obs_size, envs.spec.action_size) == (1, 1)
    envs.reset([0, 1])
    np.testing.assert_array_equal(envs.step(np.array([[0.5], [-1.0]])).next_obs, [[0.0], [-3.0]])


def test_dicts_and_tuples_are_laid_out_flat_as_gymnasium_does():
    box = functools.partial(spaces.Box, -5, 5)
    space = spaces.Dict(
        {
            "velocity": box((2, 2), np.float64),
            "flags": spaces.Box(0, 1, (3,), np.uint8),
            "arm": spaces.Tuple((box((), np.float32), spaces.Dict({"joint": box((2,), np.float16)}))),
        }
    )
    space.seed(0)
    samples = [space.sample() for _ in range(3)]
    envs = make_gymnasium(lambda: Of(space, obs=samples[0]), 1)
    assert envs.spec.obs_size == spaces.flatdim(space) == 10
    for sample in samples:
        envs._rows._envs[0].env.obs = sample
        np.testing.assert_array_equal(envs.reset([0])[0], spaces.flatten(space, sample).astype(np.float32))


def test_observations_belong_to_the_caller():
    buffer = np.zeros(2)
    envs = make_gymnasium(lambda: Of(obs=buffer), 1)
    obs = envs.reset([0])
    step = envs.step(np.zeros((1, 1)))
    buffer[:] = 1
    step.obs[:] = 2
    np.testing.assert_array_equal(obs, [[0, 0]])
    np.testing.assert_array_equal(step.next_obs, [[0, 0]])


def test_visits_are_counted_where_the_environment_says_how():
    class Cells(Count):
        visit_grid = (2, 3, 4)

        def visit_cell(self):
            return -1 if self.k == 2 else 4 * self.episode + self.k

    envs = make_gymnasium(lambda: TimeLimit(Cells(3), 10), 2)
    assert envs.cells == (2, 3, 4)
    assert envs.horizon == 10
    np.testing.assert_array_equal(envs.visited_cells(), [-1, -1])
    envs.reset([0, 1])
    np.testing.assert_array_equal(envs.visited_cells(), [4, 4])
    cells = [(envs.step(np.zeros((2, 1))), envs.visited_cells()[1])[1] for _ in range(4)]
    assert cells == [5, -1, 7, 9]  # the third is before the reset
    assert envs.visited_cells().dtype == np.int64


def test_horizon_of_a_wrapped_environment():
    assert make_gymnasium(lambda: gym.make("Pendulum-v1", max_episode_steps=17), 1).horizon == 17
    limits = iter([5, 9, 7])
    assert make_gymnasium(lambda: gym.wrappers.OrderEnforcing(TimeLimit(Count(), next(limits))), 3).horizon == 9


def test_a_module_can_register_its_environments(tmp_path, monkeypatch):
    (tmp_path / "walks.py").write_text(
        "import gymnasium\ngymnasium.register('Walk-v3', 'tests.envs.test_gymnasium:Count', max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert make_gymnasium("walks:Walk-v3", 1).horizon == 2
        with pytest.raises(UsageError, match="'walks:Walk' needs a version: 'Walk-v3' is the latest"):
            make_gymnasium("walks:Walk", 1)
    finally:
        gym.registry.pop("Walk-v3", None)
        sys.modules.pop("walks", None)


ACTIONS = Count.action_space
SAME = Count()


def raise_zero_division(*_):
    raise ZeroDivisionError("nothing to\ndivide by")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", r"actions must be real numbers, a Box of floats; the action space is Discrete\(2\)"),
        (lambda: Of(action_space=spaces.MultiDiscrete([2, 3])), r"the action space is MultiDiscrete\(\[2 3\]\)"),
        (lambda: Of(action_space=spaces.MultiBinary(2)), r"the action space is MultiBinary\(2\)"),
        (lambda: Of(action_space=spaces.Box(0, 9, (2,), np.int32)), r"Box of floats; .* Box\(0, 9, \(2,\), int32\)"),
        (lambda: Of(action_space=spaces.Dict(a=ACTIONS)), r"Box of floats; the action space is Dict\('a': Box"),
        (lambda: Of(action_space=None), "Box of floats; the action space is None"),
        (lambda: Of(action_space=spaces.Box(-np.inf, 1, (1,))), r"must have finite bounds; .* Box\(-inf, 1.0"),
        (lambda: Of(action_space=spaces.Box(-1, 1, (0,))), "observations and actions must not be empty; the observ"),
        (lambda: Of(spaces.Box(0, 255, (8, 8, 3), np.uint8)), r"images are not supported; .* Box\(0, 255, \(8, 8, 3"),
        (lambda: Of(spaces.Dict(a=REALS, b=spaces.Box(0, 255, (4, 4), np.uint8))), "images are not supported"),
        (lambda: Of(spaces.Discrete(16)), r"must be a Box, or a Dict or Tuple of Boxes; Discrete\(16\) is not"),
        (lambda: Of(spaces.Tuple((REALS, spaces.Discrete(3)))), r"Discrete\(3\) is not .*FlattenObservation"),
        (lambda: Of(spaces.Box(-1, 1, (0,))), "must not be empty"),
        (lambda: Of(spaces.Box(-np.arange(1, 400.0), 1, dtype=np.float64), None), "the action space is None"),
        (lambda: Of(visit_grid=(3, 0)), r"visit_grid must be a tuple of positive whole numbers; got \(3, 0\)"),
        (lambda: Of(visit_grid=(3, 2)), r"has a visit_grid and no method visit_cell\(\)"),
        ("Pendulm-v1", "no environment 'Pendulm-v1': Environment `Pendulm` doesn't exist. Did you mean: `Pendulum`"),
        ("Pendulum-v99", "no environment 'Pendulum-v99': .*version `v99`"),
        ("Pendulum", "'Pendulum' needs a version: 'Pendulum-v1' is the latest"),
        ("dac/Snake-v0", "no environment 'dac/Snake-v0': .*`Snake` doesn't exist in namespace dac"),
        ("nowhere_:X-v0", "no environment 'nowhere_:X-v0': No module named 'nowhere_'"),
        ("what is this?", "no environment 'what is this\\?': Malformed environment ID"),
        ("", "no environment '': Malformed environment ID"),
        (raise_zero_division, "environment 0 could not be made: ZeroDivisionError: nothing to divide by"),
        (lambda: "Pendulum-v1", "environment 0 is not a gymnasium.Env; env returned 'Pendulum-v1'"),
        (lambda: None, "environment 0 is not a gymnasium.Env; env returned None"),
        (lambda: SAME, "env returned the same environment twice; it must make a new one at every call"),
        (SAME, "env must be an id or a function that makes an environment; got <Count instance>"),
        (3, "env must be an id or a function that makes an environment; got 3"),
        (
            iter([Count(), Echo(ACTIONS)]).__next__,
            "all environments must be alike: environment 0 has 2 .* 1 has 1, Box",
        ),
    ],
)
def test_environments_that_cannot_be_used(env, message):
    with pytest.raises(UsageError, match=message) as error:
        make_gymnasium(env, 2)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_gymnasium(Count, 0), "num must be a whole number of at least 1; got 0"),
        (lambda: make_gymnasium(Count, 2.0), "num must be a whole number of at least 1; got 2.0"),
        (lambda: make_gymnasium(Count, 2, workers=-1), "workers must be a whole number of at least 0; got -1"),
        (lambda: make_gymnasium(Count, 2, workers=True), "workers must be a whole number of at least 0; got True"),
        (lambda: make_gymnasium(Count, 2, workers=1.0), "workers must be a whole number of at least 0; got 1.0"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def with_obs(obs):
    return lambda answer: (obs, *answer[1:])


def with_reward(reward):
    return lambda answer: (answer[0], reward, *answer[2:])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (with_obs(np.array([0.0, np.nan])), "observations must be finite in float32; entry 1 is nan"),
        (with_obs(np.array([-np.inf, np.nan])), "observations must be finite in float32; entry 0 is -inf"),
        (with_obs(np.array([0.0, 1e300])), r"observations must be finite in float32; entry 1 is 1e\+300"),
        (with_obs(np.zeros(3)), r"the observation has shape \(3,\); its space has \(2,\)"),
        (with_obs(np.zeros((1, 2))), r"the observation has shape \(1, 2\); its space has \(2,\)"),
        (with_obs(None), "the observation must be an array of numbers; got None"),
        (with_obs([[1.0], [1.0, 2.0]]), r"the observation must be an array of numbers; got \[\[1.0\], \[1.0, 2.0\]\]"),
        (with_obs("left"), "the observation must be an array of numbers; got 'left'"),
        (with_reward(float("nan")), "the reward must be finite in float32; got nan"),
        (with_reward(-np.inf), "the reward must be finite in float32; got -inf"),
        (with_reward(1e39), r"the reward must be finite in float32; got 1e\+39"),
        (with_reward(None), "the reward must be one number; got None"),
        (with_reward(np.zeros(2)), r"the reward must be one number; got array\(\[0., 0.\]\)"),
        (lambda answer: answer[:4], r"step must return \(obs, reward, terminated, truncated, info\)"),
    ],
)
def test_steps_that_cannot_be_used(fault, message):
    faults = iter([lambda answer: answer, fault])
    envs = make_gymnasium(lambda: Broken(next(faults)), 2)
    envs.reset([0, 1])
    for _ in range(2):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(UsageError, match=f"^environment 1, step 3: {message}") as error:
        envs.step(np.zeros((2, 1)))
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match=r"call reset\(seeds\) before step\(actions\)"):
        envs.step(np.zeros((2, 1)))
    envs.reset([0, 1])
    envs.step(np.zeros((2, 1)))


def test_rewards_may_be_arrays_of_one():
    envs = make_gymnasium(lambda: Broken(with_reward(np.array([2.5])), at=1), 1)
    envs.reset([0])
    assert envs.step(np.zeros((1, 1))).reward[0] == 2.5


@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (
            spaces.Dict(a=REALS, b=REALS),
            {"a": np.zeros(2)},
            "the observation has keys 'a'; its space has keys 'a', 'b'",
        ),
        (spaces.Dict(a=REALS), np.zeros(2), "the observation has ndarray; its space has keys 'a'"),
        (spaces.Dict(a=REALS), {"a": np.zeros(3)}, r"the observation\['a'\] has shape \(3,\); its space has \(2,\)"),
        (spaces.Tuple((REALS,)), (), r"the observation must be a tuple of 1; got \(\)"),
        (spaces.Tuple((REALS, REALS)), (np.zeros(2), np.zeros(1)), r"the observation\[1\] has shape \(1,\)"),
    ],
)
def test_resets_that_cannot_be_used(space, obs, message):
    envs = make_gymnasium(lambda: Of(space, obs=obs), 1)
    with pytest.raises(UsageError, match=f"^environment 0, reset: {message}"):
        envs.reset([0])


def test_a_bad_reset_is_told_from_a_bad_step():
    class Sick(Count):
        def observe(self):
            return super().observe() if self.episode == 1 else np.full(2, np.nan)

    envs = make_gymnasium(Sick, 1)
    envs.reset([0])
    with pytest.raises(UsageError, match=r"^environment 0, reset after step 3: .* entry 0 is nan"):
        run(envs, np.zeros((3, 1, 1)))

    class Old(Count):
        def reset(self, *, seed=None, options=None):
            return np.zeros(3)

    with pytest.raises(UsageError, match=r"^environment 0, reset: reset must return \(obs, info\)"):
        make_gymnasium(Old, 1).reset([0])

    class Lost(Count):
        visit_grid = (2, 2)

        def visit_cell(self):
            return 3 if self.k == 0 else 4

    envs = make_gymnasium(Lost, 1)
    envs.reset([0])
    with pytest.raises(UsageError, match=r"step 1: visit_cell\(\) must return an index from 0 to 3, or -1; got 4"):
        envs.step(np.zeros((1, 1)))


def test_bad_calls():
    envs = make_gymnasium(Count, 2)
    with pytest.raises(UsageError, match=r"call reset\(seeds\) before step"):
        envs.step(np.zeros((2, 1)))
    with pytest.raises(UsageError, match="2 environments, 3 seeds"):
        envs.reset([1, 2, 3])
    with pytest.raises(UsageError, match="a seed must be a whole number of at least 0; got -1"):
        envs.reset([1, -1])
    envs.reset([1, 2])
    with pytest.raises(UsageError, match=r"actions must have shape \(2, 1\)"):
        envs.step(np.zeros(2))
    with pytest.raises(UsageError, match="the action of environment 1 is"):
        envs.step(np.array([[0.0], [np.nan]]))
    envs.step(np.zeros((2, 1)))  # a bad argument is no failed step


def test_every_environment_is_closed_once():
    made: list[Count] = []

    def make() -> Count:
        made.append(Count())
        return made[-1]

    envs = make_gymnasium(make, 3)
    envs.close()
    envs.close()
    assert [env.closed for env in made] == [1, 1, 1]
    with pytest.raises(UsageError, match="these environments are closed"):
        envs.reset([0, 1, 2])

    made.clear()
    envs = make_gymnasium(make, 1)
    del envs
    gc.collect()
    assert made[0].closed == 1

    made.clear()
    spaces_of = iter([REALS, REALS, spaces.Discrete(2)])

    def make_last_wrong() -> Count:
        made.append(Of(next(spaces_of)))
        return made[-1]

    with pytest.raises(UsageError, match="Discrete"):
        make_gymnasium(make_last_wrong, 3)
    assert [env.closed for env in made] == [1, 1, 1]


class Trouble(Noise):
    """`Noise` whose first action says what goes wrong: 0.25 a NaN, 0.5 an exception, 0.75 the death of the process."""

    def step(self, action):
        if action[0] == 0.25:
            return np.array([np.nan, 0.0]), 0.0, False, False, {}
        if action[0] == 0.5:
            raise_zero_division()
        if action[0] == 0.75:
            os._exit(7)
        return super().step(action)


def test_trouble_in_processes():
    """A lambda travels; errors come back in their words; a worker that dies is named and takes the others with it."""
    here, there = make_gymnasium(Trouble, 4), make_gymnasium(lambda: Trouble(), 4, workers=2)
    actions = draw_actions(here, 40)
    for envs in (here, there):
        envs.reset([1, 2, 3, 4])
    assert_same(run(there, actions), run(here, actions))

    bad = np.zeros((4, 1))
    bad[2:] = 0.25
    for envs in (here, there):
        with pytest.raises(UsageError, match=r"^environment 2, step 41: .* entry 0 is nan"):
            envs.step(bad)
        with pytest.raises(UsageError, match=r"call reset\(seeds\)"):
            envs.step(bad)
        envs.reset([5, 6, 7, 8])
    assert_same(run(there, actions), run(here, actions))  # no answer was left in a pipe

    bad[2:] = 0.5
    for envs in (here, there):
        with pytest.raises(UsageError, match=r"^environment 2, step 41: ZeroDivisionError: nothing to div") as error:
            envs.step(bad)
        assert (error.value.row, error.value.when) == (2, "step 41")
        assert "in raise_zero_division" in "".join(traceback.format_exception(error.value.__cause__))

    there.reset([5, 6, 7, 8])
    bad[2:] = 0.75
    with pytest.raises(RuntimeError, match=r"^the worker process of environments? 2.* died with exit code 7$"):
        there.step(bad)
    assert not multiprocessing.active_children()
    with pytest.raises(UsageError, match="these environments are closed"):
        there.reset([5, 6, 7, 8])
    there.close()


def test_workers_end_without_close_and_stuck_ones_are_killed(monkeypatch):
    monkeypatch.setattr("dac.envs.workers.PATIENCE", 1.0)
    envs = make_gymnasium(functools.partial(Broken, lambda _: time.sleep(100), at=1), 1, workers=1)
    envs.reset([0])
    envs._rows._pipes[0].send(("step", np.zeros((1, 1), np.float32)))  # and nobody waits for the answer
    assert multiprocessing.active_children()
    del envs
    gc.collect()
    assert not multiprocessing.active_children()


def test_factories_that_fail_in_a_worker():
    with pytest.raises(UsageError, match=r"^environment 0 could not be made: ZeroDivisionError: nothing to divide by$"):
        make_gymnasium(raise_zero_division, 1, workers=1)
    assert not multiprocessing.active_children()
    here = sys._getframe()
    with pytest.raises(UsageError, match=r"env cannot be sent to another process: TypeError: .*ask for 0 workers"):
        make_gymnasium(lambda: Of(obs=here), 1, workers=1)
    assert not multiprocessing.active_children()


def test_a_script_without_a_guard_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from dac.envs.gymnasium import make_gymnasium\nmake_gymnasium('Pendulum-v1', 1, workers=1)\n")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert 'exit code 1; does the script start its work under `if __name__ == "__main__":`?' in result.stderr


class Says(Count):
    """Has in its info what is given for the step."""

    def __init__(self, *infos):
        super().__init__(length=100)
        self.infos = infos

    def step(self, action):
        return *super().step(action)[:4], self.infos[self.k - 1]


@pytest.mark.parametrize("key", ["success", "is_success", "solved", "goal_achieved"])
def test_success_is_read_from_info(key):
    """Under the names that packages use, as a flag, a number or an array of one; words and lists are none."""
    values = [False, True, np.float64(1.0), 0.0, np.array([1]), np.nan]
    infos = [{key: value} for value in values]
    assert [read_success(info) for info in infos] == [False, True, True, False, True, False]
    assert [read_success(info) for info in ({}, None, {key: "yes"}, {key: [1, 1]})] == [None] * 4
    with contextlib.closing(make_gymnasium(functools.partial(Says, {}, {key: True}, {}), 1)) as envs:
        envs.reset([0])
        answers = [(envs.step(np.zeros((1, 1))), envs.successes())[1] for _ in range(3)]
    assert answers[0] is None
    assert answers[1].tolist() == [True]
    assert answers[2] is None


def test_a_kitchen_is_done_when_nothing_is_left_to_do():
    assert [read_success({"tasks_to_complete": left}) for left in (["kettle"], [])] == [False, True]


def test_successes_of_worker_processes_are_those_of_this_one():
    make = functools.partial(Says, {}, {"success": True}, {})
    closing = contextlib.closing
    with closing(make_gymnasium(make, 3)) as here, closing(make_gymnasium(make, 3, workers=2)) as there:
        for envs in (here, there):
            envs.reset(range(3))
        for _ in range(3):
            here.step(np.zeros((3, 1)))
            there.step(np.zeros((3, 1)))
            np.testing.assert_array_equal(here.successes(), there.successes())
