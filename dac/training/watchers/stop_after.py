"""Stops a run after some time."""

from __future__ import annotations

import time

from dac.core.types import UsageError
from dac.training.watchers import AbstractWatcher, Position, Start


class StopAfter(AbstractWatcher):
    """Stops after so much wall-clock time of this process, compiling included; a run that goes on has as much again."""

    def __init__(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0):
        self.seconds = seconds + 60 * minutes + 3600 * hours
        if not self.seconds > 0:
            raise UsageError(f"a time budget must be above 0 seconds, not {self.seconds:g}")

    def on_start(self, start: Start) -> None:
        self._end = time.monotonic() + self.seconds

    def on_progress(self, position: Position) -> str | None:
        return f"its {self.seconds:g} seconds are over" if time.monotonic() >= self._end else None
