"""An arm of two joints in a plane: 1 while the finger touches the target."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain, draw_joints, length
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Reach a target of this radius, at a place that is drawn for every episode."""

    xml_file = "reacher.xml"
    fields: tuple[str, ...] = ("geom_xpos",)
    varies: tuple[str, ...] = ("geom_pos",)

    def __init__(self, radius: float):
        super().__init__()
        self.finger, self.target = self.geom("finger", "target")
        self.near = radius + self.model.geom_size[self.finger, 0]
        self.model.geom_size[self.target, 0] = radius

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_joints(model, data, random)
        angle, radius = random.uniform(0, 2 * np.pi), random.uniform(0.05, 0.20)
        model.geom_pos[self.target, :2] = radius * np.sin(angle), radius * np.cos(angle)

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"], self._away(world), world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        return tolerance(length(self._away(world)), 0, self.near)

    def _away(self, world: World) -> np.ndarray:
        return world["geom_xpos"][:, self.target, :2] - world["geom_xpos"][:, self.finger, :2]
