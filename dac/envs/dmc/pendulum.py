"""A pendulum whose motor is too weak to lift it at once; only standing within 8 degrees of the top counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import XZ, ZZ, AbstractDomain
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Swing up and stand; an episode starts at any angle."""

    xml_file = "pendulum.xml"
    fields: tuple[str, ...] = ("xmat",)

    def __init__(self) -> None:
        super().__init__()
        self.pole = self.body("pole")[0]

    def begin(self, model: Any, data: Any, random: Any) -> None:
        data.qpos[0] = random.uniform(-np.pi, np.pi)

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["xmat"][:, self.pole, [ZZ, XZ]], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        return tolerance(world["xmat"][:, self.pole, ZZ], np.cos(np.deg2rad(8)), 1)
