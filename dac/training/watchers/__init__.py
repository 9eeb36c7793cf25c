"""Watchers see a run while it goes on: progress bars, the metrics file, the log, and whatever a user adds.

A run calls its watchers in order and gives them plain values. A watcher can ask the run to stop; it can change nothing
else in training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dac.config import RunConfig
from dac.core.population import Member


@dataclasses.dataclass(frozen=True)
class Start:
    """A run begins, or goes on."""

    config: RunConfig
    """Every setting of the run."""
    directory: Path
    """Where the run writes."""
    members: Sequence[Member]
    """The population, in the order of every row and array."""


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run is."""

    step: int
    """Environment steps per member."""
    rate: float | None
    """Agent-steps per second while training, or None while the first programs compile."""
    shown: Mapping[str, float]
    """Means of the latest evaluation over the members that are not frozen."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation: what is written to metrics.csv, one row per member."""

    step: int
    """Environment steps per member."""
    rows: Sequence[Mapping[str, Any]]
    """One row per member: column and value."""

    def mean(self, column: str) -> float:
        """Mean of a column over the members that are not frozen; of all members where every one is."""
        healthy = [row for row in self.rows if not row["frozen"]] or self.rows
        return float(np.mean([row[column] for row in healthy]))


@dataclasses.dataclass(frozen=True)
class Message:
    """A line for a person."""

    text: str
    """The line itself."""
    warning: bool = False
    """Whether something went wrong: a frozen member, a checkpoint that could not be written, a suspicious metric."""


class AbstractWatcher:
    """Sees one run from its start to its end; each method does nothing unless a watcher overrides it."""

    def on_start(self, start: Start) -> None:
        """Called once, before the first step."""

    def on_message(self, message: Message) -> None:
        """Called with every line that a person should see."""

    def on_progress(self, position: Position) -> str | None:
        """Called after every chunk of steps. The run stops for the reason that is returned, if one is."""

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        """Called with the rows of every evaluation. The run stops for the reason that is returned, if one is."""

    def on_checkpoint(self, step: int) -> None:
        """Called when a checkpoint of that environment step has been handed to the disk."""

    def on_end(self, error: BaseException | None) -> None:
        """Called once, whatever happened; `error` is None where the run ended as it should."""


class Watchers(AbstractWatcher):
    """Several watchers as one, in order."""

    def __init__(self, watchers: Sequence[AbstractWatcher]):
        self._watchers = list(watchers)

    def on_start(self, start: Start) -> None:
        for watcher in self._watchers:
            watcher.on_start(start)

    def on_message(self, message: Message) -> None:
        for watcher in self._watchers:
            watcher.on_message(message)

    def on_progress(self, position: Position) -> str | None:
        return _first([watcher.on_progress(position) for watcher in self._watchers])

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        return _first([watcher.on_evaluation(evaluation) for watcher in self._watchers])

    def on_checkpoint(self, step: int) -> None:
        for watcher in self._watchers:
            watcher.on_checkpoint(step)

    def on_end(self, error: BaseException | None) -> None:
        for watcher in self._watchers:
            watcher.on_end(error)


def _first(reasons: Sequence[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
