"""Four legs, each with a toe that feels forces."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.core.errors import UsageError
from dac.envs.batch import World
from dac.envs.dmc.domain import INF, ZZ, AbstractDomain, columns, into_frame, length, normalised, settle
from dac.envs.dmc.files import compile_model, find, parse, remove
from dac.envs.dmc.tolerance import tolerance

_ATTEMPTS = 10_000
_WALLS = ("wall_px", "wall_py", "wall_nx", "wall_ny")


class Domain(AbstractDomain):
    """Walk or run forward at a speed (`move`), climb out of a bowl (`escape`), or bring a ball to a place (`fetch`)."""

    xml_file = "quadruped.xml"
    timestep = 0.02
    fields: tuple[str, ...] = ("xpos", "xmat", "site_xpos", "sensordata")

    def __init__(self, task: str, speed: float = 0.0):
        import mujoco

        self.task, self.speed = task, speed
        if task == "escape":
            self.varies = ("hfield_data",)
        super().__init__()
        hinges = self.model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE.value
        self.angles, self.speeds = self.model.jnt_qposadr[hinges], self.model.jnt_dofadr[hinges]
        self.torso, self.workspace = self.body("torso")[0], self.site("workspace")[0]
        self.velocity = self.sensor("velocimeter")
        self.inertia = self._sensors(mujoco.mjtSensor.mjSENS_GYRO, mujoco.mjtSensor.mjSENS_ACCELEROMETER)
        self.forces = self._sensors(mujoco.mjtSensor.mjSENS_FORCE, mujoco.mjtSensor.mjSENS_TORQUE)
        if task == "escape":
            self.ranges = self._sensors(mujoco.mjtSensor.mjSENS_RANGEFINDER)
        if task == "fetch":
            self.ball, self.target = self.body("ball")[0], self.site("target")[0]
            self.root, self.ball_root = (int(self.model.joint(name).dofadr[0]) for name in ("root", "ball_root"))
            self.arena = self.model.geom("floor").size[0]

    def compile(self) -> Any:
        tree = parse(self.xml_file)
        if self.task != "fetch":
            size = 40 if self.task == "escape" else 20 * self.speed
            find(tree, "geom", "floor").set("size", f"{size} {size} .5")
            remove(tree, "geom", _WALLS)
            remove(tree, "body", ["ball"])
            remove(tree, "site", ["target"])
        if self.task != "escape":
            remove(tree, "geom", ["terrain"])
            sensors = tree.find("./sensor")
            assert sensors is not None
            for finder in sensors.findall("./rangefinder"):
                sensors.remove(finder)
        return compile_model(tree)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        if self.task == "fetch":
            half = random.uniform(0, 2 * np.pi) / 2
            spread = 0.9 * self.arena
            x, y = random.uniform(-spread, spread, 2)
            _lift(model, data, np.array([np.cos(half), 0, 0, np.sin(half)]), x, y)
            ball = data.joint("ball_root")
            ball.qpos[:2] = random.uniform(-spread, spread, 2)
            ball.qpos[2] = 2
            ball.qvel[:2] = 5 * random.standard_normal(2)
            return
        if self.task == "escape":
            model.hfield_data[:] = _bowl(model, random).ravel()
        _lift(model, data, normalised(random.standard_normal(4)))

    def observe(self, world: World) -> list[np.ndarray]:
        sensors, frame, place = world["sensordata"], world["xmat"][:, self.torso], world["xpos"][:, self.torso]
        parts = [
            world["qpos"][:, self.angles],
            world["qvel"][:, self.speeds],
            world["act"],
            sensors[:, self.velocity],
            *columns(frame[:, ZZ]),
            sensors[:, self.inertia],
            np.arcsinh(sensors[:, self.forces]),
        ]
        if self.task == "escape":
            ranges = sensors[:, self.ranges]
            parts += [-into_frame(place, frame), np.where(ranges == -1, 1.0, np.tanh(ranges))]
        if self.task == "fetch":
            velocity, ball = world["qvel"][:, self.root :], world["qvel"][:, self.ball_root :]
            seen = [world["xpos"][:, self.ball] - place, ball[:, :3] - velocity[:, :3], ball[:, 3:6]]
            seen.append(world["site_xpos"][:, self.target] - place)
            parts += [into_frame(vectors, frame) for vectors in seen]
        return parts

    def earn(self, world: World) -> np.ndarray:
        if self.task == "escape":
            size = self.model.hfield_size[0, 0]
            away = length(world["site_xpos"][:, self.workspace])
            return self._upright(world, 20) * tolerance(away, size, INF, margin=size, slope="linear", value=0)
        if self.task == "fetch":
            ball, model = world["xpos"][:, self.ball, :2], self.model
            near = model.site_size[self.workspace, 0] + model.geom("ball").size[0]
            diagonal = self.arena * np.sqrt(2)
            to_ball = length(world["site_xpos"][:, self.workspace, :2] - ball)
            to_target = length(world["site_xpos"][:, self.target, :2] - ball)
            reach = tolerance(to_ball, 0, near, margin=diagonal, slope="linear", value=0)
            radius = model.site_size[self.target, 0]
            fetch = tolerance(to_target, 0, radius, margin=diagonal, slope="linear", value=0)
            return self._upright(world, 0) * reach * (0.5 + 0.5 * fetch)
        speed = world["sensordata"][:, self.velocity[0]]
        moving = tolerance(speed, self.speed, INF, margin=self.speed, slope="linear", value=0.5)
        return self._upright(world, 0) * moving

    def _sensors(self, *kinds: Any) -> np.ndarray:
        """Return where the readings of all sensors of these kinds stand in `sensordata`."""
        found = np.flatnonzero(np.isin(self.model.sensor_type, [kind.value for kind in kinds]))
        return self.sensor(*(self.model.sensor(int(index)).name for index in found))

    def _upright(self, world: World, degrees: float) -> np.ndarray:
        """Return 1 where the torso leans less than an angle, falling to 0 upside down."""
        least = np.cos(np.deg2rad(degrees))
        upright = world["xmat"][:, self.torso, ZZ]
        return tolerance(upright, least, INF, margin=1 + least, slope="linear", value=0)


def _lift(model: Any, data: Any, orientation: np.ndarray, x: float = 0.0, y: float = 0.0) -> None:
    """Put the robot at the lowest whole centimetre at which it touches nothing."""
    import mujoco

    height = 0.0
    for _ in range(_ATTEMPTS):
        mujoco.mj_resetData(model, data)
        settle(model, data)
        data.joint("root").qpos = [x, y, height, *orientation]
        settle(model, data)
        if data.ncon == 0:
            return
        height += 0.01
    raise UsageError(f"no height at which the quadruped touches nothing was found in {_ATTEMPTS} attempts")


def _bowl(model: Any, random: Any) -> np.ndarray:
    """Return a terrain: a bowl with bumps two metres apart."""
    from scipy import ndimage  # comes with dm_control

    side = model.hfield_nrow[0]
    rows, cols = np.ogrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    radius = np.clip(np.sqrt(cols**2 + rows**2), 0.04, 1)
    count = int(2 * model.hfield_size[0, 0] / 2)
    bumps = random.uniform(0.15, 1, (count, count))
    return (0.5 - np.cos(2 * np.pi * radius) / 2) * ndimage.zoom(bumps, side / count)
