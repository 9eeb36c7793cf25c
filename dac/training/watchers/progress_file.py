"""progress.json: what `dac status` and the live report cannot read off metrics.csv."""

from __future__ import annotations

import collections
import contextlib
import json
import time
from pathlib import Path

from dac.core.errors import UsageError
from dac.rundir.files import write_atomically
from dac.rundir.lock import Fenced
from dac.rundir.names import PROGRESS
from dac.training.watchers import AbstractWatcher, Message, Position, Start

WINDOW = 60
"""Seconds of the past from which the time left is estimated; evaluations and checkpoints are in it."""
WARNINGS = 20
"""Warnings that are kept, the latest ones."""
TRACE, WAY_ON = "; its traceback is in ", "; the last checkpoint is "
"""How an error goes on after what happened; a table of many runs has room for what happened alone."""


class ProgressFile(AbstractWatcher):
    """Writes step, speed, time left and warnings at most once a second; a write that fails is left out.

    One that is refused, because another process has taken the run over, ends the run in this one.
    """

    essential = True

    def __init__(self, directory: Path):
        self._path = directory / PROGRESS
        self._warnings: collections.deque[str] = collections.deque(maxlen=WARNINGS)
        self._seen: collections.deque[tuple[float, int]] = collections.deque(maxlen=WINDOW)
        self._written = -1.0
        self._step = 0
        self._rate: float | None = None

    def on_start(self, start: Start) -> None:
        self._steps, self._devices = start.config.training.steps, start.devices
        self._write(None)

    def on_restore(self, step: int) -> None:
        self._step = step
        self._write(None)

    def on_message(self, message: Message) -> None:
        if message.warning:
            self._warnings.append(message.text)

    def on_progress(self, position: Position) -> None:
        self._step, self._rate = position.step, position.rate
        now = time.monotonic()
        if now - self._written >= 1:
            self._seen.append((now, position.step))
            self._write(None)

    def on_end(self, error: BaseException | None) -> None:
        with contextlib.suppress(Fenced):  # the others have to be told of the end too
            self._write("ended" if error is None else _what_happened(error))

    def _write(self, end: str | None) -> None:
        self._written = time.monotonic()
        content = {
            "step": self._step,
            "agent_steps_per_second": self._rate,
            "devices": self._devices,
            "seconds_left": self._left(),
            "time": time.time(),
            "end": end,
            "warnings": list(self._warnings),
        }
        try:  # not synced: after a power failure nothing of it is true anyway
            write_atomically(self._path, (json.dumps(content) + "\n").encode(), sync=False)
        except Fenced:  # the run is another process's now, and this one ends
            raise
        except UsageError:
            return

    def _left(self) -> float | None:
        """Seconds to the end at the pace of the last minute, or None while that is not known."""
        if len(self._seen) < 2:
            return None
        (first, before), (last, now) = self._seen[0], self._seen[-1]
        return (self._steps - self._step) * (last - first) / (now - before) if now > before else None


def _what_happened(error: BaseException) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.partition(TRACE)[0].partition(WAY_ON)[0]
