"""A humanoid that stands, walks or runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import (
    INF,
    ZX,
    ZY,
    ZZ,
    AbstractDomain,
    columns,
    draw_joints,
    draw_without_contact,
    into_frame,
    length,
    small_control,
)
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Stand, and with a speed walk or run at it in any direction; `pure_state` shows coordinates and velocities."""

    xml_file = "humanoid.xml"
    timestep = 0.025
    fields: tuple[str, ...] = ("xpos", "xmat", "sensordata")
    torso, hands_and_feet = "torso", ("left_hand", "left_foot", "right_hand", "right_foot")
    upright = ZZ
    """The entry of the torso's rotation matrix that is 1 when it stands."""

    def __init__(self, speed: float, pure_state: bool = False):
        super().__init__()
        self.speed, self.pure_state = speed, pure_state
        self.trunk, self.head, *self.ends_of_limbs = self.body(self.torso, "head", *self.hands_and_feet)
        self.velocity = self.sensor(f"{self.torso}_subtreelinvel")

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_without_contact(model, data, lambda: draw_joints(model, data, random))

    def observe(self, world: World) -> list[np.ndarray]:
        if self.pure_state:
            return [world["qpos"], world["qvel"]]
        xpos, frame = world["xpos"], world["xmat"][:, self.trunk]
        return [
            world["qpos"][:, 7:],
            *columns(xpos[:, self.head, 2]),
            *(into_frame(xpos[:, end] - xpos[:, self.trunk], frame) for end in self.ends_of_limbs),
            frame[:, [ZX, ZY, ZZ]],
            world["sensordata"][:, self.velocity],
            world["qvel"],
        ]

    def earn(self, world: World) -> np.ndarray:
        standing = tolerance(world["xpos"][:, self.head, 2], 1.4, INF, margin=0.35)
        upright = world["xmat"][:, self.trunk, self.upright]
        standing *= tolerance(upright, 0.9, INF, margin=1.9, slope="linear", value=0)
        standing *= small_control(world["ctrl"])
        velocity = world["sensordata"][:, self.velocity[:2]]
        if self.speed == 0:
            return standing * tolerance(velocity, margin=2).mean(axis=1)
        moving = tolerance(length(velocity), self.speed, INF, margin=self.speed, slope="linear", value=0)
        return standing * (5 * moving + 1) / 6
