"""Takes a study to its end on an engine: begins populations in their order, follows them, tries again what was lost.

The run directories are the truth: what an engine says of a population's end is compared with what its directory
holds, and how far everything is is read from there. So the driver itself may be killed at any time; the same command
plans anew from the directories and goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Sequence

from dac.cluster.engines.base import AbstractEngine, Event, Failed, Lost
from dac.cluster.engines.here import HereEngine
from dac.cluster.engines.local import LocalEngine
from dac.core.types import UsageError
from dac.experiments.budget import Queue
from dac.experiments.plan import Job
from dac.experiments.reproduce import steps_made
from dac.rundir.glance import glance
from dac.training.compilation import enable_compilation_cache
from dac.training.signals import Interrupted, Signals
from dac.training.watchers import AbstractWatcher, Message, Position, Start

TRIES = 3
"""How often a population may be lost in a row without a step being saved in between, before it counts as failed."""
PAUSE = 1.0
"""Seconds between two looks at the signals and at the run directories."""


@dataclasses.dataclass
class Outcome:
    """What became of the populations of a plan, by number."""

    finished: list[int] = dataclasses.field(default_factory=list)
    failed: dict[int, str] = dataclasses.field(default_factory=dict)
    """Why each of them failed for good."""
    open: list[int] = dataclasses.field(default_factory=list)
    """Not begun, or saved and to be continued."""
    retried: int = 0
    """How often a population was begun again because its process was lost."""


class Follower:
    """Shows how far populations are that are trained elsewhere, as their run directories say."""

    def __init__(self, jobs: Sequence[Job], show: Callable[[int], AbstractWatcher]):
        self._jobs, self._show = jobs, show
        self._shown: dict[int, AbstractWatcher] = {}
        self._told: dict[int, set[str]] = {}
        self._next = 0.0

    def begin(self, number: int) -> None:
        """Show a population that begins, or goes on."""
        job, watcher = self._jobs[number], self._show(number)
        self._told[number] = set(glance(job.directory).warnings)
        watcher.on_start(Start(job.config, job.directory, job.config.members()))
        self._shown[number] = watcher

    def look(self) -> None:
        """Look at all that run, now and then: it takes at most a tenth of the time."""
        if (now := time.monotonic()) >= self._next:
            for number in self._shown:
                self._look(number)
            self._next = now + 10 * (time.monotonic() - now)

    def end(self, number: int) -> None:
        if number in self._shown:
            self._look(number)
            self._shown.pop(number).on_end(None)

    def _look(self, number: int) -> None:
        found, watcher = glance(self._jobs[number].directory), self._shown[number]
        for text in found.warnings:
            if text not in self._told[number]:
                self._told[number].add(text)
                watcher.on_message(Message(text, warning=True))
        if found.step:
            shown = {} if found.mean_return is None else {"return": found.mean_return}
            watcher.on_progress(Position(found.step, found.rate, shown))


def drive(
    jobs: Sequence[Job],
    engine: AbstractEngine,
    *,
    queue: Queue | None = None,
    follower: Follower | None = None,
    say: Callable[[str], None] = lambda text: None,
    describe: Callable[[int], str] = lambda number: f"population {number + 1}",
    stop_at_failure: bool = False,
    command: str = "",
    made: Callable[[Job], int] = steps_made,
    pause: float = PAUSE,
) -> Outcome:
    """Train the populations in the order of the queue, as many at a time as the engine has room for, and close it.

    What is lost is begun again, in its place in the order, from its last checkpoint. A signal or the end of the queue's
    budget has all that run save and end; after a signal `Interrupted` names the command that goes on. What fails is
    left out, or stops everything with `stop_at_failure`. `made` says how many steps of a population are saved.
    """
    driver = _Driver(jobs, engine, Queue(len(jobs)) if queue is None else queue, follower, say, describe, made)
    again = f"; continue with: {command}" if command else ""
    with Signals(lambda: None) as signals, contextlib.closing(engine):

        def is_time() -> bool:
            failed = stop_at_failure and bool(driver.outcome.failed)
            return signals.received is not None or driver.queue.used_up() or failed

        try:
            driver.run(is_time, pause)
        except KeyboardInterrupt as interruption:  # of a population in this process, which has saved
            code = getattr(interruption, "exit_code", 128 + signal.SIGINT)
            raise Interrupted(f"{driver.where()}{again}", code - 128) from None
        if stop_at_failure and driver.outcome.failed:
            raise UsageError(next(iter(driver.outcome.failed.values())))
        if signals.received is not None:
            raise Interrupted(f"{driver.where()}{again}", signals.received)
    return driver.outcome


class _Driver:
    """The state of a study while it is driven."""

    def __init__(
        self,
        jobs: Sequence[Job],
        engine: AbstractEngine,
        queue: Queue,
        follower: Follower | None,
        say: Callable[[str], None],
        describe: Callable[[int], str],
        made: Callable[[Job], int],
    ):
        self.queue, self.outcome = queue, Outcome()
        self._jobs, self._engine, self._follower, self._made = jobs, engine, follower, made
        self._say, self._describe = say, describe
        self._running: dict[int, int] = {}
        """The steps that were saved of each population when it was begun."""
        self._losses: dict[int, int] = {}
        self._last = 0

    def run(self, is_time: Callable[[], bool], pause: float) -> None:
        """Begin, wait and begin again, until nothing is left or it is time to stop and everything is saved."""
        stopping = False
        while True:
            if is_time() and not stopping:
                stopping = True
                self._engine.stop()
            nothing_fits = False
            while not stopping and not is_time() and self._engine.room() > 0 and not nothing_fits:
                if (number := self.queue.take()) is not None:
                    self._begin(number)
                nothing_fits = number is None
            # without room and with nothing running, the devices are away and will be back
            if not self._running and (stopping or nothing_fits or is_time() or not self.queue.waiting()):
                break
            for event in self._engine.wait(min(pause, self.queue.time_left() or pause)):
                self._end(event, is_time())
            if self._follower is not None:
                self._follower.look()
        self.outcome.open += self.queue.waiting()

    def where(self) -> str:
        """Say where it was stopped, where one comes after the other."""
        one_by_one = isinstance(self._engine, HereEngine)
        return f"stopped in population {self._last + 1} of {len(self._jobs)}" if one_by_one else "stopped"

    def _begin(self, number: int) -> None:
        self._running[number], self._last = self._made(self._jobs[number]), number
        if self._follower is not None:
            self._follower.begin(number)
        self._engine.begin(number, self._jobs[number])

    def _end(self, event: Event, stopping: bool) -> None:
        """Compare what the engine says with what is saved, and decide what comes of the population."""
        number, before = event.number, self._running.pop(event.number)
        if self._follower is not None:
            self._follower.end(number)
        saved = self._made(self._jobs[number])
        if saved >= self._jobs[number].config.training.steps:  # whatever the engine believes
            self.outcome.finished.append(number)
        elif isinstance(event, Failed):
            self._fail(number, event.why)
        elif stopping:  # it was asked to end, and the next study goes on with it
            self.outcome.open.append(number)
        else:
            why = event.why if isinstance(event, Lost) else "its process ended before its last step"
            self._losses[number] = 1 if saved > before else self._losses.get(number, 0) + 1
            if self._losses[number] >= TRIES:
                self._fail(number, f"lost {TRIES} times without a step saved in between: {why}")
                return
            self.outcome.retried += 1
            self._say(f"{self._describe(number)} was lost ({why}); it goes on from step {saved:,}")
            self.queue.put_back(number)

    def _fail(self, number: int, why: str) -> None:
        self.outcome.failed[number] = why
        self._say(f"{self._describe(number)} failed: {why}")


def train(
    jobs: Sequence[Job],
    show: Callable[[int], AbstractWatcher],
    at_once: int = 1,
    command: str = "",
    queue: Queue | None = None,
    engine: AbstractEngine | None = None,
) -> None:
    """Train the populations of a plan in the order of the queue, `at_once` at a time, each shown by `show(number)`.

    Several at a time are in processes of their own, here or where the engine has them. One that fails stops the others,
    which save. Where the queue has a budget, what does not fit is not begun, and what is running at its end saves and
    stops.
    """
    if not jobs:
        return
    enable_compilation_cache()
    queue = Queue(len(jobs)) if queue is None else queue
    if engine is None and at_once == 1:
        drive(jobs, HereEngine(show, queue.used_up), queue=queue, stop_at_failure=True, command=command)
        return
    engine = LocalEngine(min(at_once, len(jobs))) if engine is None else engine
    drive(jobs, engine, queue=queue, follower=Follower(jobs, show), stop_at_failure=True, command=command)
