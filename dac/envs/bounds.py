"""An environment's own range of actions, and the way there from [-1, 1] and back."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class ActionBounds:
    """The box of an environment's actions, laid out flat."""

    low: np.ndarray
    high: np.ndarray
    dtype: np.dtype
    shape: tuple[int, ...]
    """The shape in which the environment takes an action."""

    @classmethod
    def of(cls, space: Any) -> ActionBounds:
        """Return the bounds of a Gymnasium Box."""
        low, high = (np.asarray(bound, np.float64).ravel() for bound in (space.low, space.high))
        return cls(low, high, space.dtype, space.shape)

    @classmethod
    def unit(cls, size: int) -> ActionBounds:
        """Return the bounds of an environment whose own range is [-1, 1]."""
        return cls(-np.ones(size), np.ones(size), np.dtype(np.float32), (size,))

    @functools.cached_property
    def middle(self) -> np.ndarray:
        return self.low / 2 + self.high / 2

    @functools.cached_property
    def reach(self) -> np.ndarray:
        return self.high / 2 - self.low / 2

    @functools.cached_property
    def _rounds(self) -> bool:
        """Whether -1 and 1 would come out beside the bounds."""
        return not (
            np.array_equal(self.middle - self.reach, self.low) and np.array_equal(self.middle + self.reach, self.high)
        )

    def stretch(self, actions: np.ndarray) -> np.ndarray:
        """Stretch actions (..., action) from [-1, 1] over the bounds; -1 and 1 and beyond become exactly the bounds."""
        inside = self.middle + self.reach * actions  # in double precision, as the bounds are
        inside = np.minimum(np.maximum(inside, self.low), self.high)
        if self._rounds:
            inside = np.where(actions <= -1, self.low, np.where(actions >= 1, self.high, inside))
        return inside.astype(self.dtype)

    def shrink(self, actions: np.ndarray) -> np.ndarray:
        """Undo `stretch`, up to rounding; where the bounds leave no choice, the action is 0."""
        free = self.reach > 0
        return np.where(free, (actions - self.middle) / np.where(free, self.reach, 1), 0.0).clip(-1, 1)
