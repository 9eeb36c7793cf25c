"""One leg in a plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import INF, AbstractDomain, draw_joints, small_control
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Stand, or with `hopping` hop forward at 2 m/s."""

    xml_file = "hopper.xml"
    timestep = 0.02
    fields: tuple[str, ...] = ("xipos", "sensordata")

    def __init__(self, hopping: bool):
        super().__init__()
        self.hopping = hopping
        self.torso, self.foot = self.body("torso", "foot")
        self.speed = self.sensor("torso_subtreelinvel")[0]
        self.touch = self.sensor("touch_toe", "touch_heel")

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_joints(model, data, random)

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], world["qvel"], np.log1p(world["sensordata"][:, self.touch])]

    def earn(self, world: World) -> np.ndarray:
        height = world["xipos"][:, self.torso, 2] - world["xipos"][:, self.foot, 2]
        standing = tolerance(height, 0.6, 2)
        if not self.hopping:
            return standing * small_control(world["ctrl"])
        speed = world["sensordata"][:, self.speed]
        return standing * tolerance(speed, 2, INF, margin=1, slope="linear", value=0.5)
