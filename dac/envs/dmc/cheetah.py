"""Two legs and a long back in a plane: run forward, up to 10 m/s."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.envs.batch import World
from dac.envs.dmc.domain import INF, AbstractDomain
from dac.envs.dmc.tolerance import tolerance


class Domain(AbstractDomain):
    """Run."""

    xml_file = "cheetah.xml"
    fields: tuple[str, ...] = ("sensordata",)

    def __init__(self) -> None:
        super().__init__()
        self.speed = self.sensor("torso_subtreelinvel")[0]

    def begin(self, model: Any, data: Any, random: Any) -> None:
        import mujoco

        limited = model.jnt_limited == 1
        data.qpos[limited] = random.uniform(*model.jnt_range[limited].T)
        # It falls for 200 steps. The first one uses what was computed before the joints were drawn, as dm_control's
        # does; an episode would otherwise start elsewhere.
        mujoco.mj_step2(model, data)
        mujoco.mj_step(model, data, 199)
        data.time = 0

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], world["qvel"]]

    def earn(self, world: World) -> np.ndarray:
        return tolerance(world["sensordata"][:, self.speed], 10, INF, margin=10, slope="linear", value=0)
