"""A ball on a string under a cup that can be moved: 1 while the ball is in the cup."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain, draw_without_contact


class Domain(AbstractDomain):
    """Catch the ball."""

    xml_file = "ball_in_cup.xml"
    timestep = 0.02
    fields: tuple[str, ...] = ("xpos", "site_xpos")

    def __init__(self) -> None:
        super().__init__()
        self.ball, self.target = self.body("ball")[0], self.site("target")[0]
        self.room = self.model.site_size[self.target, [0, 2]] - self.model.geom_size[self.geom("ball")[0], 0]
        self.joints = self.qpos("ball_x", "ball_z")

    def begin(self, model: Any, data: Any, random: Any) -> None:
        def draw() -> None:
            data.qpos[self.joints] = random.uniform(-0.2, 0.2), random.uniform(0.2, 0.5)

        draw_without_contact(model, data, draw)

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        away = world["site_xpos"][:, self.target, ::2] - world["xpos"][:, self.ball, ::2]
        return (np.abs(away) < self.room).all(axis=1).astype(np.float64)
