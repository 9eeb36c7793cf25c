"""Two links and one motor, between them: lift the tip to the target above."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import XZ, ZZ, AbstractDomain, length
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Swing up; with `sparse` only the tip inside the target counts."""

    xml_file = "acrobot.xml"
    fields: tuple[str, ...] = ("xmat", "site_xpos")

    def __init__(self, sparse: bool):
        super().__init__()
        self.sparse = sparse
        self.arms = self.body("upper_arm", "lower_arm")
        self.tip, self.target = self.site("tip", "target")
        self.radius = self.model.site_size[self.target, 0]

    def begin(self, model: Any, data: Any, random: Any) -> None:
        data.qpos[:] = random.uniform(-np.pi, np.pi, 2)

    def observe(self, world: World) -> list[np.ndarray]:
        arms = world["xmat"][:, self.arms]
        return [arms[..., XZ], arms[..., ZZ], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        distance = length(world["site_xpos"][:, self.target] - world["site_xpos"][:, self.tip])
        return tolerance(distance, 0, self.radius, margin=0 if self.sparse else 1)
