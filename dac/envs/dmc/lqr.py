"""Bodies on a line, joined by springs, of which the first ones are pushed: a linear system with a quadratic cost."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain
from dac.envs.dmc.files import compile_model, parse


class Domain(AbstractDomain):
    """Bring so many bodies to rest; an episode terminates once they are.

    dm_control draws the springs anew for every environment and has neither bounds for the actions nor a time limit.
    Here the springs are those of its seed 0, because the members of a population have to have the same task, the
    actions end at 1, where an action costs a tenth of what a body a metre away does, and an episode has 1000 steps.
    """

    xml_file = "lqr.xml"

    def __init__(self, bodies: int, motors: int):
        self.bodies, self.motors = bodies, motors
        super().__init__()

    def compile(self) -> Any:
        random = np.random.RandomState(0)
        tree = parse(self.xml_file)
        parent = tree.find("./worldbody")
        assert parent is not None
        actuators, tendons = ElementTree.SubElement(tree, "actuator"), ElementTree.SubElement(tree, "tendon")
        for number in range(self.bodies):
            height = ".1" if number == 0 else "0"
            parent = ElementTree.SubElement(parent, "body", name=f"body_{number}", pos=f".25 0 {height}")
            spring = {"stiffness": str(random.uniform(15, 25)), "damping": str(random.uniform(0, 0))}
            ElementTree.SubElement(parent, "joint", {"name": f"joint_{number}"} | spring)
            ElementTree.SubElement(parent, "geom", name=f"geom_{number}")
            ElementTree.SubElement(parent, "site", name=f"site_{number}")
            if number < self.motors:
                ElementTree.SubElement(actuators, "motor", name=f"motor_{number}", joint=f"joint_{number}")
            if number < self.bodies - 1:
                line = ElementTree.SubElement(tendons, "spatial", name=f"tendon_{number}")
                for end in (number, number + 1):
                    ElementTree.SubElement(line, "site", site=f"site_{end}")
        return compile_model(tree)

    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        return -np.ones(self.motors), np.ones(self.motors)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        place = random.standard_normal(self.bodies)
        data.qpos[:] = np.sqrt(2) * place / np.linalg.norm(place)

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        position, action = (np.square(world[name]).sum(axis=1) / 2 for name in ("qpos", "ctrl"))
        return 1 - (position + 0.1 * action)

    def ends(self, world: World) -> np.ndarray:
        state = np.concatenate([world["qpos"], world["qvel"]], axis=1)
        return np.sqrt(np.square(state).sum(axis=1)) < 1e-6
