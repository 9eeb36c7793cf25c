"""The humanoid with the joints of the CMU's recordings of people."""

from __future__ import annotations

from dac.envs.dmc import humanoid
from dac.envs.dmc.domain import ZY


class Domain(humanoid.Domain):
    """As the other humanoid, with other names; this one's torso stands when its y axis points up."""

    xml_file = "humanoid_CMU.xml"
    timestep = 0.02
    torso, hands_and_feet = "thorax", ("lhand", "lfoot", "rhand", "rfoot")
    upright = ZY
