"""Defaults of Gymnasium environments by their ids, with the source of every number."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from dac.core.spec import EnvSpec


@dataclasses.dataclass(frozen=True)
class Family:
    """Ids of one package that share a kind of reward and length, with their defaults."""

    ids: str
    """A pattern that the whole id matches."""
    summary: str
    training: Mapping[str, Any]
    """Defaults of the training loop."""
    hyper: Mapping[str, Any]
    """Defaults of the algorithm, where it has such a setting."""
    source: str
    extra: str = ""
    """The extra of this package that brings it, if any."""


_ROBOTICS = "robotics"
_BETA = "beta: of the paper's sparse tasks, whose steps pay 0 or 1 too (Table D.2, Han & Sung 2021)"
_ZOO = "gamma and, for FetchReach and FetchPush, steps: RL Zoo's her.yml (SAC with hindsight, which is not here)"
FAMILIES = (
    Family(
        r"PointMaze_\w+",
        "a ball has to find its goal in a maze",
        {"steps": 300_000},
        {"beta": 0.02},
        f"{_BETA}; steps: ours, those of the four-room maze",
        _ROBOTICS,
    ),
    Family(
        r"AntMaze_\w+",
        "an ant has to find its goal in a maze",
        {"steps": 3_000_000, "random_steps": 10_000},
        {"beta": 0.01},
        f"{_BETA}, SparseAnt's; steps and uniform steps: SparseAnt's",
        _ROBOTICS,
    ),
    Family(
        r"FetchReach(Dense)?",
        "an arm brings its hand to a goal",
        {"steps": 20_000},
        {"beta": 0.02, "gamma": 0.95},
        f"{_BETA}; {_ZOO}",
        _ROBOTICS,
    ),
    Family(
        r"Fetch\w+",
        "an arm brings a thing to a goal",
        {"steps": 3_000_000},
        {"beta": 0.02, "gamma": 0.95},
        f"{_BETA}; {_ZOO}",
        _ROBOTICS,
    ),
    Family(
        r"Hand(Reach|Manipulate)\w*",
        "a hand brings its fingers, or what lies in it, to a goal",
        {"steps": 3_000_000},
        {"beta": 0.02},
        f"{_BETA}; steps: ours, as for Fetch",
        _ROBOTICS,
    ),
    Family(
        r"AdroitHand\w+",
        "a hand with tools",
        {"steps": 1_000_000},
        {"beta": 0.2},
        "beta: of the paper's dense tasks, whose steps pay as much (Table D.2, Han & Sung 2021); steps: ours",
        _ROBOTICS,
    ),
    Family(
        r"FrankaKitchen",
        "an arm in a kitchen with several things to do",
        {"steps": 3_000_000},
        {"beta": 0.02},
        f"{_BETA}; steps: ours",
        _ROBOTICS,
    ),
)
"""By id without its version; the first that matches counts."""
ANY = Family(
    r".*",
    "a Gymnasium environment",
    {"steps": 100_000},
    {"beta": 0.2},
    "a guess that suits rewards of the order of 1 per step, as SAC's customary temperature",
)
"""What every other Gymnasium environment has."""


_MAPS = ("UMaze", "Open", "Medium", "Large")
_WHERE = [f"{of}{more}" for of in _MAPS for more in ("", "_Diverse_G", "_Diverse_GR") if of != "UMaze" or not more]
LISTED: dict[str, EnvSpec] = {
    **{f"PointMaze_{where}-v3": EnvSpec(8, 2) for where in _WHERE},
    **{f"AntMaze_{where}-v5": EnvSpec(109, 8) for where in _WHERE},
    "FetchReach-v4": EnvSpec(16, 4),
    **{f"Fetch{what}-v4": EnvSpec(31, 4) for what in ("Push", "Slide", "PickAndPlace")},
    "HandReach-v3": EnvSpec(93, 20),
    **{f"HandManipulate{what}-v1": EnvSpec(75, 20) for what in ("Block", "Egg", "Pen")},
    "AdroitHandDoor-v1": EnvSpec(39, 28),
    "AdroitHandHammer-v1": EnvSpec(46, 26),
    "AdroitHandPen-v1": EnvSpec(45, 24),
    "AdroitHandRelocate-v1": EnvSpec(39, 30),
    "FrankaKitchen-v1": EnvSpec(93, 9),
}
"""Ids that `dac list tasks` shows, with their sizes; there are variants of most, `Dense` or `Sparse`."""


def family_of(env: object) -> Family:
    """Return the family of an id, with or without its module, or of a function that makes an environment."""
    if not isinstance(env, str):
        return ANY
    name = re.sub(r"-v\d+$", "", env.rpartition(":")[2])
    return next((family for family in FAMILIES if re.fullmatch(family.ids, name)), ANY)
