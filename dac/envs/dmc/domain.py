"""What a domain of the suite is: a model, what is observed and earned in it, and how an episode starts.

An episode starts with dm_control's draws in dm_control's order, so that it starts where dm_control's does if both are
given the same generator. Ours is NumPy's PCG64, as everywhere in this package; dm_control's is the older RandomState.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int64

from dac.envs.batch import World
from dac.envs.dmc.files import compile_model, parse
from dac.envs.dmc.tolerance import tolerance

XX, XZ, ZX, ZY, ZZ = 0, 2, 6, 7, 8
"""Entries of a flat rotation matrix: XZ is the x component, in the world, of the body's z axis."""

INF = math.inf
"""The upper end of an interval that has none."""


class AbstractDomain(abc.ABC):
    """A domain with the settings of one task."""

    xml_file: ClassVar[str]
    timestep: ClassVar[float | None] = None
    """Seconds between two actions; None: every step of the physics."""
    fields: tuple[str, ...] = ()
    """Fields besides qpos, qvel, act and ctrl at which `observe` and `earn` look."""
    varies: tuple[str, ...] = ()
    """Fields of the model that `begin` draws, different in every simulation."""

    def __init__(self) -> None:
        self.model = self.compile()

    def compile(self) -> Any:
        """Return the model."""
        return compile_model(parse(self.xml_file))

    @property
    def everything(self) -> tuple[str, ...]:
        """Return all fields that make a world."""
        return ("qpos", "qvel", "act", "ctrl", *self.fields)

    @property
    def substeps(self) -> int:
        """Steps of the physics in one step of the task."""
        return 1 if self.timestep is None else round(self.timestep / self.model.opt.timestep)

    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest controls."""
        return self.model.actuator_ctrlrange[:, 0], self.model.actuator_ctrlrange[:, 1]

    @abc.abstractmethod
    def begin(self, model: Any, data: Any, random: Any) -> None:
        """Draw the start of an episode into data that was reset, and into the model what varies."""

    @abc.abstractmethod
    def observe(self, world: World) -> list[np.ndarray]:
        """Return the parts of the observations, (env, part) each, in order."""

    @abc.abstractmethod
    def earn(self, world: World) -> Float64[np.ndarray, " env"]:
        """Return the rewards of the steps that led to this world."""

    def ends(self, world: World) -> Bool[np.ndarray, " env"]:
        """Return a mask of the episodes that terminate; almost every task of the suite has no such end."""
        return np.zeros(len(world["qpos"]), np.bool_)

    # where things are in the model

    def body(self, *names: str) -> Int64[np.ndarray, " name"]:
        return np.array([self.model.body(name).id for name in names])

    def geom(self, *names: str) -> Int64[np.ndarray, " name"]:
        return np.array([self.model.geom(name).id for name in names])

    def site(self, *names: str) -> Int64[np.ndarray, " name"]:
        return np.array([self.model.site(name).id for name in names])

    def sensor(self, *names: str) -> Int64[np.ndarray, " entry"]:
        """Return where the readings of sensors stand in `sensordata`."""
        return np.concatenate([_span(sensor.adr[0], sensor.dim[0]) for sensor in map(self.model.sensor, names)])

    def qpos(self, *names: str) -> Int64[np.ndarray, " name"]:
        """Return where hinges and sliders stand in `qpos`."""
        return np.array([self.model.joint(name).qposadr[0] for name in names])

    def qvel(self, *names: str) -> Int64[np.ndarray, " name"]:
        """Return where hinges and sliders stand in `qvel`."""
        return np.array([self.model.joint(name).dofadr[0] for name in names])


def _span(start: int, length: int) -> np.ndarray:
    return np.arange(start, start + length)


def settle(model: Any, data: Any) -> None:
    """Compute everything from the state without actuators, as dm_control does before the first action."""
    import mujoco

    flags = model.opt.disableflags
    model.opt.disableflags = flags | mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
    mujoco.mj_forward(model, data)
    model.opt.disableflags = flags


def begin_episode(domain: AbstractDomain, model: Any, data: Any, random: Any) -> None:
    """Put a simulation at the start of an episode, with dm_control's draws in dm_control's order."""
    import mujoco

    mujoco.mj_resetData(model, data)
    settle(model, data)
    domain.begin(model, data, random)
    settle(model, data)


def draw_joints(model: Any, data: Any, random: Any) -> None:
    """Draw limited joints from their ranges, unlimited hinges from all angles, and orientations of free joints.

    A free joint's quaternion has positive entries only, as dm_control's has: orientations are not uniform.
    """
    import mujoco

    kinds = mujoco.mjtJoint
    for joint in range(model.njnt):
        kind, place = model.jnt_type[joint], model.jnt_qposadr[joint]
        if model.jnt_limited[joint]:
            data.qpos[place] = random.uniform(*model.jnt_range[joint])
        elif kind == kinds.mjJNT_HINGE:
            data.qpos[place] = random.uniform(-np.pi, np.pi)
        elif kind == kinds.mjJNT_FREE:
            data.qpos[place + 3 : place + 7] = normalised(random.random(4))


def draw_without_contact(model: Any, data: Any, draw: Callable[[], object]) -> None:
    """Call a function that draws a state until nothing touches."""
    while True:
        draw()
        settle(model, data)
        if data.ncon == 0:
            return


def normalised(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def length(vectors: Float64[np.ndarray, "*rows axis"]) -> Float64[np.ndarray, "*rows"]:
    """Return the lengths of vectors."""
    return np.sqrt(np.square(vectors).sum(axis=-1))


def into_frame(
    vectors: Float64[np.ndarray, "env 3"], frame: Float64[np.ndarray, "env 9"]
) -> Float64[np.ndarray, "env 3"]:
    """Return vectors of the world in the frames with these flat rotation matrices."""
    return np.einsum("ei,eij->ej", vectors, frame.reshape(-1, 3, 3))


def columns(*values: Float64[np.ndarray, " env"]) -> list[np.ndarray]:
    """Return numbers, one per environment each, as parts of an observation."""
    return [value[:, None] for value in values]


def flat(rows: np.ndarray) -> Float64[np.ndarray, "env part"]:
    return rows.reshape(len(rows), -1)


def small_control(ctrl: Float64[np.ndarray, "env action"]) -> Float64[np.ndarray, " env"]:
    """Return the factor between 0.8 and 1 with which several tasks reward small controls."""
    return (4 + tolerance(ctrl, margin=1, slope="quadratic", value=0).mean(axis=1)) / 5
