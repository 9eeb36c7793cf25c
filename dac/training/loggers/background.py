"""A logger on a thread of its own: training hands it rows and never waits for it.

The queue is bounded: of a logger that blocks, evaluations are left out, and the run says so. One that raises is
switched off with a warning. At the end the run waits for it, but not for long.
"""

from __future__ import annotations

import abc
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dac.training.loggers.series import NO_METRICS, Group, Record, find_groups, make_record
from dac.training.watchers import AbstractWatcher, Evaluation, Position, Start

QUEUE = 100
"""Evaluations that may wait for a logger."""
SHORT, LONG = 1.0, 10.0
"""Seconds that the end of a run waits for a logger before it says so, and in all."""


class AbstractLogger(abc.ABC):
    """Where evaluations go; its methods are called on one thread, and what they raise switches it off."""

    @abc.abstractmethod
    def open(self, start: Start, groups: Sequence[Group]) -> str | None:
        """Begin a run, or go on with one of the same directory; returns a line for a person, if there is one."""

    @abc.abstractmethod
    def restore(self, step: int) -> None:
        """Go on after this environment step: what comes later is made again."""

    @abc.abstractmethod
    def write(self, record: Record) -> None:
        """Write one evaluation."""

    @abc.abstractmethod
    def close(self) -> None:
        """Finish what was begun."""


class Background(AbstractWatcher):
    """Passes evaluations on to a logger."""

    def __init__(self, name: str, logger: AbstractLogger):
        self._name, self._logger = name, logger
        self._queue: queue.Queue[tuple[int, Sequence[Mapping[str, Any]]] | int | None] = queue.Queue(QUEUE)
        self._lines: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._lost = 0
        """Evaluations that found no room in the queue."""

    def on_start(self, start: Start) -> None:
        self._start = start
        self._thread = threading.Thread(target=self._work, name=f"logger {self._name}", daemon=True)
        self._thread.start()

    def on_restore(self, step: int) -> None:
        self._put(step)

    def on_progress(self, position: Position) -> None:
        self._speak()

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._put((evaluation.step, evaluation.rows))
        self._speak()

    def on_end(self, error: BaseException | None) -> None:
        self._ending.set()
        self._put(None)
        self._thread.join(SHORT)
        if self._thread.is_alive():
            self._start.say(f"waiting up to {LONG:g} s for the logger {self._name}")
            self._thread.join(LONG - SHORT)
        self._speak()
        if self._thread.is_alive():
            text = f"the logger {self._name} did not end within {LONG:g} s: the last evaluations may be missing there"
            self._start.say(f"{text}; metrics.csv has them all", warning=True)
        elif self._lost:
            text = f"the logger {self._name} was too slow for {self._lost} evaluations"
            self._start.say(f"{text}; metrics.csv has them all", warning=True)

    def _put(self, item: tuple[int, Sequence[Mapping[str, Any]]] | int | None) -> None:
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            if item is None:
                return  # what it gets next is the last
            self._lost += 1
            if self._lost == 1:
                text = f"the logger {self._name} is too slow: evaluations are left out there"
                self._start.say(f"{text}; metrics.csv has them all", warning=True)

    def _speak(self) -> None:
        """Say on the run's own thread what the logger's has to say."""
        while not self._lines.empty():
            text, warning = self._lines.get()
            self._start.say(text, warning=warning)

    def _work(self) -> None:
        try:
            self._log()
        except BaseException as error:  # a library may even ask the process to exit
            first = (str(error).splitlines() or [""])[0]
            text = f"the logger {self._name} failed and is switched off ({type(error).__name__}: {first})"
            self._lines.put((f"{text}; metrics.csv has every row", True))

    def _log(self) -> None:
        config = self._start.config
        groups, left_out = find_groups(config, self._start.members), {*NO_METRICS, *config.varied()}
        if line := self._logger.open(self._start, groups):
            self._lines.put((line, False))
        while not (self._ending.is_set() and self._queue.empty()):
            item = self._queue.get()
            if isinstance(item, int):
                self._logger.restore(item)
            elif item is not None:
                self._logger.write(make_record(*item, groups, left_out))
        self._logger.close()
