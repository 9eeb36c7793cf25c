"""A process that trains one population of a study, and the handle that its parent has on it.

    python -m dac.cluster.worker DIRECTORY REPORT

The parent writes the job into its standard input and keeps that open: when it ends, the parent is gone, and the worker
saves and ends as at SIGTERM. The worker says how it ended by its exit code, and why in a line on descriptor REPORT:

    0    it is finished
    2    it failed, and a second try would meet the same again: a setting, an environment, every member frozen
    75   its run directory is another process's
    143  it was asked to stop (SIGTERM) and has saved
    else it crashed or was killed; its last checkpoint is what is left

It is spawned and not forked, since a fork of a process that runs JAX may hang, and it is a process of its own and not a
thread or a task of a cluster's worker, so that JAX starts anew and signals mean this population.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dac.cluster.engines.base import Ended, Event, Failed, Lost
from dac.core.errors import UsageError
from dac.experiments.plan import Job
from dac.rundir.lock import LEASE, Fenced, InUse, check_held
from dac.rundir.names import ATTEMPTS
from dac.rundir.reading import RunDirectory
from dac.training.compilation import enable_compilation_cache
from dac.training.memory import PROCESSES
from dac.training.run import run
from dac.training.signals import Signals
from dac.training.watchers import AbstractWatcher, Position, Start
from dac.training.watchers.log import Log

FINISHED, FAILED, TAKEN, STOPPED = 0, 2, os.EX_TEMPFAIL, 128 + signal.SIGTERM
"""Exit codes."""
GRACE = 120.0
"""Seconds that a worker has to save before it is killed."""


class Worker:
    """Starts and stops the process that trains one population; `multiprocessing.connection.wait` takes it.

    `environment` is added to the variables of this process, see `shares`; `cores` are those the worker may use, if not
    all; what it says goes to `output`, or to this process's standard error.
    """

    def __init__(
        self,
        number: int,
        job: Job,
        *,
        environment: Mapping[str, str] | None = None,
        cores: set[int] | None = None,
        output: BinaryIO | None = None,
    ):
        self.number, self.job, self._asked = number, job, False
        self._found: Event | None = None
        self._pipe, theirs = os.pipe()
        # as the script `dac` does, and `python -m dac` in a checkout: the current folder comes last
        safe = [] if Path(__file__).parents[2] == Path.cwd() else ["-P"]
        command = [sys.executable, *safe, "-m", "dac.cluster.worker", str(job.directory), str(theirs)]
        with _on(cores):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=2 if output is None else output,
                stderr=output,
                env=os.environ | dict(environment or {}),
                pass_fds=[theirs],
                start_new_session=True,  # a Ctrl-C is the parent's, who passes it on
            )
        os.close(theirs)  # so that the pipe ends when the process does
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already, and its exit code says how
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """A descriptor that can be read when the process has ended."""
        return self._pipe

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask the process to save and end; calls after the first do nothing."""
        if not self._asked:
            self._asked = True
            self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def event(self, seconds: float | None = None) -> Event | None:
        """Wait for the end of the process, for ever or so long, and say how it ended; None while it runs."""
        if self._found is None:
            try:
                code = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            with os.fdopen(os.dup(self._pipe), encoding="utf-8") as pipe:
                why = pipe.read().strip()
            self._found = _event(self.number, code, why, self._asked)
        return self._found

    def close(self, grace: float = GRACE) -> None:
        """Leave nothing behind: a process that still runs may save within the grace, and is killed then."""
        if self.running:
            self.stop()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def shares(count: int, gpu: float = 1.0) -> dict[str, str]:
    """Variables that limit each of `count` workers on a machine to its part of the memory, and to this part of a GPU.

    What is set for the GPU already stays.
    """
    found = {}
    if gpu < 1:
        found = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 * gpu:.3f}"}
    return {name: os.environ.get(name, value) for name, value in found.items()} | {PROCESSES: str(max(1, count))}


def _event(number: int, code: int, why: str, asked: bool) -> Event:
    """What the end of a worker means to a study."""
    if code == FINISHED or (asked and code in (STOPPED, -signal.SIGTERM)):  # the latter before it had anything to save
        return Ended(number)
    if code == FAILED:
        return Failed(number, why or "it failed without a word")
    if code < 0:
        why = f"killed by {signal.Signals(-code).name}"
    return Lost(number, why or f"it ended with code {code}")


@contextlib.contextmanager
def _on(cores: set[int] | None) -> Iterator[None]:
    """Let a process that is started meanwhile use these cores alone."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def main() -> int:
    """Train the job that comes in on standard input; this is the process of its own."""
    report = int(sys.argv[2])
    os.set_inheritable(report, False)  # processes of environments must not keep it open
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # Slurm's, to all processes of a job: the parent knows what they mean
    Signals.patient = True  # whoever stops a whole group of processes stops this one twice
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a task may name a module of the current folder
    job: Job = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    code, why = _train(job)
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(report, why.encode()[:4000] + b"\n")
    return code


def _end_with_parent() -> None:
    while os.read(0, 1):  # not `sys.stdin`, on whose lock the end of Python would wait
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _train(job: Job) -> tuple[int, str]:
    """Train one population, and return the exit code with the reason."""
    enable_compilation_cache()
    # the process before may still be saving: of a study that was killed, or on a node that lost the others
    patience = time.monotonic() + 2 * float(os.environ.get(LEASE) or 60)
    while True:
        try:
            if not _is_finished(job):
                run(job.config, job.directory, [Log(), _Attempts(job.resume)], resuming=job.resume)
            return FINISHED, ""
        except InUse as error:
            if time.monotonic() > patience:
                return TAKEN, str(error)
            time.sleep(1)
        except Fenced as error:
            return TAKEN, str(error)
        except UsageError as error:
            return FAILED, str(error)
        except KeyboardInterrupt as interruption:
            return STOPPED, str(interruption)
        except Exception as error:
            traceback.print_exc()
            return 1, " ".join(f"{type(error).__name__}: {error}".split())


def _is_finished(job: Job) -> bool:
    """Whether the worker before this one was done, and only its word was lost."""
    if not job.resume:
        return False
    made = RunDirectory(job.directory)
    return made.finished and made.config.training.steps >= job.config.training.steps


class _Attempts(AbstractWatcher):
    """Notes in the run directory where a population is trained, and from which step to which."""

    essential = True  # a lock that is lost is no failure of a callback

    def __init__(self, resuming: bool):
        self._resuming, self._step = resuming, 0

    def on_start(self, start: Start) -> None:
        self._path = start.directory / ATTEMPTS
        if not self._resuming:
            self._write({"from": 0})

    def on_restore(self, step: int) -> None:
        self._step = step
        self._write({"from": step})

    def on_progress(self, position: Position) -> None:
        self._step = position.step

    def on_end(self, error: BaseException | None) -> None:
        with contextlib.suppress(Fenced):  # the others have to be told of the end too
            self._write({"to": self._step, "end": "ended" if error is None else str(error)})

    def _write(self, what: dict[str, Any]) -> None:
        line = {"host": socket.gethostname(), "pid": os.getpid(), "time": round(time.time(), 3)} | what
        with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            check_held(self._path)
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
