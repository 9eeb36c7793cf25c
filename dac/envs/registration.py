"""The tasks as ordinary Gymnasium environments, what the ids of `ids.py` make.

Each is a single environment, so that any library can train on it: the maze, or Gymnasium's own v5 robot with
one of `wrappers.py` around it. `threshold`, `delay` and whatever the robot itself takes (`xml_file`, `width`, ...) are
arguments of `gymnasium.make`; the horizon is its `max_episode_steps`.
"""

from __future__ import annotations

import os
import sys
from ctypes.util import find_library
from typing import Any

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from dac.envs.batch import quiet_compiler
from dac.envs.ids import ids, register
from dac.envs.variants import find_variant
from dac.envs.wrappers import DelayedReward, SparseReward

IDS = ids()
"""Every id of the package."""


def make_robot(
    task: str,
    *,
    threshold: float | None = None,
    delay: int | None = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> gym.Env:
    """Make Gymnasium's v5 robot of a task, with its dense reward; the task's wrapper goes around the time limit."""
    from gymnasium.envs.mujoco.ant_v5 import AntEnv
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
    from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
    from gymnasium.envs.mujoco.humanoidstandup_v5 import HumanoidStandupEnv
    from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv

    robots = {
        "HalfCheetah": HalfCheetahEnv,
        "Hopper": HopperEnv,
        "Walker2d": Walker2dEnv,
        "Ant": AntEnv,
        "HumanoidStandup": HumanoidStandupEnv,
    }
    found = find_variant(task, threshold=threshold, delay=delay)
    with quiet_compiler():
        env = robots[found.robot](render_mode=render_mode, **kwargs)
    if not has_display():
        # name only the modes that work, and draw them where no screen is needed
        modes = [mode for mode in env.metadata["render_modes"] if mode != "human"]
        env.metadata = {**env.metadata, "render_modes": modes}
        if render_mode is not None:
            draw_off_screen()
    return env


def has_display() -> bool:
    """Return whether a window could be opened."""
    return sys.platform != "linux" or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ


def draw_off_screen() -> None:
    """Choose a renderer that needs no screen, unless the user chose one: left alone, Gymnasium tries a window first.

    `MUJOCO_GL` is the only switch it has.
    """
    mesa_only = find_library("EGL") is None and find_library("OSMesa") is not None
    os.environ.setdefault("MUJOCO_GL", "osmesa" if mesa_only else "egl")


class SparseTask(SparseReward):
    """`SparseReward` with the threshold given to `gymnasium.make`."""

    def __init__(self, env: gym.Env):
        RecordConstructorArgs.__init__(self)  # the first call counts: the threshold is the task's argument, not ours
        super().__init__(env, _argument(env, "threshold"), coordinate=0)


class DelayedTask(DelayedReward):
    """`DelayedReward` with the delay given to `gymnasium.make`."""

    def __init__(self, env: gym.Env):
        RecordConstructorArgs.__init__(self)
        super().__init__(env, _argument(env, "delay"))


def _argument(env: gym.Env, name: str) -> Any:
    assert env.spec is not None  # gymnasium.make has just set it
    return env.spec.kwargs[name]


register()
