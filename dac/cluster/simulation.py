"""Plays a study through with the real planner and the real driver, on simulated devices with a simulated clock.

It shows what a study would take on so many devices, and that nothing is lost or done twice when they fail.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Callable, Sequence

from dac.cluster.driver import Outcome, drive
from dac.cluster.engines.base import AbstractEngine, Ended, Event, Lost
from dac.experiments.plan import Job

START = 25.0
"""Seconds in which a process starts and compiles its programs, as `dac/experiments/estimate.py` has it."""


@dataclasses.dataclass(frozen=True)
class Failures:
    """How devices fail: at random, with so many hours between two failures of one device in the mean."""

    hours_between: float = math.inf
    """Between two losses of a device: its process is killed, and goes on from its last checkpoint."""
    hours_between_preemptions: float = math.inf
    """Between two preemptions: the process saves, and the device is gone."""
    minutes_away: float = 10.0
    """Until a lost or preempted device is back."""
    seed: int = 0


@dataclasses.dataclass
class _Running:
    """A population on a device, from its beginning to the end that is already known."""

    device: int
    begun: float
    end: float
    why: str
    """`finished`, `lost` or `preempted`."""


class SimulatedEngine(AbstractEngine):
    """Devices that train as fast as `rate` says, agent-steps per second of each job, and fail at random."""

    name = "simulated"

    def __init__(
        self,
        jobs: Sequence[Job],
        devices: int,
        rate: Callable[[Job], float],
        failures: Failures | None = None,
    ):
        self._jobs, self._failures = jobs, failures or Failures()
        self._numbers = {job.directory: number for number, job in enumerate(jobs)}
        assert len(self._numbers) == len(jobs), "two populations have one directory"
        self._per_second = [rate(job) / len(job.config.members()) for job in jobs]
        self._random = random.Random(self._failures.seed)
        self._free, self._away = list(range(devices)), list[tuple[float, int]]()
        self._running: dict[int, _Running] = {}
        self._ends: list[tuple[float, int]] = []
        self.clock = 0.0
        """Seconds since the beginning."""
        self.busy = 0.0
        """Seconds in which devices were taken, of all together."""
        self.saved = [float(job.done) for job in jobs]
        """Environment steps per member that each population has saved."""
        self.made = list(self.saved)
        """Environment steps per member that each population has made, those included that were lost."""
        self.begun = [0] * len(jobs)
        self.losses = self.preemptions = 0
        self.lost_steps = 0.0
        """Agent-steps that were made and lost."""

    def steps_saved(self, job: Job) -> int:
        """What the run directory of a job would say."""
        return int(self.saved[self._numbers[job.directory]])

    def room(self) -> int:
        return len(self._free)

    def begin(self, number: int, job: Job) -> None:
        assert number not in self._running, f"population {number} is trained twice at once"
        steps = job.config.training.steps
        assert self.saved[number] < steps, f"population {number} is finished and begun again"
        device = self._free.pop()
        whole = START + (steps - self.saved[number]) / self._per_second[number]
        failures = self._failures
        ends = {
            "finished": whole,
            "lost": self._draw(failures.hours_between),
            "preempted": self._draw(failures.hours_between_preemptions),
        }
        why = min(ends, key=lambda name: ends[name])
        self._running[number] = _Running(device, self.clock, self.clock + ends[why], why)
        self.begun[number] += 1
        heapq.heappush(self._ends, (self.clock + ends[why], number))

    def wait(self, seconds: float) -> Sequence[Event]:
        """Turn the clock to the next end of a population, or return of a device, but not by more than `seconds`."""
        times = [heap[0][0] for heap in (self._ends, self._away) if heap]
        if not times:
            return []
        until = min(*times, self.clock + seconds)
        self.clock = max(self.clock, until)
        while self._away and self._away[0][0] <= self.clock:
            self._free.append(heapq.heappop(self._away)[1])
        events = []
        while self._ends and self._ends[0][0] <= self.clock:
            events.append(self._end(heapq.heappop(self._ends)[1]))
        return events

    def stop(self) -> None:
        """Have everything saved at once."""
        self._ends = [(self.clock, number) for number in self._running]
        for run in self._running.values():
            run.end, run.why = self.clock, "preempted" if run.end > self.clock else run.why

    def close(self) -> None:
        assert not self._running, "populations are left behind"

    def _draw(self, hours: float) -> float:
        return math.inf if math.isinf(hours) else self._random.expovariate(1 / (3600 * hours))

    def _end(self, number: int) -> Event:
        run, config = self._running.pop(number), self._jobs[number].config
        seconds = run.end - run.begun
        self.busy += seconds
        reached = self.saved[number] + max(0.0, seconds - START) * self._per_second[number]
        reached = config.training.steps if run.why == "finished" else min(reached, config.training.steps - 1)
        self.made[number] += reached - self.saved[number]
        if run.why == "lost":
            every, before = config.training.checkpoint_every, self.saved[number]
            kept = max(before, math.floor(reached / every) * every) if every else before
            self.lost_steps += (reached - kept) * len(config.members())
            self.saved[number] = kept
            self.losses += 1
        else:
            self.saved[number] = reached
            self.preemptions += run.why == "preempted"
        if run.why == "finished":
            self._free.append(run.device)
            return Ended(number)
        heapq.heappush(self._away, (self.clock + 60 * self._failures.minutes_away, run.device))
        return Lost(number, "its device failed" if run.why == "lost" else "its device was preempted")


def simulate(
    jobs: Sequence[Job], devices: int, rate: Callable[[Job], float], failures: Failures | None = None
) -> tuple[SimulatedEngine, Outcome]:
    """Drive a plan on simulated devices, in the order of the jobs; return the engine, which has counted."""
    engine = SimulatedEngine(jobs, devices, rate, failures)
    outcome = drive(jobs, engine, made=engine.steps_saved, pause=math.inf)
    return engine, outcome
