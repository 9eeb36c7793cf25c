"""Two legs in a plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import INF, XX, XZ, ZZ, AbstractDomain, columns, draw_joints, flat
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Stand upright, and with a speed walk or run forward at it."""

    xml_file = "walker.xml"
    timestep = 0.025
    fields: tuple[str, ...] = ("xpos", "xmat", "sensordata")

    def __init__(self, speed: float):
        super().__init__()
        self.speed = speed
        self.torso = self.body("torso")[0]
        self.velocity = self.sensor("torso_subtreelinvel")[0]

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_joints(model, data, random)

    def observe(self, world: World) -> list[np.ndarray]:
        return [flat(world["xmat"][:, 1:, [XX, XZ]]), *columns(world["xpos"][:, self.torso, 2]), world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        high = tolerance(world["xpos"][:, self.torso, 2], 1.2, INF, margin=0.6)
        standing = (3 * high + (1 + world["xmat"][:, self.torso, ZZ]) / 2) / 4
        if self.speed == 0:
            return standing
        velocity, speed = world["sensordata"][:, self.velocity], self.speed
        moving = tolerance(velocity, speed, INF, margin=speed / 2, slope="linear", value=0.5)
        return standing * (5 * moving + 1) / 6
