"""What a logger is given of an evaluation: the numbers of every member, and of every group their mean and interval.

The members of a group differ in their seeds alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dac.config import RunConfig
from dac.core.population import Member

NO_METRICS = ("member", "seed", "step")


@dataclasses.dataclass(frozen=True)
class Group:
    """Members that differ in their seeds alone."""

    name: str
    """What varies between the groups, such as `alpha 0.5`; the algorithm where there is one group."""
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Spread:
    """A mean over members and the ends of its 95% interval, which one member does not have."""

    mean: float
    low: float | None
    high: float | None


@dataclasses.dataclass(frozen=True)
class Record:
    """One evaluation, by metric."""

    step: int
    """Environment steps per member."""
    members: Sequence[Mapping[str, float]]
    groups: Sequence[Mapping[str, Spread]]
    """Of the members that are not frozen."""


def find_groups(config: RunConfig, members: Sequence[Member]) -> list[Group]:
    """Return the groups of a population, in the order of their members."""
    found: dict[str, list[int]] = {}
    for index, member in enumerate(members):
        name = ", ".join(f"{name} {member.hyper[name]:g}" for name in config.varied()) or config.algorithm
        found.setdefault(name, []).append(index)
    return [Group(name, tuple(indices)) for name, indices in found.items()]


def make_record(step: int, rows: Sequence[Mapping[str, Any]], groups: Sequence[Group], left_out: set[str]) -> Record:
    """Return what there is to log of an evaluation's rows: numbers that are finite, without the columns left out."""
    members = [
        {name: float(v) for name, v in row.items() if name not in left_out and v is not None and math.isfinite(v)}
        for row in rows
    ]
    spreads = []
    for group in groups:
        healthy = [members[index] for index in group.members if not rows[index]["frozen"]]
        names = dict.fromkeys(name for values in healthy for name in values)
        spreads.append({name: spread([values[name] for values in healthy if name in values]) for name in names})
    return Record(step, members, spreads)


def spread(values: Sequence[float]) -> Spread:
    """Return the mean of some values and its 95% interval by Student's t distribution."""
    from scipy.special import stdtrit  # on the logger's thread, so that no help text waits for it

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Spread(mean, None, None)
    half = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(count))
    return Spread(mean, mean - half, mean + half)


def describe(config: RunConfig) -> dict[str, Any]:
    """Return every setting of a run as plain values."""
    settings = {"algorithm": config.algorithm, "task": config.task, "seeds": list(config.seeds)}
    return settings | {name: plain(value) for name, value in _values(config).items()}


def plain(value: Any) -> Any:
    """Lists for tuples, and text for a number that is not finite, such as a clip of inf, which JSON has no word for."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _values(config: RunConfig) -> dict[str, Any]:
    return dataclasses.asdict(config.training) | dict(config.hyper)
