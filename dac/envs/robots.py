"""Gymnasium's v5 robots, written over the rows of a batch: what they observe, what they earn and when they fall."""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from dac.envs.batch import World


class Move(NamedTuple):
    """How a step was made: the speed forward, the action in MuJoCo's units, and where the robot is still healthy."""

    speed: Float64[np.ndarray, " env"]
    action: Float32[np.ndarray, "env action"]
    healthy: Bool[np.ndarray, " env"]
    timestep: float


class AbstractRobot(abc.ABC):
    """A v5 environment of Gymnasium: how its model starts, what it observes, what it earns and when it falls."""

    xml_file: ClassVar[str]
    frame_skip: ClassVar[int]
    noise: ClassVar[float]
    """Scale of the noise around the initial state."""
    normal_velocity: ClassVar[bool] = False
    """Whether initial velocities are drawn from a normal distribution instead of a uniform one."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields that MuJoCo computes from the state and the robot looks at."""
    forces: ClassVar[bool] = False
    """Whether the robot looks at `cfrc_ext`, the external forces on its bodies."""

    @abc.abstractmethod
    def observe(self, world: World) -> list[np.ndarray]:
        """Return the parts of the observations, (env, part) each, in order."""

    @abc.abstractmethod
    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        """Return the dense rewards of a move that led to this world."""

    def forward(self, world: World) -> Float64[np.ndarray, " env"]:
        """Return the coordinate whose change over a step, divided by its duration, is `speed`."""
        return world["qpos"][:, 0]

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        """Return a mask of the environments whose episode goes on: the robot has not fallen."""
        return np.ones(len(world["qpos"]), np.bool_)


def _squared(action: np.ndarray) -> np.ndarray:
    """Sum the squares in the type of the action: float32, in which Gymnasium computes control costs too."""
    return np.square(action).sum(axis=-1)


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


@dataclasses.dataclass(frozen=True)
class HalfCheetah(AbstractRobot):
    """Two legs and a long back in a plane; it cannot fall."""

    xml_file = "half_cheetah.xml"
    frame_skip = 5
    noise = 0.1
    normal_velocity = True

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], world["qvel"]]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed - 0.1 * _squared(move.action)


@dataclasses.dataclass(frozen=True)
class Hopper(AbstractRobot):
    """One leg in a plane."""

    xml_file = "hopper.xml"
    frame_skip = 4
    noise = 5e-3

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], np.clip(world["qvel"], -10, 10)]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed + move.healthy - 1e-3 * _squared(move.action)

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        qpos, qvel = world["qpos"], world["qvel"]
        upright = (qpos[:, 1] > 0.7) & (qpos[:, 1] < np.inf) & (np.abs(qpos[:, 2]) < 0.2)
        return upright & (np.abs(qpos[:, 3:]) < 100).all(axis=1) & (np.abs(qvel) < 100).all(axis=1)


@dataclasses.dataclass(frozen=True)
class Walker2d(AbstractRobot):
    """Two legs in a plane."""

    xml_file = "walker2d_v5.xml"
    frame_skip = 4
    noise = 5e-3

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], np.clip(world["qvel"], -10, 10)]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed + move.healthy - 1e-3 * _squared(move.action)

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        height, angle = world["qpos"][:, 1], world["qpos"][:, 2]
        return (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)


@dataclasses.dataclass(frozen=True)
class Ant(AbstractRobot):
    """Four legs in space."""

    xml_file = "ant.xml"
    frame_skip = 5
    noise = 0.1
    normal_velocity = True
    fields = ("xpos",)
    forces = True

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 2:], world["qvel"], _flat(np.clip(world["cfrc_ext"][:, 1:], -1, 1))]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        contact = np.square(_flat(np.clip(world["cfrc_ext"], -1, 1))).sum(axis=1)
        return move.speed + move.healthy - (0.5 * _squared(move.action) + 5e-4 * contact)

    def forward(self, world: World) -> Float64[np.ndarray, " env"]:
        # Gymnasium measures Ant's speed by the torso's frame, which MuJoCo leaves one substep behind the coordinates
        return world["xpos"][:, 1, 0]

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        qpos, qvel = world["qpos"], world["qvel"]
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1)
        return finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)


@dataclasses.dataclass(frozen=True)
class HumanoidStandup(AbstractRobot):
    """A humanoid that lies on its back and earns the height of its torso."""

    xml_file = "humanoidstandup.xml"
    frame_skip = 5
    noise = 1e-2
    fields = ("cinert", "cvel", "qfrc_actuator")
    forces = True

    def observe(self, world: World) -> list[np.ndarray]:
        bodies = [_flat(world[name][:, 1:]) for name in ("cinert", "cvel")]
        forces = [world["qfrc_actuator"][:, 6:], _flat(world["cfrc_ext"][:, 1:])]
        return [world["qpos"][:, 2:], world["qvel"], *bodies, *forces]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        impact = np.minimum(5e-7 * np.square(_flat(world["cfrc_ext"])).sum(axis=1), 10.0)
        return world["qpos"][:, 2] / move.timestep - 0.1 * _squared(world["ctrl"]) - impact + 1


ROBOTS: dict[str, AbstractRobot] = {
    "HalfCheetah": HalfCheetah(),
    "Hopper": Hopper(),
    "Walker2d": Walker2d(),
    "Ant": Ant(),
    "HumanoidStandup": HumanoidStandup(),
}
