"""A finger of two joints and a body on a hinge that it can turn."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.core.errors import UsageError
from dac.envs.batch import World
from dac.envs.dmc.domain import AbstractDomain, columns, draw_joints, length, settle

_ATTEMPTS = 1000


class Domain(AbstractDomain):
    """Turn the body's tip into a target of this radius, or, without a radius, spin the body."""

    xml_file = "finger.xml"
    timestep = 0.02
    fields: tuple[str, ...] = ("sensordata",)

    def __init__(self, radius: float | None = None):
        super().__init__()
        self.radius = radius
        self.target = self.site("target")[0]
        if radius is None:
            self.model.dof_damping[self.qvel("hinge")] = 0.03
            self.model.site_rgba[self.site("target", "tip"), 3] = 0
        else:
            self.varies = ("site_pos",)
            self.model.site_size[self.target, 0] = radius
        self.joints = self.sensor("proximal", "distal")
        self.speeds = self.sensor("proximal_velocity", "distal_velocity", "hinge_velocity")
        self.touch = self.sensor("touchtop", "touchbottom")
        self.tip, self.spinner, self.goal = (self.sensor(name)[::2] for name in ("tip", "spinner", "target"))

    def begin(self, model: Any, data: Any, random: Any) -> None:
        if self.radius is not None:
            angle = random.uniform(-np.pi, np.pi)
            reach = model.geom("cap1").size.sum()
            hinge = data.joint("hinge").xanchor
            model.site_pos[self.target, [0, 2]] = hinge[0] + reach * np.sin(angle), hinge[2] + reach * np.cos(angle)
        for _ in range(_ATTEMPTS):
            draw_joints(model, data, random)
            settle(model, data)
            if data.ncon == 0:
                return
        raise UsageError(f"no state of the finger without a contact was found in {_ATTEMPTS} attempts")

    def observe(self, world: World) -> list[np.ndarray]:
        sensors = world["sensordata"]
        tip = sensors[:, self.tip] - sensors[:, self.spinner]
        parts = [sensors[:, self.joints], tip, sensors[:, self.speeds], np.log1p(sensors[:, self.touch])]
        if self.radius is not None:
            parts += [sensors[:, self.goal] - sensors[:, self.spinner], *columns(self._distance(world))]
        return parts

    def earn(self, world: World) -> np.ndarray:
        if self.radius is None:
            return (world["sensordata"][:, self.speeds[2]] <= -15).astype(np.float64)
        return (self._distance(world) <= 0).astype(np.float64)

    def _distance(self, world: World) -> np.ndarray:
        """Return the distances of the tip from the target's surface, negative inside."""
        sensors = world["sensordata"]
        tip, goal = sensors[:, self.tip] - sensors[:, self.spinner], sensors[:, self.goal] - sensors[:, self.spinner]
        return length(goal - tip) - self.radius
