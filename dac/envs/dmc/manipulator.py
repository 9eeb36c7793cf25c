"""A planar arm with a hand, and a ball or a peg to be brought to a place."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import XX, ZX, AbstractDomain, draw_without_contact, flat, length, settle
from dac.envs.dmc.files import compile_model, parse, remove
from dac.envs.dmc.tolerance import tolerance

ARM = ("arm_root", "arm_shoulder", "arm_elbow", "arm_wrist", "finger", "fingertip", "thumb", "thumbtip")
_TOUCH = ("palm_touch", "finger_touch", "thumb_touch", "fingertip_touch", "thumbtip_touch")
_THINGS = ("ball", "target_ball", "cup", "peg", "target_peg", "slot")


class AbstractArm(AbstractDomain):
    """What the domains of this arm share."""

    timestep = 0.01
    fields: tuple[str, ...] = ("xpos", "xquat", "site_xpos", "sensordata")

    def __init__(self) -> None:
        super().__init__()
        self.arm, self.arm_speed = self.qpos(*ARM), self.qvel(*ARM)
        self.touch = self.sensor(*_TOUCH)
        self.hand, self.grasp = self.body("hand")[0], self.site("grasp")[0]

    def draw_arm(self, data: Any, random: Any) -> None:
        """Draw the joints of the arm, and close the hand evenly."""
        joints = [self.model.joint(name).id for name in ARM]
        limited, bounds = self.model.jnt_limited[joints].astype(bool), self.model.jnt_range[joints]
        low, high = np.where(limited, bounds[:, 0], -np.pi), np.where(limited, bounds[:, 1], np.pi)
        data.qpos[self.arm] = random.uniform(low, high)
        data.joint("finger").qpos = data.joint("thumb").qpos

    def observe_arm(self, world: World) -> list[np.ndarray]:
        joints = world["qpos"][:, self.arm]
        angles = np.stack([np.sin(joints), np.cos(joints)], axis=-1)
        touch = np.log1p(world["sensordata"][:, self.touch])
        return [flat(angles), world["qvel"][:, self.arm_speed], touch, *self.pose(world, self.hand)]

    def pose(self, world: World, body: int | np.ndarray) -> list[np.ndarray]:
        """Return the place of a body, or of several, and how it is turned, as a part of an observation."""
        place, turn = world["xpos"][:, body][..., ::2], world["xquat"][:, body][..., ::2]
        return [flat(np.concatenate([place, turn], axis=-1))]

    def between(self, world: World, first: int | np.ndarray, second: int) -> np.ndarray:
        """Return the distances between sites."""
        sites = world["site_xpos"]
        return length(sites[:, first] - (sites[:, second] if np.ndim(first) == 0 else sites[:, [second]]))


def _near(distance: np.ndarray) -> np.ndarray:
    return tolerance(distance, 0, 0.01, margin=0.02)


class Domain(AbstractArm):
    """Bring the ball, or with `peg` the peg, to a target, which with `insert` is in a cup or a slot."""

    xml_file = "manipulator.xml"

    def __init__(self, peg: bool, insert: bool):
        self.peg, self.insert = peg, insert
        self.thing = "peg" if peg else "ball"
        self.goal = f"target_{self.thing}"
        self.vessel = ("slot" if peg else "cup") if insert else None
        self.varies = ("body_pos", "body_quat")
        super().__init__()
        joints = [f"{self.thing}_{axis}" for axis in "xzy"]
        self.places, self.speeds = self.qpos(*joints), self.qvel(*joints)
        self.bodies = self.body(self.thing, self.goal)
        self.pairs = [self.site(self.thing, self.goal)]
        if peg:
            pairs = [("target_peg_tip", "peg_tip"), ("peg_grasp", "grasp"), ("peg_pinch", "pinch")]
            self.pairs += [self.site(*pair) for pair in pairs]

    def compile(self) -> Any:
        kept = {self.thing, self.goal, self.vessel}
        tree = parse(self.xml_file)
        remove(tree, "body", [name for name in _THINGS if name not in kept])
        return compile_model(tree)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_without_contact(model, data, lambda: self._draw(model, data, random))

    def _draw(self, model: Any, data: Any, random: Any) -> None:
        self.draw_arm(data, random)
        x, z = random.uniform(-0.4, 0.4), random.uniform(0.1, 0.4)
        angle = random.uniform(-np.pi / 3, np.pi / 3) if self.insert else random.uniform(-np.pi, np.pi)
        for name in (self.vessel, self.goal):
            if name is not None:
                model.body_pos[model.body(name).id, ::2] = x, z
                model.body_quat[model.body(name).id, ::2] = np.cos(angle / 2), np.sin(angle / 2)
        start = random.choice(["in_hand", "in_target", "anywhere"], p=[0.1, 0.1, 1 - 0.1 - 0.1])
        if start == "in_hand":
            settle(model, data)
            x, _, z = data.site_xpos[self.grasp]
            angle = np.pi - np.arctan2(data.site_xmat[self.grasp, ZX], data.site_xmat[self.grasp, XX])
        elif start == "anywhere":
            x, z, angle = random.uniform(-0.5, 0.5), random.uniform(0, 0.7), random.uniform(0, 2 * np.pi)
            data.qvel[self.speeds[0]] = random.uniform(-5, 5)
        data.qpos[self.places] = x, z, angle

    def observe(self, world: World) -> list[np.ndarray]:
        thing, goal = self.bodies
        speeds = world["qvel"][:, self.speeds]
        return [*self.observe_arm(world), *self.pose(world, thing), speeds, *self.pose(world, goal)]

    def earn(self, world: World) -> np.ndarray:
        near = [_near(self.between(world, *pair)) for pair in self.pairs]
        if not self.peg:
            return near[0]
        there, tip_there, grasp, pinch = near
        return np.maximum((there + tip_there) / 2, (grasp + pinch) / 2 / 3)
