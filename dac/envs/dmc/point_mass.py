"""A point that two motors move in a plane to the target in its middle."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain, draw_joints, length, normalised, small_control
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Reach the target; with `random_motors` each motor pulls in a direction that is drawn for every episode."""

    xml_file = "point_mass.xml"
    fields: tuple[str, ...] = ("geom_xpos",)

    def __init__(self, random_motors: bool):
        super().__init__()
        if random_motors:
            self.varies = ("wrap_prm",)  # the shares of the joints in the motors' tendons
        self.mass, self.target = self.geom("pointmass", "target")
        self.radius = self.model.geom_size[self.target, 0]

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_joints(model, data, random)
        if self.varies:
            first = normalised(random.standard_normal(2))
            second = normalised(random.standard_normal(2))
            while abs(first @ second) > 0.9:  # too close to parallel
                second = normalised(random.standard_normal(2))
            model.wrap_prm[:] = [*first, *second]

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        distance = length(world["geom_xpos"][:, self.target] - world["geom_xpos"][:, self.mass])
        return tolerance(distance, 0, self.radius, margin=self.radius) * small_control(world["ctrl"])
