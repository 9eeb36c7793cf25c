"""The engine of this machine: each population in a process of its own, with its share of cores, memory and GPUs.

One population of small networks does not fill a GPU, and while it evaluates it hardly uses it, so several share one.
Processes and not threads: two loops in one would wait for each other's Python.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

from dac.cluster.engines.base import AbstractEngine, Event
from dac.cluster.worker import Worker, shares
from dac.core.types import UsageError
from dac.experiments.plan import Job

LOGS = "logs"
"""The folder beside `runs` with what each process says."""


class LocalEngine(AbstractEngine):
    """So many populations at a time, spread over the GPUs there are; each has its part of the cores."""

    name = "local"

    def __init__(self, count: int, gpus: Sequence[str] | None = None):
        if count < 1:
            raise UsageError(f"jobs must be at least 1, not {count}")
        self._count, self._gpus = count, list(find_gpus() if gpus is None else gpus)
        self._slots = split_cores(count)
        self._running: dict[int, tuple[Worker, set[int], str]] = {}

    def room(self) -> int:
        return self._count - len(self._running)

    def begin(self, number: int, job: Job) -> None:
        cores = self._slots.pop()
        environment = shares(self._count, 1 / per_gpu(self._count, len(self._gpus)))
        gpu = ""
        if self._gpus:  # the one with the fewest populations
            busy = collections.Counter(gpu for _, _, gpu in self._running.values())
            gpu = min(self._gpus, key=lambda name: busy[name])
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        with _log(job) as output:
            worker = Worker(number, job, environment=environment, cores=cores, output=output)
        self._running[number] = worker, cores, gpu

    def wait(self, seconds: float) -> Sequence[Event]:
        if not self._running:
            return []
        workers = {worker.fileno(): worker for worker, _, _ in self._running.values()}
        ready = wait(list(workers), None if math.isinf(seconds) else seconds)
        return [self._end(worker) for descriptor, worker in workers.items() if descriptor in ready]

    def stop(self) -> None:
        for worker, _, _ in self._running.values():
            worker.stop()

    def close(self) -> None:
        self.stop()
        for worker, _, _ in self._running.values():
            worker.close()
        self._running.clear()

    def processes(self) -> dict[int, int]:
        """The process of each population that runs."""
        return {number: worker.pid for number, (worker, _, _) in self._running.items()}

    def _end(self, worker: Worker) -> Event:
        event = worker.event()
        assert event is not None  # it ended
        _, cores, _ = self._running.pop(worker.number)
        self._slots.append(cores)
        worker.close()
        return event


def make(jobs: int | None = None, address: str | None = None, options: Mapping[str, str] | None = None) -> LocalEngine:
    """The engine with so many populations at a time; one for each GPU unless that is said."""
    del address, options
    gpus = find_gpus()
    return LocalEngine(max(1, len(gpus)) if jobs is None else jobs, gpus)


@contextlib.contextmanager
def _log(job: Job) -> Iterator[Any]:
    """The file that takes what a population's process says, beside the folder of its run."""
    folder = job.directory.parent.parent / LOGS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / f"{job.directory.name}.txt", "ab")  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from None
    with file:
        yield file


def find_gpus() -> list[str]:
    """Name the GPUs of this machine as CUDA_VISIBLE_DEVICES does, without waking one up."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return []
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in given.split(",") if name]
    with contextlib.suppress(OSError):
        return [str(number) for number in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    return []


@contextlib.contextmanager
def share_machine(count: int) -> Iterator[None]:
    """Limit this process, and those it starts meanwhile, to what is theirs if `count` processes share the machine.

    That is its part of the memory and, where JAX is not yet in use, of a GPU.
    """
    mine = shares(count, 1 / per_gpu(count, len(find_gpus())))
    before = {name: os.environ.get(name) for name in mine}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def per_gpu(count: int, gpus: int) -> int:
    """How many of `count` processes share a GPU."""
    return max(1, math.ceil(count / max(1, gpus)))


def split_cores(count: int) -> list[set[int]]:
    """Divide the cores of this process among `count` others; each gets all of them if there are too few."""
    if not hasattr(os, "sched_getaffinity"):
        return [set() for _ in range(count)]
    cores = sorted(os.sched_getaffinity(0))
    bounds = [len(cores) * i // count for i in range(count + 1)]
    return [set(cores[start:end]) or set(cores) for start, end in itertools.pairwise(bounds)]
