"""Trains populations side by side, each in a process of its own with its share of the cores.

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

from dac.core.types import UsageError
from dac.experiments.budget import Queue
from dac.experiments.plan import Job
from dac.training.memory import PROCESSES
from dac.training.run import run
from dac.training.signals import Interrupted, Signals
from dac.training.watchers import AbstractWatcher, Message, Position, Start


@contextlib.contextmanager
def share_machine(count: int) -> Iterator[None]:
    """Limit this process, and those it starts meanwhile, to what is theirs if `count` processes share the machine.

    That is its part of the memory and, where JAX is not yet in use, of the GPU.
    """
    shares = {PROCESSES: str(count)}
    if count > 1:
        gpu = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / count:.3f}"}
        shares |= {name: value for name, value in gpu.items() if name not in os.environ}
    before = {name: os.environ.get(name) for name in shares}
    os.environ.update(shares)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def split_cores(count: int) -> list[set[int]]:
    """Divide the cores of this process among `count` others; each gets all of them if there are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return [set() for _ in range(count)]
    cores = sorted(os.sched_getaffinity(0))
    bounds = [len(cores) * i // count for i in range(count + 1)]
    return [set(cores[start:end]) or set(cores) for start, end in itertools.pairwise(bounds)]


def run_side_by_side(
    jobs: Sequence[Job],
    count: int,
    part: Callable[[int], AbstractWatcher],
    command: str = "",
    queue: Queue | None = None,
) -> None:
    """Run the jobs in the order of the queue, `count` at a time.

    A signal, one job that fails, or the end of the queue's budget stops the others too; they save first.
    """
    count = min(count, len(jobs))
    queue = Queue(len(jobs)) if queue is None else queue
    running, failures = list[_Worker](), list[str]()
    slots = split_cores(count)

    def stop() -> None:
        for worker in running:
            worker.stop()

    with share_machine(count), Signals(stop) as signals:
        try:
            while True:
                while len(running) < count and not failures and signals.received is None:
                    if (number := queue.take()) is None:
                        break
                    running.append(_Worker(jobs[number], part(number), slots.pop()))
                if failures or signals.received is not None or queue.used_up():  # perhaps while one was being started
                    stop()
                if not running:
                    break
                ready = wait([worker.pipe for worker in running], queue.time_left())
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
    """Starts, listens to and stops the process that trains one population."""

    def __init__(self, job: Job, watcher: AbstractWatcher, cores: set[int]):
        self.cores = cores
        self.failure: str | None = None
        self._watcher, self._job = watcher, job
        self._asked = self._ended = False
        context = multiprocessing.get_context("spawn")  # a fork of a process that runs JAX may hang
        self.pipe, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(job, theirs))
        with _inherited(cores):
            self._process.start()
        theirs.close()  # so that the pipe ends when the process does
        watcher.on_start(Start(job.config, job.directory, job.config.members()))

    def listen(self) -> bool:
        """Pass a message of the process on; returns False when the process has ended."""
        message = self._receive()
        if message is None:
            self._watcher.on_end(None)
            return False
        kind, *values = message
        if kind == "message":
            self._watcher.on_message(*values)
        elif kind == "progress":
            self._watcher.on_progress(*values)
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
        early = self._asked and code in (-signal.SIGTERM, -signal.SIGHUP)  # before it had anything to save
        if self.failure is None and not self._ended and not early:
            self.failure = f"the process of {self._job.directory} ended with code {code}"
        return None

    def stop(self) -> None:
        """Ask the process to save and end."""
        if not self._asked:
            self._asked = True
            self._process.terminate()

    def finish(self) -> None:
        """Wait for the end of the process without showing its progress."""
        while self._receive() is not None:
            pass


@contextlib.contextmanager
def _inherited(cores: set[int]) -> Iterator[None]:
    """Give processes started meanwhile their cores, and block Ctrl-C in them: the parent passes it on."""
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
    """Train one population; this runs in the process of its own."""
    from dac.training.compilation import enable_compilation_cache

    Signals.patient = True  # whoever stops a whole group of processes stops this one twice
    enable_compilation_cache()
    sender = _Sender(pipe)
    try:
        run(job.config, job.directory, [sender], resuming=job.resume)
    except KeyboardInterrupt as interruption:
        sender.on_message(Message(str(interruption) or "stopped"))
    except UsageError as error:
        sender.send("failed", str(error))
        return
    sender.send("ended")


class _Sender(AbstractWatcher):
    """Passes on what a run says to the process that shows it. When nobody listens any more, the run saves and ends."""

    def __init__(self, pipe: Connection):
        self._pipe, self._alone = pipe, False

    def send(self, *message: Any) -> None:
        if self._alone:
            return
        try:
            self._pipe.send(message)
        except OSError:
            self._alone = True
            signal.raise_signal(signal.SIGTERM)

    def on_message(self, message: Message) -> None:
        self.send("message", message)

    def on_progress(self, position: Position) -> None:
        self.send("progress", position)
