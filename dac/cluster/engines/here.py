"""The engine that starts no process: one population after the other, in this one.

A population of a short plan costs no start of Python then, and a notebook or a test sees what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dac.cluster.engines.base import AbstractEngine, Ended, Event
from dac.experiments.plan import Job
from dac.training.run import run
from dac.training.watchers import AbstractWatcher, Position


class HereEngine(AbstractEngine):
    """Trains in `wait`, shown by `show(number)`, as long as `until` does not say that the time is up.

    What goes wrong in a population goes wrong here: it is raised, as by `dac train`.
    """

    name = "here"

    def __init__(self, show: Callable[[int], AbstractWatcher], until: Callable[[], bool] = lambda: False):
        self._show, self._until = show, until
        self._job: tuple[int, Job] | None = None

    def room(self) -> int:
        return int(self._job is None)

    def begin(self, number: int, job: Job) -> None:
        self._job = number, job

    def wait(self, seconds: float) -> Sequence[Event]:
        del seconds
        if self._job is None:
            return []
        (number, job), self._job = self._job, None
        run(job.config, job.directory, [self._show(number), _Until(self._until)], resuming=job.resume)
        return [Ended(number)]

    def stop(self) -> None:
        """Nothing runs between two calls of `wait`."""

    def close(self) -> None:
        self._job = None


class _Until(AbstractWatcher):
    """Asks a run to stop when the time is up."""

    def __init__(self, until: Callable[[], bool]):
        self._until = until

    def on_progress(self, position: Position) -> str | None:
        return "the budget is used up" if self._until() else None
