"""Every task of the suite by name, as plain text: naming the tasks needs neither dm_control nor MuJoCo.

The sizes are checked against the environments by a test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dac.core.spec import EnvSpec

HORIZON = 1000
"""Steps of an episode in every task; dm_control gives the time, which is as many steps."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A task of the suite: the module of its domain here, the settings of the domain, and its sizes."""

    domain: str
    settings: Mapping[str, Any]
    spec: EnvSpec
    summary: str
    benchmark: bool = True
    """Whether the suite counts it among the tasks of its benchmark."""


def _entry(
    domain: str, obs_size: int, action_size: int, summary: str, benchmark: bool = True, **settings: Any
) -> Entry:
    return Entry(domain, settings, EnvSpec(obs_size, action_size), summary, benchmark)


ENTRIES: dict[str, Entry] = {
    "acrobot-swingup": _entry("acrobot", 6, 1, "two links, one motor: lift the tip to the target", sparse=False),
    "acrobot-swingup_sparse": _entry(
        "acrobot", 6, 1, "two links, one motor: 1 while the tip is in the target", sparse=True
    ),
    "ball_in_cup-catch": _entry("ball_in_cup", 8, 2, "1 while the ball on a string is in the cup"),
    "cartpole-balance": _entry("cartpole", 5, 1, "keep a pole upright on a cart", swing_up=False),
    "cartpole-balance_sparse": _entry(
        "cartpole", 5, 1, "1 while the pole is upright and the cart in the middle", swing_up=False, sparse=True
    ),
    "cartpole-swingup": _entry("cartpole", 5, 1, "swing up a hanging pole and keep it upright", swing_up=True),
    "cartpole-swingup_sparse": _entry(
        "cartpole",
        5,
        1,
        "swing up a hanging pole: 1 while it is upright and the cart in the middle",
        swing_up=True,
        sparse=True,
    ),
    "cartpole-two_poles": _entry(
        "cartpole", 8, 1, "swing up two poles in a chain", benchmark=False, swing_up=True, poles=2
    ),
    "cartpole-three_poles": _entry(
        "cartpole", 11, 1, "swing up three poles in a chain", benchmark=False, swing_up=True, poles=3
    ),
    "cheetah-run": _entry("cheetah", 17, 6, "run forward, up to 10 m/s"),
    "dog-stand": _entry("dog", 223, 38, "stand on four legs", False),
    "dog-walk": _entry("dog", 223, 38, "walk forward, at 1 m/s", False, speed=1),
    "dog-trot": _entry("dog", 223, 38, "trot forward, at 3 m/s", False, speed=3),
    "dog-run": _entry("dog", 223, 38, "run forward, at 9 m/s", False, speed=9),
    "dog-fetch": _entry("dog", 232, 38, "bring a thrown ball to a place", False, fetch=True),
    "finger-spin": _entry("finger", 9, 2, "1 while a body spins at 15 rad/s"),
    "finger-turn_easy": _entry("finger", 12, 2, "1 while a body's tip is in a target of 7 cm", radius=0.07),
    "finger-turn_hard": _entry("finger", 12, 2, "1 while a body's tip is in a target of 3 cm", radius=0.03),
    "fish-upright": _entry("fish", 21, 5, "float upright", swim=False),
    "fish-swim": _entry("fish", 24, 5, "swim to a target", swim=True),
    "hopper-stand": _entry("hopper", 15, 4, "stand on one leg", hopping=False),
    "hopper-hop": _entry("hopper", 15, 4, "hop forward, up to 2 m/s; 0 unless it stands", hopping=True),
    "humanoid-stand": _entry("humanoid", 67, 21, "stand on two legs", speed=0),
    "humanoid-walk": _entry("humanoid", 67, 21, "walk in any direction, up to 1 m/s", speed=1),
    "humanoid-run": _entry("humanoid", 67, 21, "run in any direction, up to 10 m/s", speed=10),
    "humanoid-run_pure_state": _entry(
        "humanoid", 55, 21, "run in any direction, seen as coordinates and velocities", False, speed=10, pure_state=True
    ),
    "humanoid_CMU-stand": _entry("humanoid_CMU", 137, 56, "stand, with the joints of recorded people", False, speed=0),
    "humanoid_CMU-walk": _entry("humanoid_CMU", 137, 56, "walk in any direction, up to 1 m/s", False, speed=1),
    "humanoid_CMU-run": _entry("humanoid_CMU", 137, 56, "run in any direction, up to 10 m/s", False, speed=10),
    "lqr-lqr_2_1": _entry(
        "lqr", 4, 1, "two bodies on springs, one pushed: bring them to rest", False, bodies=2, motors=1
    ),
    "lqr-lqr_6_2": _entry("lqr", 12, 2, "six bodies on springs, two pushed", False, bodies=6, motors=2),
    "manipulator-bring_ball": _entry("manipulator", 44, 5, "bring a ball to a place", peg=False, insert=False),
    "manipulator-bring_peg": _entry("manipulator", 44, 5, "bring a peg to a place", False, peg=True, insert=False),
    "manipulator-insert_ball": _entry("manipulator", 44, 5, "put a ball into a cup", False, peg=False, insert=True),
    "manipulator-insert_peg": _entry("manipulator", 44, 5, "put a peg into a slot", False, peg=True, insert=True),
    "pendulum-swingup": _entry("pendulum", 3, 1, "1 while the pendulum stands within 8 degrees of the top"),
    "point_mass-easy": _entry("point_mass", 4, 2, "bring a point to the middle", random_motors=False),
    "point_mass-hard": _entry(
        "point_mass",
        4,
        2,
        "bring a point to the middle, with motors that pull elsewhere in every episode",
        False,
        random_motors=True,
    ),
    "quadruped-walk": _entry("quadruped", 78, 12, "walk forward, at 0.5 m/s", False, task="move", speed=0.5),
    "quadruped-run": _entry("quadruped", 78, 12, "run forward, at 5 m/s", False, task="move", speed=5),
    "quadruped-escape": _entry("quadruped", 101, 12, "climb out of a bowl", False, task="escape"),
    "quadruped-fetch": _entry("quadruped", 90, 12, "bring a ball to a place", False, task="fetch"),
    "reacher-easy": _entry("reacher", 6, 2, "1 while the finger touches a target of 5 cm", radius=0.05),
    "reacher-hard": _entry("reacher", 6, 2, "1 while the finger touches a target of 1.5 cm", radius=0.015),
    "stacker-stack_2": _entry("stacker", 49, 5, "stack two boxes", False, boxes=2),
    "stacker-stack_4": _entry("stacker", 63, 5, "stack four boxes", False, boxes=4),
    "swimmer-swimmer6": _entry("swimmer", 25, 5, "bring the nose of six links to a target", links=6),
    "swimmer-swimmer15": _entry("swimmer", 61, 14, "bring the nose of fifteen links to a target", links=15),
    "walker-stand": _entry("walker", 24, 6, "stand upright on two legs", speed=0),
    "walker-walk": _entry("walker", 24, 6, "walk forward, up to 1 m/s", speed=1),
    "walker-run": _entry("walker", 24, 6, "run forward, up to 8 m/s", speed=8),
}
"""Every task by `DOMAIN-TASK`."""
