"""A chain of links in a plane of viscous fluid."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain, draw_joints, flat, into_frame, length
from dac.envs.dmc.files import compile_model, find, parse
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Bring the nose of a chain of so many links to a target that is drawn for every episode."""

    xml_file = "swimmer.xml"
    timestep = 0.03
    fields: tuple[str, ...] = ("geom_xpos", "xmat", "sensordata")
    varies: tuple[str, ...] = ("geom_pos", "light_pos")

    def __init__(self, links: int):
        self.links = links
        super().__init__()
        self.head = self.body("head")[0]
        self.nose, self.target = self.geom("nose", "target")
        self.light = self.model.light("target_light").id
        self.size = self.model.geom_size[self.target, 0]

    def compile(self) -> Any:
        tree = parse(self.xml_file)
        motors, sensors = ElementTree.SubElement(tree, "actuator"), ElementTree.SubElement(tree, "sensor")
        parent, bend = find(tree, "body", "head"), 360 / self.links
        for camera in parent.findall("./camera"):
            if camera.get("mode") == "trackcom":
                away = [float(number) * (self.links / 6) for number in camera.get("pos", "").split()]
                camera.set("pos", " ".join(map(str, away)))
        for number in range(self.links - 1):
            parent = ElementTree.SubElement(parent, "body", name=f"segment_{number}", pos="0 .1 0")
            for kind in ("visual", "inertial"):
                ElementTree.SubElement(parent, "geom", {"class": kind, "name": f"{kind}_{number}"})
            ElementTree.SubElement(parent, "site", name=f"site_{number}")
            ElementTree.SubElement(parent, "joint", name=f"joint_{number}", range=f"{-bend} {bend}")
            ElementTree.SubElement(motors, "motor", name=f"motor_{number}", joint=f"joint_{number}")
            ElementTree.SubElement(sensors, "velocimeter", name=f"velocimeter_{number}", site=f"site_{number}")
            ElementTree.SubElement(sensors, "gyro", name=f"gyro_{number}", site=f"site_{number}")
        return compile_model(tree)

    def begin(self, model: Any, data: Any, random: Any) -> None:
        draw_joints(model, data, random)
        reach = 0.3 if random.random() < 0.2 else 2
        place = random.uniform(-reach, reach, 2)
        model.geom_pos[self.target, :2] = model.light_pos[self.light, :2] = place

    def observe(self, world: World) -> list[np.ndarray]:
        # of every link the speed along x and y and the spin about z, behind the twelve entries of other sensors
        links = world["sensordata"][:, 12:].reshape(len(world["qpos"]), -1, 6)[..., [0, 1, 5]]
        return [world["qpos"][:, 3:], self._to_target(world), flat(links)]

    def earn(self, world: World) -> np.ndarray:
        distance = length(self._to_target(world))
        return tolerance(distance, 0, self.size, margin=5 * self.size, slope="long_tail")

    def _to_target(self, world: World) -> np.ndarray:
        away = world["geom_xpos"][:, self.target] - world["geom_xpos"][:, self.nose]
        return into_frame(away, world["xmat"][:, self.head])[:, :2]
