"""The engine of a Slurm cluster: a job array of submitit, in which each task trains one population.

Slurm queues and places the jobs itself. One that is preempted, or near the end of its time, gets a signal: its worker
saves, and the job is put into the queue again, from where it goes on. All nodes share the directory of the study.
"""

from __future__ import annotations

import dataclasses
import math
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from dac.cluster.engines.base import AbstractEngine, Ended, Event, Failed, Lost
from dac.cluster.worker import GRACE, Worker, shares
from dac.core.errors import UsageError, needs_extra
from dac.experiments.plan import Job

FOLDER = "slurm"
"""The folder beside `runs` with what each job says."""
TOGETHER = 1.0
"""Seconds in which populations that begin are put into one array."""
LOOK = 0.5
"""Seconds between two looks at the jobs."""
QUEUED = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "UNKNOWN")
"""States of a job that is not known to run; should it have begun just now, it gets SIGTERM and saves."""
TIMES = 1000
"""How often a job that reached the end of its time goes on in a new one."""
PARAMETERS = {
    "partition": "slurm_partition",
    "account": "slurm_account",
    "qos": "slurm_qos",
    "constraint": "slurm_constraint",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What a job asks of the cluster."""

    time: int = 240
    """Minutes; a longer population goes on in another job."""
    cpus: int = 2
    gpus: int = 0
    memory: float = 8.0
    """GB."""
    grace: int = 120
    """Seconds before the end of its time at which a job is told to save."""
    cluster: str = "slurm"
    """`local` has processes of this machine instead, to try things."""
    more: tuple[tuple[str, str], ...] = ()
    """Partition, account, qos and constraint, where they are given."""


class SlurmEngine(AbstractEngine):
    """Populations as jobs of a Slurm cluster, as many at a time as it lets run, or `jobs`."""

    name = "slurm"

    def __init__(self, options: Options | None = None, *, jobs: int | None = None):
        with needs_extra("slurm", "the engine slurm"):
            import submitit
        self._submitit, self._options, self._jobs = submitit, options or Options(), jobs
        self._running: dict[int, Any] = {}
        self._waiting: dict[int, Job] = {}
        self._since = 0.0
        self._stop: Path | None = None
        """The file at which all jobs save and end."""
        self._events: list[Event] = []

    def room(self) -> int:
        # Slurm queues what does not fit; more than a few thousand in one array it refuses
        return (1000 if self._jobs is None else self._jobs) - len(self._running) - len(self._waiting)

    def begin(self, number: int, job: Job) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting[number] = dataclasses.replace(job, directory=job.directory.absolute())

    def wait(self, seconds: float) -> Sequence[Event]:
        end = time.monotonic() + seconds
        while True:
            if self._waiting and time.monotonic() >= self._since + min(TOGETHER, seconds):
                self._submit()
            self._events += [self._end(number) for number, job in list(self._running.items()) if _is_over(job)]
            left = end - time.monotonic()
            if self._events or left <= 0 or not (self._running or self._waiting):
                events, self._events = self._events, []
                return events
            time.sleep(min(LOOK, left))

    def stop(self) -> None:
        self._events += [Ended(number) for number in self._waiting]  # nothing of them has begun
        self._waiting.clear()
        if self._stop is None:
            return
        self._stop.touch()  # `scancel` leaves no time to save on many clusters
        for number, job in list(self._running.items()):
            if job.state.upper() in QUEUED:  # it might wait for days before it sees that file
                job.cancel()
                del self._running[number]
                self._events.append(Ended(number))

    def close(self) -> None:
        self.stop()
        end = time.monotonic() + GRACE
        while self._running and time.monotonic() < end:
            self.wait(1.0)
        for job in self._running.values():  # those that still wait for a node, too
            job.cancel()
        self._running.clear()
        if self._stop is not None:
            self._stop.unlink(missing_ok=True)

    def _submit(self) -> None:
        """Put all that wait into the queue, as one array."""
        first = next(iter(self._waiting.values()))
        folder = first.directory.parent.parent / FOLDER
        executor = self._executor(folder)
        self._stop = self._stop or folder / f"stop-{secrets.token_hex(4)}"
        stop = self._stop
        numbers, self._waiting, waiting = list(self._waiting), {}, self._waiting
        trainings = [Training(number, waiting[number], stop, self._options.grace) for number in numbers]
        try:
            with executor.batch():
                jobs = [executor.submit(training) for training in trainings]
        except (OSError, RuntimeError, self._submitit.core.utils.FailedJobError) as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise UsageError(f"Slurm does not take the jobs: {text[-1]}") from None
        self._running |= dict(zip(numbers, jobs, strict=True))

    def _executor(self, folder: Path) -> Any:
        options = self._options
        try:
            folder.mkdir(parents=True, exist_ok=True)
            executor = self._submitit.AutoExecutor(
                folder=folder / "%j", cluster=options.cluster, slurm_max_num_timeout=TIMES, local_max_num_timeout=TIMES
            )
        except (OSError, RuntimeError) as error:
            raise UsageError(f"cannot use Slurm: {' '.join(str(error).split())}") from None
        executor.update_parameters(
            name="dac",
            timeout_min=options.time,
            cpus_per_task=options.cpus,
            gpus_per_node=options.gpus,
            mem_gb=options.memory,
            nodes=1,
            tasks_per_node=1,
            slurm_signal_delay_s=options.grace,
            **{PARAMETERS[name]: value for name, value in options.more},
        )
        if options.cluster == "slurm" and self._jobs is not None:
            executor.update_parameters(slurm_array_parallelism=self._jobs)
        return executor

    def _end(self, number: int) -> Event:
        """What became of a job: what its worker said, or that it is gone."""
        job = self._running.pop(number)
        try:
            return job.result()
        except Exception as error:  # the job's own, or that there is no result
            state = str(getattr(job, "state", "")).split()
            words = [line for line in str(error).splitlines() if line.strip()]
            why = f"its job {job.job_id} ended in state {state[0] if state else 'unknown'}"
            return Lost(number, f"{why}: {words[-1].strip()}" if words else why)


class Training:
    """What a job does: it trains one population in a process of its own, and hands it on when its time is up.

    submitit pickles it into the folder of the job and calls `checkpoint` at its signal.
    """

    def __init__(self, number: int, job: Job, stop: Path, grace: int):
        self.number, self.job, self.stop, self.grace = number, job, stop, grace
        self._worker: Worker | None = None

    def __call__(self) -> Event:
        if not self.stop.parent.is_dir():
            return Failed(self.number, f"the node does not see {self.stop.parent}: all nodes have to share it")
        self._worker = Worker(self.number, self.job, environment=shares(1))
        try:
            while (event := self._worker.event(LOOK)) is None:
                if self.stop.exists():
                    self._worker.stop()
            return event
        finally:
            self._worker.close()

    def checkpoint(self) -> Any:
        """Have the worker save and end, and put the rest into the queue again; in the handler of the signal."""
        import submitit

        if self._worker is not None:
            self._worker.stop()
            # not `event`, in whose middle the signal may have come
            if not wait([self._worker.fileno()], max(10, self.grace - 10)):
                self._worker.kill()
        return submitit.helpers.DelayedSubmission(Training(self.number, self.job, self.stop, self.grace))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_worker": None}


def _is_over(job: Any) -> bool:
    return bool(job.done())


def make(jobs: int | None = None, address: str | None = None, options: Mapping[str, str] | None = None) -> SlurmEngine:
    """The engine of the cluster on whose login node this is; its options are those of `Options` and of `PARAMETERS`."""
    if address is not None:
        raise UsageError("the engine `slurm` takes no `address=`: it is started on a machine that has sbatch")
    given, values = dict(options or {}), dict[str, Any]()
    more = tuple((name, given.pop(name)) for name in PARAMETERS if name in given)
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Options) if field.name != "more"}
    for name, text in given.items():
        if name not in kinds:
            accepted = ", ".join([*kinds, *PARAMETERS])
            raise UsageError(f"the engine slurm has no option {name!r} (accepted: {accepted})")
        values[name] = text if kinds[name] is str else _number(name, text, kinds[name])
    if values.get("cluster", "slurm") not in ("slurm", "local"):
        raise UsageError(f"cluster of the engine slurm must be slurm or local, not {values['cluster']!r}")
    return SlurmEngine(Options(**values, more=more), jobs=jobs)


def _number(name: str, text: str, kind: type) -> float:
    """Read a number that is at least 0; a time may be hours and minutes, as in 24:00."""
    if name == "time" and (match := re.fullmatch(r"(\d+):(\d\d)", text)):
        text = str(60 * int(match[1]) + int(match[2]))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value < math.inf) or (kind is int and value != int(value)) or (value == 0 and name not in ("gpus",)):
        raise UsageError(f"{name} of the engine slurm must be a {'whole ' if kind is int else ''}number, not {text!r}")
    return kind(value)
