"""One run from its configuration to its directory: train, evaluate, record, show progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dac.config import RunConfig, resolve
from dac.runs import Run
from dac.tasks import find_task, task_of
from dac.training.base import AbstractLoop
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from dac.training.memory import describe_replay, place_replay
from dac.training.record import Recorder, choose_directory


class Progress(Protocol):
    """Something that shows how far a run is, from `__enter__` to `__exit__`."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def announce(self, text: str) -> None: ...

    def update(self, steps: int, rate: float | None, **values: float) -> None: ...


class Silence:
    """Shows nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...

    def announce(self, text: str) -> None:
        del text

    def update(self, steps: int, rate: float | None, **values: float) -> None:
        del steps, rate, values


def train(
    algorithm: str | None = None,
    task: str | Callable[[], Any] | None = None,
    *,
    seeds: Iterable[int] | int | str = 0,
    out: Path | str | None = None,
    config: Path | str | None = None,
    **settings: Any,
) -> Run:
    """Train a population and return its run directory as a `Run`.

    Settings are those of `dac train --help`; a list for a float setting trains every combination at once:

        run = dac.train("dac", "maze", seeds=range(5), alpha=[0.5, 1.0], steps=20_000)

    The task is a name of `dac list tasks`, `gym:ID`, or a function that makes a Gymnasium environment.
    """
    name = task_of(task) if callable(task) else task
    file = None if config is None else Path(config)
    resolved = resolve(algorithm, name, seeds, settings, file)
    directory = choose_directory(None if out is None else Path(out), resolved.task, resolved.algorithm)
    return run(resolved, directory, Silence())


def make_loop(config: RunConfig) -> tuple[AbstractLoop, str]:
    """The loop that fits the task, and the memory it needs; refuses, with the figures, a replay that fits nowhere."""
    task, members, schedule = find_task(config.task), config.members(), config.schedule()
    on_host = task.host is not None
    spec = task.spec()
    place = place_replay(config.training.replay, len(members), schedule, spec, on_host=on_host)
    memory = describe_replay(place, len(members), schedule, spec)
    if task.device is not None:
        return DeviceLoop(config.make_algorithm(), task.device(), members, schedule), memory
    assert task.host is not None
    return HostLoop(config.make_algorithm(), task.host, members, schedule, host_replay=place == "host"), memory


def run(config: RunConfig, directory: Path, progress: Progress) -> Run:
    """Train to the end, evaluating and recording on the way."""
    started = time.perf_counter()
    loop, memory = make_loop(config)
    try:
        recorder = Recorder(directory, config, config.members())
        with progress:
            progress.announce(memory)
            return _run(config, loop, recorder, progress, started)
    finally:
        loop.close()


def _run(config: RunConfig, loop: AbstractLoop, recorder: Recorder, progress: Progress, started: float) -> Run:
    schedule = loop.schedule
    clock = Speedometer(len(loop.members) * schedule.envs)
    shown: dict[str, float] = {}

    def advance(until: int) -> None:
        while loop.step < until:
            clock.measure(loop, lambda: loop.advance(min(until, loop.step + schedule.chunk)))
            progress.update(loop.step * schedule.envs, clock.rate, **shown)

    while loop.step < schedule.iterations:
        # evaluations fall on multiples of eval_every, and on the last step
        advance(min(schedule.iterations, (loop.step // schedule.eval_iterations + 1) * schedule.eval_iterations))
        metrics = loop.measure() if loop.step > schedule.first_update else _blank(loop)
        shown = recorder.evaluation(loop, loop.evaluate(config.training.eval_episodes), metrics)
        progress.update(loop.step * schedule.envs, clock.rate, **shown)
    recorder.finish(loop, time.perf_counter() - started, clock.rate)
    return Run(recorder.directory)


class Speedometer:
    """Agent-steps per second of training alone: no evaluation, no compilation."""

    def __init__(self, steps_per_iteration: int):
        self.steps_per_iteration = steps_per_iteration
        self.rate: float | None = None
        self._seen: set[tuple[int, bool]] = set()
        self._steps, self._seconds = 0, 0.0

    def measure(self, loop: AbstractLoop, advance: Callable[[], None]) -> None:
        before, learning = loop.step, loop.step >= loop.schedule.first_update
        start = time.perf_counter()
        advance()
        loop.wait()
        seconds = time.perf_counter() - start
        program = (loop.step - before, learning)
        if program in self._seen and learning:  # the first call of each program compiles it
            self._steps += loop.step - before
            self._seconds += seconds
            self.rate = self._steps * self.steps_per_iteration / self._seconds
        self._seen.add(program)


def _blank(loop: AbstractLoop) -> dict[str, np.ndarray]:
    """Before the first update there is nothing to measure, but the columns must be there."""
    return {name: np.full(len(loop.members), np.nan) for name in loop.metric_names()}
