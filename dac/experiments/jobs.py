"""Populations side by side, each in a process of its own with its share of the cores.

One population of small networks does not fill a GPU, and while it evaluates it hardly uses it. Processes and not
threads: two loops in one would wait for each other's Python.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from dac.experiments.plan import Job
from dac.training.memory import PROCESSES
from dac.training.run import Progress, run
from dac.training.signals import Interrupted, Signals
from dac.types import UsageError


def share_machine(count: int) -> None:
    """Have JAX, where it is not yet in use, take what it needs of a GPU, at most this share; the same for memory."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / count:.3f}")
    os.environ[PROCESSES] = str(count)


def split_cores(count: int) -> list[set[int]]:
    """The cores this process may use, as evenly as they go; all of them for everyone if there are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return [set() for _ in range(count)]
    cores = sorted(os.sched_getaffinity(0))
    bounds = [len(cores) * i // count for i in range(count + 1)]
    return [set(cores[start:end]) or set(cores) for start, end in itertools.pairwise(bounds)]


def run_side_by_side(jobs: Sequence[Job], count: int, part: Callable[[int], Progress], command: str = "") -> None:
    """Run every job, `count` at a time. A signal, or one that fails, stops the others too; they save first."""
    count = min(count, len(jobs))
    share_machine(count)
    waiting, running, failures = list(enumerate(jobs)), list[_Worker](), list[str]()
    slots = split_cores(count)

    def stop() -> None:
        for worker in running:
            worker.stop()

    with Signals(stop) as signals:
        try:
            while True:
                while waiting and len(running) < count and not failures and signals.received is None:
                    number, job = waiting.pop(0)
                    running.append(_Worker(job, part(number), slots.pop()))
                if failures or signals.received is not None:  # perhaps while one was being started
                    stop()
                if not running:
                    break
                ready = wait([worker.pipe for worker in running])
                for worker in [worker for worker in running if worker.pipe in ready and not worker.listen()]:
                    running.remove(worker)
                    slots.append(worker.cores)
                    failures += [] if worker.failure is None else [worker.failure]
        finally:  # whatever went wrong here, they save, and nobody is left behind
            stop()
            for worker in running:
                worker.finish()
        if failures:
            raise UsageError(failures[0])
        if signals.received is not None:
            again = f"; continue with: {command}" if command else ""
            raise Interrupted(f"stopped{again}", signals.received)


class _Worker:
    """A population in another process, seen from here."""

    def __init__(self, job: Job, progress: Progress, cores: set[int]):
        self.cores = cores
        self.failure: str | None = None
        self._progress, self._job = progress, job
        self._asked = self._ended = False
        context = multiprocessing.get_context("spawn")  # a fork of a process that runs JAX may hang
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(job, theirs))
        with _inherited(cores):
            self._process.start()
        theirs.close()  # so that the pipe ends when the process does
        progress.__enter__()

    def listen(self) -> bool:
        """Pass on what it has to say; False when it has ended."""
        message = self._receive()
        if message is None:
            self._progress.__exit__(None, None, None)
            return False
        kind, *values = message
        if kind == "announce":
            self._progress.announce(*values)
        elif kind == "update":
            steps, rate, shown = values
            self._progress.update(steps, rate, **shown)
        elif kind == "failed":
            self.failure = values[0]
        elif kind == "ended":
            self._ended = True
        return True

    def _receive(self) -> tuple[Any, ...] | None:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):  # the second where it died in the middle of a message
            self._process.join()
        code = self._process.exitcode
        early = self._asked and code == -signal.SIGTERM  # before it had anything to save
        if self.failure is None and not self._ended and not early:
            self.failure = f"the process of {self._job.directory} ended with code {code}"
        return None

    def stop(self) -> None:
        """Ask it to save and end."""
        if not self._asked:
            self._asked = True
            self._process.terminate()

    def finish(self) -> None:
        """Wait for its end, showing nothing more."""
        while self._receive() is not None:
            pass


@contextlib.contextmanager
def _inherited(cores: set[int]) -> Iterator[None]:
    """What a process that is started meanwhile gets: its cores, and no Ctrl-C, which is passed on from here."""
    before = os.sched_getaffinity(0) if cores else set()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if cores:
            os.sched_setaffinity(0, cores)
        yield
    finally:
        if cores:
            os.sched_setaffinity(0, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(job: Job, pipe: Connection) -> None:
    """The other process."""
    from dac.cli import enable_compilation_cache

    Signals.patient = True  # whoever stops a whole group of processes stops this one twice
    enable_compilation_cache()
    sender = _Sender(pipe)
    try:
        run(job.config, job.directory, sender, resuming=job.resume)
    except KeyboardInterrupt as interruption:
        sender.announce(str(interruption) or "stopped")
    except UsageError as error:
        sender.send("failed", str(error))
        return
    sender.send("ended")


class _Sender:
    """Progress that is shown elsewhere. When nobody listens any more, the run saves and ends."""

    def __init__(self, pipe: Connection):
        self._pipe, self._alone = pipe, False

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...

    def send(self, *message: Any) -> None:
        if self._alone:
            return
        try:
            self._pipe.send(message)
        except OSError:
            self._alone = True
            signal.raise_signal(signal.SIGTERM)

    def announce(self, text: str) -> None:
        self.send("announce", text)

    def update(self, steps: int, rate: float | None, **values: float) -> None:
        self.send("update", steps, rate, values)
