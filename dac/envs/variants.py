"""The paper's MuJoCo tasks by name: a robot and what it is paid for."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import numpy as np

from dac.core.errors import UsageError
from dac.envs.host import check_count
from dac.envs.robots import ROBOTS


@dataclasses.dataclass(frozen=True)
class Dense:
    """The robot's own reward."""


@dataclasses.dataclass(frozen=True)
class Sparse:
    """1 for every step that ends more than `threshold` beyond the model's initial x, otherwise 0."""

    threshold: float

    def __post_init__(self) -> None:
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float | np.number):
            raise UsageError(f"threshold must be a finite number; got {self.threshold!r}")
        if not math.isfinite(self.threshold):
            raise UsageError(f"threshold must be a finite number; got {self.threshold!r}")


@dataclasses.dataclass(frozen=True)
class Delayed:
    """The dense reward, paid in sums: every `delay` steps of an episode, and what is left when the episode ends.

    The authors' code pays every 20 steps and at a termination; paying at a time-out as well makes the rewards of an
    episode add up to its dense return.
    """

    delay: int = 20

    def __post_init__(self) -> None:
        check_count("delay", self.delay)


Reward: TypeAlias = Dense | Sparse | Delayed


@dataclasses.dataclass(frozen=True)
class Variant:
    """A robot and what it is paid for."""

    robot: str
    reward: Reward


VARIANTS: dict[str, Variant] = {
    **{robot: Variant(robot, Dense()) for robot in ROBOTS},
    "SparseHalfCheetah": Variant("HalfCheetah", Sparse(5.0)),
    "SparseHopper": Variant("Hopper", Sparse(1.0)),
    "SparseWalker2d": Variant("Walker2d", Sparse(1.0)),
    "SparseAnt": Variant("Ant", Sparse(1.0)),
    "DelayedHalfCheetah": Variant("HalfCheetah", Delayed()),
    "DelayedHopper": Variant("Hopper", Delayed()),
    "DelayedWalker2d": Variant("Walker2d", Delayed()),
    "DelayedAnt": Variant("Ant", Delayed()),
}


def find_variant(name: str, *, threshold: float | None = None, delay: int | None = None) -> Variant:
    """Return the variant of that name, with another threshold or delay where one is given."""
    if name not in VARIANTS:
        raise UsageError(f"unknown MuJoCo task {name!r}; known: {', '.join(VARIANTS)}")
    variant = VARIANTS[name]
    if threshold is not None:
        if not isinstance(variant.reward, Sparse):
            raise UsageError(f"{name} has no threshold; only the Sparse tasks do")
        variant = Variant(variant.robot, Sparse(threshold))
    if delay is not None:
        if not isinstance(variant.reward, Delayed):
            raise UsageError(f"{name} has no delay; only the Delayed tasks do")
        variant = Variant(variant.robot, Delayed(delay))
    return variant
