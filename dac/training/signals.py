"""Ctrl-C, `kill` and the end of a terminal end a run after the step under way; a second Ctrl-C or `kill` at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Self


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, and is saved."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.exit_code = 128 + number


class Signals:
    """While entered, calls `stop` at the first SIGINT, SIGTERM or SIGHUP. Does nothing outside the main thread.

    A SIGHUP that is ignored, as `nohup` has it, stays ignored.
    """

    patient: ClassVar[bool] = False
    """Whether a second signal changes nothing: of a process that is stopped by another one, not by a person."""

    def __init__(self, stop: Callable[[], None]):
        self._stop = stop
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.received is not None and exception[0] is None:
            signal.raise_signal(self.received)  # too late to stop this run, so it is for whoever comes next

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.received is not None:
            if self.patient or number == signal.SIGHUP:  # a terminal that closes and its shell may both send one
                return
            os._exit(128 + number)
        self.received = number
        self._stop()
