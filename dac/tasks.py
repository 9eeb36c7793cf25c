"""Every task by name: how to make it, and the defaults the paper uses there."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from dac.envs.base import AbstractDeviceEnv
from dac.types import UsageError


@dataclasses.dataclass(frozen=True)
class Task:
    """A task with its defaults; what a user gives comes before them, what they leave out comes from the algorithm."""

    name: str
    summary: str
    make: Callable[[], AbstractDeviceEnv]
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hyper: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _maze() -> AbstractDeviceEnv:
    from dac.envs.maze import FourRoomMaze

    return FourRoomMaze()


def _target() -> AbstractDeviceEnv:
    from dac.envs.probes import Target

    return Target()


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="maze",
            summary="continuous four-room maze, no reward: how many of 9225 cells does an agent visit?",
            make=_maze,
            # Section 6.1 and Table D.1, Han & Sung 2021; evaluation tells nothing here, so it is rare
            training={"steps": 300_000, "eval_every": 5000},
            hyper={"gamma": 0.999},
        ),
        Task(
            name="target",
            summary="one-step probe with a known answer: see s, act s/2",
            make=_target,
            training={"steps": 3000, "eval_every": 500, "eval_episodes": 20},
            hyper={"beta": 0.01, "hidden": (32, 32), "batch_size": 64},
        ),
    )
}


def find_task(name: str) -> Task:
    """The task of that name, or an error that says what there is."""
    if name in TASKS:
        return TASKS[name]
    close = difflib.get_close_matches(name, TASKS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UsageError(f"unknown task {name!r}{hint} (accepted: {', '.join(TASKS)})")
