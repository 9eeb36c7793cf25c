"""Successes: what packages say in a step's `info` of whether the task is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

SUCCESS = ("success", "is_success", "solved", "goal_achieved")
"""Keys under which packages say that the task is done; the first that is there counts."""
REMAINING = "tasks_to_complete"
"""Key under which Franka Kitchen lists what is left to do: with nothing left, the task is done."""


def read_success(info: Any) -> bool | None:
    """Return whether a step's `info` says that the task is done; None where it says nothing of it."""
    if not isinstance(info, Mapping):
        return None
    for key in SUCCESS:
        if key in info:
            value = np.asarray(info[key])
            if value.size == 1 and value.dtype.kind in "biuf":
                return bool(value.item() > 0)
    remaining = info.get(REMAINING)
    return None if remaining is None else len(remaining) == 0
