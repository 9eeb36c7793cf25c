"""Gymnasium-Robotics: its ids are found without an import by the user, and its environments run under MuJoCo's today.

    PointMaze, AntMaze      maze robots, as vector environments on `mujoco.batch` (`maze_robots.py`)
    Fetch, Hand             goals for an arm and for a hand
    AdroitHand              a hand with tools, without goals
    FrankaKitchen           an arm in a kitchen, with a list of things to do

All but the maze robots are stepped one by one, or in worker processes. Nothing is loaded before an id is asked for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dac.core.errors import needs_extra

if TYPE_CHECKING:
    import gymnasium as gym
    from gymnasium.envs.registration import EnvSpec

PACKAGE = "gymnasium_robotics"
_IDS = re.compile(r"(PointMaze_|AntMaze_|Fetch[A-Z]|AdroitHand|FrankaKitchen-|HandReach|HandManipulate)")
_MAPS = r"(UMaze|Open|Medium|Large)(_Diverse_GR?)?(Dense)?"
_MAZE_ROBOTS = re.compile(rf"PointMaze_{_MAPS}-v3|AntMaze_{_MAPS}-v5")


def is_maze_robot(id: str) -> bool:
    """Return whether an id is of a maze robot that there is in vector form."""
    return _MAZE_ROBOTS.fullmatch(id) is not None


def import_package(id: str) -> None:
    """Import Gymnasium-Robotics, which registers its ids then, if an id is one of them."""
    if _IDS.match(id):
        # importing it prints a notice on the rewards of the Adroit hand, which concerns nobody else
        quiet = contextlib.nullcontext() if id.startswith("Adroit") else contextlib.redirect_stderr(io.StringIO())
        with quiet, needs_extra("robotics", f"the environment {id}"):
            importlib.import_module(PACKAGE)


def maker(spec: EnvSpec) -> Callable[..., gym.Env]:
    """Return a function that makes the environment, in any process; the environment checks nothing by itself."""
    return functools.partial(_make, spec)


def _make(spec: EnvSpec, **arguments: Any) -> gym.Env:
    import gymnasium as gym

    if str(spec.entry_point).startswith(f"{PACKAGE}."):
        _mend_joint_types()
    # what Gymnasium's checker would warn of once is an error of ours, at every step
    return gym.make(spec, disable_env_checker=True, **arguments)


def _mend_joint_types() -> None:
    """Let the package compare the types of joints again.

    Gymnasium-Robotics 1.4.2 asks whether a joint's type, an integer of NumPy, is in a tuple of values of MuJoCo's
    enumeration, which do not equal those (3.17 and 4.0). Fetch, Kitchen and the hands then end in an AssertionError
    before their first step. The module that asks is given an enumeration of integers.
    """
    import mujoco
    import numpy as np

    utils: Any = importlib.import_module(f"{PACKAGE}.utils.mujoco_utils")
    joint = utils.mujoco.mjtJoint
    if np.int32(3) in (joint.mjJNT_HINGE,):  # mended, here or by another version
        return
    plain: Any = types.ModuleType("mujoco")
    plain.__getattr__ = functools.partial(getattr, mujoco)
    plain.mjtJoint = types.SimpleNamespace(**{name: int(value) for name, value in joint.__members__.items()})
    utils.mujoco = plain
