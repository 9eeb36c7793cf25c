"""Stops a run that has reached a return."""

from __future__ import annotations

import math
from typing import Literal, get_args

from dac.core.types import UsageError
from dac.training.watchers import AbstractWatcher, Evaluation

Whose = Literal["all", "any", "mean"]
"""Whose return has to be reached: that of all members, of any, or their mean."""
WHOSE = get_args(Whose)
"""The same, to be checked against."""


class StopOnReturn(AbstractWatcher):
    """Stops as soon as an evaluation's return is at least `threshold`: for all members, for any, or in their mean.

    Frozen members are not asked.
    """

    def __init__(self, threshold: float, members: Whose = "all"):
        self.threshold, self.members = _number("threshold", threshold), check_whose(members)

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        if self.members == "mean":
            reached = evaluation.mean("return") >= self.threshold
        else:
            passed = [evaluation.rows[index]["return"] >= self.threshold for index in evaluation.healthy()]
            reached = all(passed) if self.members == "all" else any(passed)
        who = {"all": "every member has", "any": "a member has", "mean": "the mean over members has"}[self.members]
        return f"{who} reached a return of {self.threshold:g}" if reached else None


def check_whose(members: Whose) -> Whose:
    """Return whose return counts, or say what is accepted."""
    if members not in WHOSE:
        raise UsageError(f"members must be one of {', '.join(WHOSE)}, not {members!r}")
    return members


def _number(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise UsageError(f"{name} must be a number, not {value!r}")
    return float(value)
