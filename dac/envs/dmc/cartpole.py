"""A pole, or two or three of them in a chain, on a cart."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import XZ, ZZ, AbstractDomain, flat, small_control
from dac.envs.dmc.files import compile_model, find, parse
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Balance the poles; with `swing_up` they hang down at first, with `sparse` only standing still counts."""

    xml_file = "cartpole.xml"
    fields: tuple[str, ...] = ("xmat",)

    def __init__(self, swing_up: bool, sparse: bool = False, poles: int = 1):
        self.swing_up, self.sparse, self.poles = swing_up, sparse, poles
        super().__init__()

    def compile(self) -> Any:
        tree = parse(self.xml_file)
        if self.poles > 1:
            parent = find(tree, "body", "pole_1")
            for number in range(2, self.poles + 1):
                pole = {"name": f"pole_{number}", "pos": "0 0 1", "childclass": "pole"}
                parent = ElementTree.SubElement(parent, "body", pole)
                ElementTree.SubElement(parent, "joint", name=f"hinge_{number}")
                ElementTree.SubElement(parent, "geom", name=f"pole_{number}")
            find(tree, "geom", "floor").set("pos", f"0 0 {1 - self.poles - 0.05}")
            near, far = tree.findall("./worldbody/camera")
            near.set("pos", f"0 {-1 - 2 * self.poles} 1")
            far.set("pos", f"0 {-2 * self.poles} 2")
        return compile_model(tree)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        if self.swing_up:
            data.qpos[0] = 0.01 * random.standard_normal()
            data.qpos[1] = np.pi + 0.01 * random.standard_normal()
            data.qpos[2:] = 0.1 * random.standard_normal(self.poles - 1)
        else:
            data.qpos[0] = random.uniform(-0.1, 0.1)
            data.qpos[1:] = random.uniform(-0.034, 0.034, self.poles)
        data.qvel[:] = 0.01 * random.standard_normal(model.nv)

    def observe(self, world: World) -> list[np.ndarray]:
        poles = world["xmat"][:, 2:, [ZZ, XZ]]
        return [world["qpos"][:, :1], flat(poles), world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        cart, upright, spin = world["qpos"][:, 0], world["xmat"][:, 2:, ZZ], world["qvel"][:, 1:]
        if self.sparse:
            return tolerance(cart, -0.25, 0.25) * tolerance(upright, 0.995, 1).prod(axis=1)
        centred = (1 + tolerance(cart, margin=2)) / 2
        slow = (1 + tolerance(spin, margin=5).min(axis=1)) / 2
        return ((upright + 1) / 2).mean(axis=1) * small_control(world["ctrl"]) * slow * centred
