"""A dog whose 38 actuators answer slowly, as muscles do."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import INF, ZX, ZZ, AbstractDomain, flat, into_frame, length
from dac.envs.dmc.files import compile_model, find, parse, read, remove, suite_folder
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Stand, with a speed walk, trot or run forward at it, or with `fetch` bring a thrown ball to a place."""

    xml_file = "dog.xml"
    timestep = 0.015
    fields: tuple[str, ...] = ("xpos", "xmat", "sensordata")

    def __init__(self, speed: float = 0.0, fetch: bool = False):
        import mujoco

        self.speed, self.fetch = speed, fetch
        if fetch:
            self.fields = (*self.fields, "geom_xpos", "site_xpos", "site_xmat", "cvel", "subtree_com")
        super().__init__()
        model = self.model
        hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE.value
        self.angles, self.speeds = model.jnt_qposadr[hinges], model.jnt_dofadr[hinges]
        self.torso, self.pelvis = self.body("torso", "pelvis")
        self.upright = self.body("skull", "torso", "pelvis")
        self.velocity = self.sensor("torso_linvel")
        self.inertia = self.sensor("accelerometer", "velocimeter", "gyro")
        self.feet = self.sensor("foot_L", "foot_R", "hand_L", "hand_R")
        self.touch = self.sensor("palm_L", "palm_R", "sole_L", "sole_R")
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        self.heights = data.xpos[[self.torso, self.pelvis], 2] * 0.9
        self.weight = -model.opt.gravity[2] * model.body_subtreemass[self.torso]
        if fetch:
            self.ball, self.target = self.geom("ball", "target")
            self.head, *self.bite = self.site("head", "upper_bite", "lower_bite")
            self.arena = model.geom("floor").size[0]

    def compile(self) -> Any:
        tree = parse(self.xml_file)
        size = 10 if self.fetch else 15 * max(self.speed, 1)
        find(tree, "geom", "floor").set("size", f"{size} {size} .1")
        if not self.fetch:
            remove(tree, "body", ["ball"])
            remove(tree, "geom", ["target", "wall_px", "wall_nx", "wall_py", "wall_ny"])
            remove(tree, "camera", ["ball", "head"])
        folder = suite_folder() / "dog_assets"
        assets = {path.name: read(f"dog_assets/{path.name}") for path in sorted(folder.iterdir()) if path.is_file()}
        return compile_model(tree, assets)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        half = random.uniform(0, 2 * np.pi) / 2
        data.joint("root").qpos[3:] = np.cos(half), 0, 0, np.sin(half)
        for place in (0, 1, 5):
            data.qvel[place] = 2 * random.standard_normal()
        data.act[:] = random.uniform(*model.actuator_ctrlrange.T)
        if self.fetch:
            self._throw(model, data, random)

    def _throw(self, model: Any, data: Any, random: Any) -> None:
        """Throw the ball from somewhere on a circle towards the middle, up to 3 m high."""
        radius, azimuth = 0.75 * self.arena, random.uniform(0, 2 * np.pi)
        ball = data.joint("ball_root")
        ball.qpos[:3] = radius * np.sin(azimuth), radius * np.cos(azimuth), 0.05
        up = np.sqrt(2 * -model.opt.gravity[2] * random.uniform(0, 3))
        speed = random.uniform(0, 5)
        inwards = -np.sin(azimuth) + 0.05 * random.standard_normal(), -np.cos(azimuth) + 0.05 * random.standard_normal()
        ball.qvel[:3] = speed * inwards[0], speed * inwards[1], up

    def observe(self, world: World) -> list[np.ndarray]:
        sensors = world["sensordata"]
        parts = [
            world["qpos"][:, self.angles],
            world["qvel"][:, self.speeds],
            world["xpos"][:, [self.torso, self.pelvis], 2],
            flat(world["xmat"][:, self.upright, ZX:]),
            self._velocity(world),
            sensors[:, self.inertia],
            sensors[:, self.feet],
            sensors[:, self.touch],
            world["act"],
        ]
        if self.fetch:
            head, frame = world["site_xpos"][:, self.head], world["site_xmat"][:, self.head]
            ball, target = world["geom_xpos"][:, self.ball], world["geom_xpos"][:, self.target]
            head_velocity = self._velocity_at(world, self.model.site_bodyid[self.head], head)
            ball_velocity = self._velocity_at(world, self.model.geom_bodyid[self.ball], ball)
            seen = (ball - head, ball_velocity - head_velocity, target - head)
            parts += [into_frame(vectors, frame) for vectors in seen]
        return parts

    def earn(self, world: World) -> np.ndarray:
        reward = self._stand(world)
        if self.fetch:
            return reward * self._fetch(world)
        if self.speed == 0:
            return reward
        velocity, speed = self._velocity(world)[:, 0], self.speed
        moving = tolerance(velocity, speed, 2 * speed, margin=max(1.0, speed), slope="linear", value=0)
        return reward * (4 * moving + 1) / 5

    def _stand(self, world: World) -> np.ndarray:
        reward = np.ones(len(world["qpos"]))
        for body, height in zip((self.torso, self.pelvis), self.heights, strict=True):
            reward *= tolerance(world["xpos"][:, body, 2], height, INF, margin=height)
        least = np.cos(np.deg2rad(30))
        upright = world["xmat"][:, self.upright, ZZ]
        reward *= tolerance(upright, least, INF, margin=least + 1, slope="linear", value=0).prod(axis=1)
        touch = world["sensordata"][:, self.touch].sum(axis=1)
        return reward * tolerance(touch, self.weight, INF, margin=self.weight, slope="linear", value=0.9)

    def _fetch(self, world: World) -> np.ndarray:
        ball, bites = world["geom_xpos"][:, self.ball], world["site_xpos"][:, self.bite]
        to_mouth = length(ball[:, None] - bites).mean(axis=1)
        radius = self.model.site_size[self.bite[0], 0]
        reach = (6 * tolerance(to_mouth, 0, radius, margin=2, slope="reciprocal") + 1) / 7
        to_target = length(ball - world["geom_xpos"][:, self.target])
        size = self.model.geom_size[self.target, 0]
        bring = (tolerance(to_target, 0, size, margin=self.arena, slope="reciprocal") + 1) / 2
        return np.where(to_target < 2 * size, 1.0, reach) * bring  # it may let go of a ball that it has brought

    def _velocity(self, world: World) -> np.ndarray:
        """Return the velocity of the centre of mass in the frame of the torso."""
        return into_frame(world["sensordata"][:, self.velocity], world["xmat"][:, self.torso])

    def _velocity_at(self, world: World, body: int, point: np.ndarray) -> np.ndarray:
        """Return the velocity of a point of a body: MuJoCo keeps a body's at the centre of mass of its whole tree."""
        spin, velocity = world["cvel"][:, body, :3], world["cvel"][:, body, 3:]
        return velocity + np.cross(spin, point - world["subtree_com"][:, self.model.body_rootid[body]])
