"""The arm of the manipulator, and boxes; one is to be brought to a height at which it has to stand on others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import INF, draw_without_contact
from dac.envs.dmc.files import compile_model, parse, remove
from dac.envs.dmc.manipulator import AbstractArm
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractArm):
    """Bring one of so many boxes to the target and take the hand away."""

    xml_file = "stacker.xml"
    varies: tuple[str, ...] = ("body_pos",)

    def __init__(self, boxes: int):
        self.names = [f"box{number}" for number in range(boxes)]
        super().__init__()
        self.boxes, self.sites = self.body(*self.names), self.site(*self.names)
        self.goal, self.target = self.body("target")[0], self.site("target")[0]
        self.size = self.model.geom("target").size[0]
        self.speeds = self.qvel(*(f"{name}_{axis}" for name in self.names for axis in "xyz"))

    def compile(self) -> Any:
        tree = parse(self.xml_file)
        remove(tree, "body", [f"box{number}" for number in range(len(self.names), 4)])
        return compile_model(tree)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_without_contact(model, data, lambda: self._draw(model, data, random))

    def _draw(self, model: Any, data: Any, random: Any) -> None:
        self.draw_arm(data, random)
        model.body_pos[self.goal, 2] = self.size * (2 * random.choice(len(self.names)) + 1)
        model.body_pos[self.goal, 0] = random.uniform(-0.37, 0.37)
        for name in self.names:
            data.joint(f"{name}_x").qpos = random.uniform(0.1, 0.3)
            data.joint(f"{name}_z").qpos = random.uniform(0, 0.7)
            data.joint(f"{name}_y").qpos = random.uniform(0, 2 * np.pi)

    def observe(self, world: World) -> list[np.ndarray]:
        place = world["xpos"][:, self.goal, ::2]
        return [*self.observe_arm(world), *self.pose(world, self.boxes), world["qvel"][:, self.speeds], place]

    def earn(self, world: World) -> np.ndarray:
        nearest = self.between(world, self.sites, self.target).min(axis=1)
        hand = self.between(world, self.grasp, self.target)
        return tolerance(nearest, margin=2 * self.size) * tolerance(hand, 0.1, INF, margin=0.01)
