"""One run from its configuration to its directory: train, evaluate, record, show progress."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from dac.config import RunConfig, resolve
from dac.runs import Run
from dac.tasks import find_task, task_of
from dac.training.base import AbstractLoop
from dac.training.checkpoint import Checkpointer, disk_bytes, free_bytes, restore_latest
from dac.training.device import DeviceLoop
from dac.training.evaluate import Moment
from dac.training.health import find_warnings
from dac.training.host import HostLoop
from dac.training.lock import Lock
from dac.training.memory import Place, describe_replay, keep_freed_memory, place_replay
from dac.training.record import CONFIG, Note, Recorder, choose_directory, make_directory
from dac.training.signals import Interrupted, Signals
from dac.types import UsageError

RECORD = "record/"
"""Marks the record's arrays among those of a checkpoint."""


class Progress(Protocol):
    """Something that shows how far a run is, from `__enter__` to `__exit__`."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def announce(self, text: str) -> None: ...

    def update(self, steps: int, rate: float | None, **values: float) -> None: ...


class Silence:
    """Shows nothing; what should be known goes to the `dac` logger."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...

    def announce(self, text: str) -> None:
        logging.getLogger("dac").info(text)

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


def resume(directory: Path | str, steps: int | None = None) -> Run:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given."""
    return continue_run(Path(directory), steps, lambda _: Silence())


def continue_run(directory: Path, steps: int | None, make_progress: Callable[[RunConfig], Progress]) -> Run:
    """`resume`, showing progress."""
    found = Run(directory)
    before = found.config.training.steps
    config = found.config if steps is None else found.config.with_steps(steps)
    if found.finished and config.training.steps <= before:
        raise UsageError(f"{directory} is finished, at {before} steps; give more with --steps")
    if config.training.steps < before:
        raise UsageError(f"{directory} is to have {before} steps; --steps can only add to them, not {steps}")
    return run(config, directory, make_progress(config), resuming=True)


def place_of(config: RunConfig) -> Place:
    """Where the replay of this run goes; refuses, with the figures, one that fits nowhere."""
    task, schedule = find_task(config.task), config.schedule()
    # a rollout is small and read as a whole: what learns on-policy has it on the device
    on_host = task.host is not None and not schedule.rollout
    wanted = "auto" if schedule.rollout else config.training.replay
    return place_replay(wanted, len(config.members()), schedule, task.spec(), on_host=on_host)


def make_loop(config: RunConfig) -> tuple[AbstractLoop, str]:
    """The loop that fits the task, and the memory its replay needs."""
    task, members, schedule = find_task(config.task), config.members(), config.schedule()
    place, on_nan = place_of(config), config.training.on_nan
    memory = describe_replay(place, len(members), schedule, task.spec())
    algorithm = config.make_algorithm()
    if task.device is not None:
        return DeviceLoop(algorithm, task.device(), members, schedule, on_nan=on_nan), memory
    assert task.host is not None
    return HostLoop(algorithm, task.host, members, schedule, host_replay=place == "host", on_nan=on_nan), memory


def run(config: RunConfig, directory: Path, progress: Progress, *, resuming: bool = False) -> Run:
    """Train to the end, evaluating, recording and saving on the way."""
    started = time.perf_counter()
    keep_freed_memory()
    loop, memory = make_loop(config)  # before the directory: what cannot run leaves nothing behind
    try:
        make_directory(directory)
        with Lock(directory):
            if not resuming and (directory / CONFIG).exists():
                raise UsageError(f"{directory} exists already; give another --out, or remove it first")
            recorder = Recorder(directory, config, config.members())
            checkpointer = Checkpointer(directory, config.fingerprint())
            with progress, Signals(lambda: setattr(loop, "stopping", True)) as signals:
                progress.announce(memory)
                if resuming:
                    checkpointer = _restore(config, loop, recorder, progress)
                # only now: beside the summary of a shorter run, that of a longer one would make it look finished
                recorder.write_config()
                if config.training.checkpoint_every:
                    progress.announce(_describe_disk(config, loop, directory))
                return _Session(config, loop, recorder, checkpointer, progress, signals, started).run()
    finally:
        loop.close()


def _describe_disk(config: RunConfig, loop: AbstractLoop, directory: Path) -> str:
    need, free = disk_bytes(loop), free_bytes(directory)
    more = "; THAT IS NOT ENOUGH" if need > free else ""
    return (
        f"checkpoints: every {config.training.checkpoint_every:,} steps, up to {need / 2**30:.2f} GiB "
        f"of the {free / 2**30:.1f} GiB free in {directory}{more}"
    )


def _restore(config: RunConfig, loop: AbstractLoop, recorder: Recorder, progress: Progress) -> Checkpointer:
    """Put loop and record back to the latest checkpoint that is whole."""
    import jax

    found = restore_latest(
        recorder.directory, config.fingerprint(), lambda found: recorder.check(found.notes), progress.announce
    )
    if found is None:
        recorder.restore(None, {})
        progress.announce("no checkpoint yet: the run starts from the beginning")
        return Checkpointer(recorder.directory, config.fingerprint())
    checkpoint, arrays, rows = found
    record = {name.removeprefix(RECORD): array for name, array in arrays.items() if name.startswith(RECORD)}
    loop.health.restore(checkpoint.notes["health"])
    loop.restore(checkpoint.step, {n: a for n, a in arrays.items() if not n.startswith(RECORD)}, rows)
    recorder.restore(checkpoint.notes, record)
    progress.announce(f"continues at step {checkpoint.step * loop.schedule.envs:,}")
    platform = jax.devices()[0].platform
    if platform != checkpoint.platform:
        progress.announce(f"it ran on {checkpoint.platform} and goes on on {platform}: not the same to the last bit")
    if not loop.restores_exactly:
        progress.announce("its environments cannot be saved: they begin new episodes, so it is not the same to the bit")
    return Checkpointer(recorder.directory, config.fingerprint(), checkpoint)


class _Session:
    """One process's part of a run."""

    def __init__(
        self,
        config: RunConfig,
        loop: AbstractLoop,
        recorder: Recorder,
        checkpointer: Checkpointer,
        progress: Progress,
        signals: Signals,
        started: float,
    ):
        self.config, self.loop, self.recorder, self.checkpointer = config, loop, recorder, checkpointer
        self.progress, self.signals, self.started = progress, signals, started
        self.clock = Speedometer(len(loop.members) * loop.schedule.envs)
        self.shown: dict[str, float] = {}
        self.waiting: list[tuple[Moment, Note]] = []
        """Evaluations whose episodes are still to be run."""

    def run(self) -> Run:
        try:
            self._train()
        except UsageError as error:
            with contextlib.suppress(UsageError):
                self._run_episodes()
            raise UsageError(f"{error}{self._hint()}") from error
        finally:
            self.checkpointer.wait()
            self._report_problems()
        self.recorder.finish(self.loop, time.perf_counter() - self.started, self.clock.rate)
        return Run(self.recorder.directory)

    def _train(self) -> None:
        loop, schedule = self.loop, self.loop.schedule
        save_every = math.ceil(self.config.training.checkpoint_every / schedule.envs)
        while loop.step < schedule.iterations:
            # evaluations and checkpoints fall on multiples of their periods, and on the last step
            periods = [schedule.eval_iterations, *([save_every] if save_every else [])]
            until = min(schedule.iterations, *((loop.step // period + 1) * period for period in periods))
            self._advance(until)
            last = loop.step == schedule.iterations
            # a signal in the very step before an evaluation must not cost it: resuming would look ahead to the next one
            if last or (loop.step == until and loop.step % schedule.eval_iterations == 0):
                self._evaluate()
            if save_every and (last or (loop.step == until and loop.step % save_every == 0)):
                self._save()
            if self.signals.received is not None and not last:
                self._interrupted(self.signals.received)

    def _advance(self, until: int) -> None:
        loop, schedule = self.loop, self.loop.schedule
        while loop.step < until and not loop.stopping:
            self.clock.measure(loop, lambda: loop.advance(min(until, loop.step + schedule.chunk)))
            self._report_problems()
            self.progress.update(loop.step * schedule.envs, self.clock.rate, **self.shown)

    def _evaluate(self) -> None:
        loop = self.loop
        metrics = loop.measure() if loop.step > loop.schedule.first_update else _blank(loop)
        self.waiting.append((loop.moment(), self.recorder.note(loop, metrics)))
        for (index, name), line in find_warnings(metrics, loop.members).items():
            if self.recorder.warn(index, name, line):
                self.progress.announce(f"{line}, at step {loop.step * loop.schedule.envs}")
        if len(self.waiting) >= loop.evaluations_at_once or loop.step == loop.schedule.iterations:
            self._run_episodes()

    def _run_episodes(self) -> None:
        """Of all evaluations that wait for it."""
        if not self.waiting:
            return
        moments, notes = zip(*self.waiting, strict=True)
        self.waiting.clear()
        results = self.loop.evaluate_moments(moments, self.config.training.eval_episodes)
        for note, result in zip(notes, results, strict=True):
            self.shown = self.recorder.evaluation(note, result)
        self.progress.update(self.loop.step * self.loop.schedule.envs, self.clock.rate, **self.shown)

    def _save(self) -> None:
        self._run_episodes()  # the record must be complete up to here
        seconds = self.recorder.seconds + time.perf_counter() - self.started
        notes = self.recorder.notes() | {"health": self.loop.health.save(), "seconds": seconds}
        arrays = {RECORD + name: array for name, array in self.recorder.arrays().items()}
        self.checkpointer.save(self.loop, notes, arrays)

    def _report_problems(self) -> None:
        while self.loop.health.news:
            self.progress.announce(self.loop.health.news.pop(0))
        problem = self.checkpointer.problem()
        if problem is not None:
            self.progress.announce(f"{problem}; training goes on, the last good checkpoint is {self._last()}")

    def _interrupted(self, number: int) -> NoReturn:
        self._run_episodes()
        if self.config.training.checkpoint_every:
            self._save()
            self.checkpointer.wait()
            self._report_problems()
        step = self.loop.step * self.loop.schedule.envs
        raise Interrupted(f"stopped at step {step:,}{self._hint()}", number)

    def _last(self) -> str:
        last = self.checkpointer.last
        return "none" if last is None else f"of step {last * self.loop.schedule.envs:,}"

    def _hint(self) -> str:
        self.checkpointer.wait()
        if self.checkpointer.last is None:
            return ""
        return f"; the last checkpoint is {self._last()}, continue with: dac resume {self.recorder.directory}"


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
