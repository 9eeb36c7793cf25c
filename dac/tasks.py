"""Every task by name: how to make it, and the defaults the paper uses there."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from dac.envs.base import AbstractDeviceEnv
from dac.envs.host import AbstractHostEnvs
from dac.types import EnvSpec, UsageError


@dataclasses.dataclass(frozen=True)
class Task:
    """A task with its defaults; what a user gives comes before them, what they leave out comes from the algorithm.

    Exactly one of `device` (an environment inside the compiled program) and `host` (so many environments on the
    CPU) is given; it decides which loop trains.
    """

    name: str
    summary: str
    device: Callable[[], AbstractDeviceEnv] | None = None
    host: Callable[[int], AbstractHostEnvs] | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hyper: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def spec(self) -> EnvSpec:
        if self.device is not None:
            return self.device().spec
        assert self.host is not None
        envs = self.host(1)
        envs.close()
        return envs.spec


def _maze() -> AbstractDeviceEnv:
    from dac.envs.maze import FourRoomMaze

    return FourRoomMaze()


def _target() -> AbstractDeviceEnv:
    from dac.envs.probes import Target

    return Target()


def _mujoco(name: str, summary: str, steps: int, beta: float, random_steps: int) -> Task:
    """A MuJoCo task with the settings of Table D.2, Han & Sung 2021, and the training lengths of the authors' code."""

    def make(num: int) -> AbstractHostEnvs:
        from dac.envs.mujoco import make_mujoco

        return make_mujoco(name, num)

    training = {"steps": steps, "random_steps": random_steps}
    return Task(name, summary, host=make, training=training, hyper={"beta": beta})


def _mujoco_tasks() -> list[Task]:
    million = 1_000_000
    slow_start = {"HalfCheetah": 10_000, "Ant": 10_000}  # uniform steps in the authors' code; 1000 elsewhere
    sparse = {"HalfCheetah": (5, 0.02, 1), "Hopper": (1, 0.04, 1), "Walker2d": (1, 0.02, 1), "Ant": (1, 0.01, 3)}
    tasks = []
    for robot, (threshold, beta, length) in sparse.items():
        random_steps = slow_start.get(robot, 1000)
        summary = f"{robot}, reward 1 for every step beyond x = {threshold}"
        tasks.append(_mujoco(f"Sparse{robot}", summary, length * million, beta, random_steps))
    for robot in sparse:
        length = 3 if robot == "Hopper" else 5
        summary = f"{robot}, its reward summed and paid every 20 steps"
        tasks.append(_mujoco(f"Delayed{robot}", summary, length * million, 0.2, slow_start.get(robot, 1000)))
    tasks.append(_mujoco("HumanoidStandup", "Humanoid stands up, dense reward", 10 * million, 1.0, 1000))
    for robot in sparse:
        # the delayed task's beta: the rewards are the same
        tasks.append(_mujoco(robot, f"{robot}, dense reward", million, 0.2, slow_start.get(robot, 1000)))
    return tasks


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="maze",
            summary="continuous four-room maze, no reward: how many of 9225 cells does an agent visit?",
            device=_maze,
            # Section 6.1 and Table D.1, Han & Sung 2021; evaluation tells nothing here, so it is rare
            training={"steps": 300_000, "eval_every": 5000},
            # without the clip DAC visits 1.28 times as many cells (results/README.md); the paper's is --clip 1
            # two coordinates can be counted exactly, in the cells of the metric
            hyper={"gamma": 0.999, "clip": float("inf"), "bonus_density": "histogram"},
        ),
        *_mujoco_tasks(),
        Task(
            name="target",
            summary="one-step probe with a known answer: see s, act s/2",
            device=_target,
            training={"steps": 3000, "eval_every": 500, "eval_episodes": 20},
            hyper={"beta": 0.01, "hidden": (32, 32), "batch_size": 64},
        ),
    )
}


def find_task(name: str) -> Task:
    """The task of that name, `gym:ID` or `python:module:factory`, or an error that says what there is."""
    if name in TASKS:
        return TASKS[name]
    prefix, _, rest = name.partition(":")
    if prefix == "gym" and rest:
        return _gymnasium(name, rest)
    if prefix == "python" and rest:
        return _gymnasium(name, _factory(rest))
    close = difflib.get_close_matches(name, TASKS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UsageError(f"unknown task {name!r}{hint} (accepted: {', '.join(TASKS)}, gym:ID, python:MODULE:FACTORY)")


FACTORIES: dict[str, Callable[[], Any]] = {}
"""Environment factories given from Python in this process, by `module:name`."""


def task_of(factory: Callable[[], Any]) -> str:
    """The task name of an environment factory. A run can be read in another process if that can import the name."""
    name = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__name__)}"
    FACTORIES[name] = factory
    return f"python:{name}"


def _factory(name: str) -> Callable[[], Any]:
    if name in FACTORIES:
        return FACTORIES[name]
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"cannot import the environment factory {name!r}: {error}") from None
    if not callable(found):
        raise UsageError(f"{name!r} is not a function that makes an environment")
    return found


def _gymnasium(name: str, env: str | Callable[[], Any]) -> Task:
    def make(num: int) -> AbstractHostEnvs:
        from dac.envs.gymnasium import make_gymnasium

        return make_gymnasium(env, num, check_finite=False)  # the loop looks, and knows whose it is

    # beta is a guess that suits rewards of the order of 1 per step, as SAC's customary temperature does
    return Task(name, "a Gymnasium environment", host=make, training={"steps": 100_000}, hyper={"beta": 0.2})
