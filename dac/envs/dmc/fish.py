"""A fish with a tail and two fins."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import ZZ, AbstractDomain, columns, into_frame, length, normalised
from dac.envs.dmc.tolerance import tolerance

_JOINTS = ("tail1", "tail_twist", "tail2", "finright_roll", "finright_pitch", "finleft_roll", "finleft_pitch")


class Domain(AbstractDomain):
    """Float upright, or with `swim` reach a target that is drawn for every episode."""

    xml_file = "fish.xml"
    timestep = 0.04
    fields: tuple[str, ...] = ("xmat", "geom_xpos", "geom_xmat")

    def __init__(self, swim: bool):
        super().__init__()
        self.swim = swim
        self.torso, self.joints = self.body("torso")[0], self.qpos(*_JOINTS)
        self.mouth, self.target = self.geom("mouth", "target")
        self.near = self.model.geom_size[[self.mouth, self.target], 0].sum()
        if swim:
            self.varies = ("geom_pos",)
        else:
            self.model.geom_rgba[self.target, 3] = 0

    def begin(self, model: Any, data: Any, random: Any) -> None:
        data.qpos[3:7] = normalised(random.standard_normal(4))
        data.qpos[self.joints] = random.uniform(-0.2, 0.2, len(_JOINTS))
        if self.swim:
            model.geom_pos[self.target] = random.uniform((-0.4, -0.4, 0.1), (0.4, 0.4, 0.3))

    def observe(self, world: World) -> list[np.ndarray]:
        joints, upright = world["qpos"][:, self.joints], world["xmat"][:, self.torso, ZZ]
        target = [self._to_target(world)] if self.swim else []
        return [joints, *columns(upright), *target, world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        upright = world["xmat"][:, self.torso, ZZ]
        if not self.swim:
            return tolerance(upright, 1, 1, margin=1)
        there = tolerance(length(self._to_target(world)), 0, self.near, margin=2 * self.near)
        return (7 * there + (upright + 1) / 2) / 8

    def _to_target(self, world: World) -> np.ndarray:
        away = world["geom_xpos"][:, self.target] - world["geom_xpos"][:, self.mouth]
        return into_frame(away, world["geom_xmat"][:, self.mouth])
