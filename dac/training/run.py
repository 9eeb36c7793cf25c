"""One run from its configuration to its directory: train, evaluate, record, and tell the watchers."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from dac.config import RunConfig, with_steps
from dac.core.types import EnvSpec, UsageError
from dac.rundir.checkpoints import Checkpointer, disk_bytes, free_bytes, restore_latest
from dac.rundir.lock import Lock
from dac.rundir.names import CONFIG
from dac.rundir.reading import RunDirectory
from dac.rundir.writing import Recorder, Result, make_directory
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from dac.training.evaluate import Evaluation as Episodes
from dac.training.evaluate import Moment
from dac.training.health import find_warnings
from dac.training.host import HostLoop
from dac.training.loop import AbstractLoop
from dac.training.memory import Place, describe_replay, keep_freed_memory, place_replay, replay_bytes
from dac.training.offline import OfflineData, load_offline
from dac.training.signals import Interrupted, Signals
from dac.training.watchers import AbstractWatcher, Evaluation, Message, Position, Start, Watchers
from dac.training.watchers.metrics import MetricsFile

RECORD = "record/"
"""Marks the record's arrays among those of a checkpoint."""
Row = dict[str, Any]


def read_dataset(config: RunConfig) -> tuple[RunConfig, OfflineData | None]:
    """The dataset that the run learns from beside what it sees, or None, and the run with the dataset's checksum."""
    if config.training.init_replay == "none":
        return config, None
    task = find_task(config.task)
    offline = load_offline(config.training.init_replay, task.spec(), task.bounds())
    return config.with_dataset(offline.name), offline


def place_of(config: RunConfig, spec: EnvSpec | None = None, offline: OfflineData | None = None) -> Place:
    """Where the replay buffer of this run goes, a dataset with it; refuses, with the figures, one that fits nowhere."""
    task, schedule = find_task(config.task), config.schedule()
    # a rollout is small and read as a whole: what learns on-policy has it on the device
    on_host = task.host is not None and not schedule.rollout
    wanted = "auto" if schedule.rollout else config.training.replay
    return place_replay(wanted, len(config.members()), schedule, spec or task.spec(), on_host=on_host, offline=offline)


def make_loop(config: RunConfig, offline: OfflineData | None = None) -> tuple[AbstractLoop, str]:
    """The loop that fits the task, and a line on the memory that its replay buffer needs."""
    task, members, schedule = find_task(config.task), config.members(), config.schedule()
    algorithm, on_nan = config.make_algorithm(), config.training.on_nan
    assert (offline is None) == (schedule.offline_share == 0), "a run with init_replay needs `read_dataset`"
    dataset = None if offline is None else offline.rows
    if task.device is not None:
        env = task.device()
        place = place_of(config, env.spec, offline)
        memory = describe_replay(place, len(members), schedule, env.spec)
        return DeviceLoop(algorithm, env, members, schedule, on_nan=on_nan, dataset=dataset), memory
    make_envs = functools.partial(task.make_envs, workers=config.training.workers)
    envs = make_envs(len(members) * schedule.envs)
    try:
        place = place_of(config, envs.spec, offline)
        memory = describe_replay(place, len(members), schedule, envs.spec)
        loop = HostLoop(
            algorithm,
            make_envs,
            members,
            schedule,
            envs=envs,
            host_replay=place == "host",
            on_nan=on_nan,
            dataset=dataset,
        )
    except BaseException:
        envs.close()
        raise
    return loop, memory


def continue_run(directory: Path, steps: int | None, watchers: Sequence[AbstractWatcher]) -> RunDirectory:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given."""
    found = RunDirectory(directory)
    before = found.config.training.steps
    config = found.config if steps is None else with_steps(found.config, steps)
    if found.finished and config.training.steps <= before:
        raise UsageError(f"{directory} is finished, at {before} steps; give more with --steps")
    if config.training.steps < before:
        raise UsageError(f"{directory} is to have {before} steps; --steps can only add to them, not {steps}")
    return run(config, directory, watchers, resuming=True)


def run(
    config: RunConfig, directory: Path, watchers: Sequence[AbstractWatcher], *, resuming: bool = False
) -> RunDirectory:
    """Train to the end, evaluating, recording and saving on the way."""
    started = time.perf_counter()
    keep_freed_memory()
    config, offline = read_dataset(config)
    loop, memory = make_loop(config, offline)  # before the directory: what cannot run leaves nothing behind
    try:
        make_directory(directory)
        with Lock(directory):
            if not resuming and (directory / CONFIG).exists():
                raise UsageError(f"{directory} exists already; give another --out, or remove it first")
            recorder = Recorder(directory, config, config.members())
            everyone = Watchers([MetricsFile(recorder), *watchers])
            with _watched(everyone, Start(config, directory, loop.members)), Signals(loop.ask_to_stop) as signals:
                session = _Session(config, loop, recorder, everyone, signals, started)
                session.say(memory)
                if offline is not None:
                    session.say(offline.line(config.training.offline_share))
                if resuming:
                    session.restore()
                # only now: beside the summary of a shorter run, that of a longer one would make it look finished
                recorder.write_config()
                if config.training.checkpoint_every:
                    session.describe_disk()
                return session.run()
    finally:
        loop.close()


@contextlib.contextmanager
def _watched(watchers: AbstractWatcher, start: Start):
    """Tell the watchers of the start and, whatever happens, of the end."""
    watchers.on_start(start)
    try:
        yield
    except BaseException as error:
        watchers.on_end(error)
        raise
    watchers.on_end(None)


class _Session:
    """One process's part of a run."""

    def __init__(
        self,
        config: RunConfig,
        loop: AbstractLoop,
        recorder: Recorder,
        watchers: AbstractWatcher,
        signals: Signals,
        started: float,
    ):
        self.config, self.loop, self.recorder, self.watchers = config, loop, recorder, watchers
        self.signals, self.started = signals, started
        self.checkpointer = Checkpointer(recorder.directory, config.fingerprint())
        self.clock = Speedometer(len(loop.members) * loop.schedule.envs)
        self.shown: dict[str, float] = {}
        self.stop_reason: str | None = None
        """Why a watcher asked the run to stop, if one did."""
        self.waiting: list[tuple[Moment, list[Row]]] = []
        """Evaluations whose episodes are still to be run, with what is known of their rows."""

    @property
    def env_steps(self) -> int:
        """Environment steps per member so far."""
        return self.loop.step * self.loop.schedule.envs

    def say(self, text: str, *, warning: bool = False) -> None:
        self.watchers.on_message(Message(text, warning))

    def describe_disk(self) -> None:
        """Say how much room the checkpoints need, and whether there is as much."""
        loop, directory = self.loop, self.recorder.directory
        buffer = replay_bytes(len(loop.members), loop.schedule, loop.spec)
        need, free = disk_bytes(loop.snapshot(), buffer), free_bytes(directory)
        more = "; THAT IS NOT ENOUGH" if need > free else ""
        self.say(
            f"checkpoints: every {self.config.training.checkpoint_every:,} steps, up to {need / 2**30:.2f} GiB "
            f"of the {free / 2**30:.1f} GiB free in {directory}{more}",
            warning=need > free,
        )

    def restore(self) -> None:
        """Put loop and record back to the latest checkpoint that is whole."""
        loop, recorder, fingerprint = self.loop, self.recorder, self.config.fingerprint()
        found = restore_latest(
            recorder.directory,
            fingerprint,
            lambda found: recorder.check(found.notes),
            lambda problem: self.say(problem, warning=True),
        )
        if found is None:
            recorder.restore(None, {})
            self.say("no checkpoint yet: the run starts from the beginning")
            return
        checkpoint, arrays, rows = found
        record = {name.removeprefix(RECORD): array for name, array in arrays.items() if name.startswith(RECORD)}
        loop.health.restore(checkpoint.notes["health"])
        loop.restore(checkpoint.step, {n: a for n, a in arrays.items() if not n.startswith(RECORD)}, rows)
        recorder.restore(checkpoint.notes, record)
        self.checkpointer = Checkpointer(recorder.directory, fingerprint, checkpoint)
        self.say(f"continues at step {self.env_steps:,}")
        platform = jax.devices()[0].platform
        if platform != checkpoint.platform:
            self.say(f"it ran on {checkpoint.platform} and goes on on {platform}: not the same to the last bit")
        if not loop.restores_exactly:
            self.say("its environments cannot be saved: they begin new episodes, so it is not the same to the bit")

    def run(self) -> RunDirectory:
        try:
            self._train()
        except UsageError as error:
            with contextlib.suppress(UsageError):
                self._run_episodes()
            raise UsageError(f"{error}{self._hint()}") from error
        finally:
            self.checkpointer.wait()
            self._report_problems()
        loop, recorder = self.loop, self.recorder
        recorder.write_policies(loop.policies())
        if loop.step < loop.schedule.iterations:  # a watcher had seen enough
            self.say(f"stopped at step {self.env_steps:,}: {self.stop_reason}{self._hint()}")
            return RunDirectory(recorder.directory)
        recorder.finish(
            Result(
                steps=self.env_steps,
                updates=loop.schedule.updates(loop.step),
                frozen=loop.health.save(),
                visited=loop.visited(),
                first_visits=loop.first_visits(),
                seconds=time.perf_counter() - self.started,
                agent_steps_per_second=self.clock.rate,
            )
        )
        return RunDirectory(recorder.directory)

    def _train(self) -> None:
        loop, schedule = self.loop, self.loop.schedule
        save_every = math.ceil(self.config.training.checkpoint_every / schedule.envs)
        while loop.step < schedule.iterations and self.stop_reason is None:
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
        if loop.step < schedule.iterations:
            self._save_early()

    def _advance(self, until: int) -> None:
        loop, schedule = self.loop, self.loop.schedule
        while loop.step < until and not loop.stopping:
            self.clock.measure(loop, lambda: loop.advance(min(until, loop.step + schedule.chunk)))
            self._report_problems()
            self._report_progress()

    def _report_progress(self) -> None:
        self._heed(self.watchers.on_progress(Position(self.env_steps, self.clock.rate, self.shown)))

    def _heed(self, reason: str | None) -> None:
        """Stop as soon as the present step is complete, if a watcher gave a reason to."""
        if reason is not None and self.stop_reason is None:
            self.stop_reason = reason
            self.loop.ask_to_stop()

    def _evaluate(self) -> None:
        loop, recorder = self.loop, self.recorder
        metrics = loop.measure() if loop.step > loop.schedule.first_update else _blank(loop)
        visits = loop.visits()
        if visits is not None:
            recorder.keep_visits(self.env_steps, visits)
        self.waiting.append((loop.moment(), self._known_columns(metrics)))
        for (index, name), line in find_warnings(metrics, loop.members).items():
            if recorder.warn(index, name, line):
                self.say(f"{line}, at step {self.env_steps}", warning=True)
        if len(self.waiting) >= loop.evaluations_at_once or loop.step == loop.schedule.iterations:
            self._run_episodes()

    def _known_columns(self, metrics: dict[str, np.ndarray]) -> list[Row]:
        """The rows of an evaluation at this step, until its episodes have been run without their returns."""
        loop, visited = self.loop, self.loop.visited()
        rows = []
        for index, member in enumerate(loop.members):
            row: Row = {"member": index, "seed": member.seed}
            row |= {name: member.hyper[name] for name in self.config.varied()}
            row |= {"step": self.env_steps, "updates": loop.schedule.updates(loop.step)}
            row |= dict.fromkeys(("return", "return_std", "length"))
            row["frozen"] = int(index in loop.health.failures)
            if visited is not None:
                row["visited"] = int(visited[index])
            rows.append(row | {name: value[index] for name, value in metrics.items()})
        return rows

    def _run_episodes(self) -> None:
        """Run the episodes of all evaluations that wait for them, and hand their rows to the watchers."""
        if not self.waiting:
            return
        moments, rows = zip(*self.waiting, strict=True)
        self.waiting.clear()
        results = self.loop.evaluate_moments(moments, self.config.training.eval_episodes)
        for known, episodes in zip(rows, results, strict=True):
            _fill_in(known, episodes)
            evaluation = Evaluation(known[0]["step"], known)
            self.shown = {name: evaluation.mean(name) for name in ("return", "visited") if name in known[0]}
            self._heed(self.watchers.on_evaluation(evaluation))
        self._report_progress()

    def _save(self) -> None:
        self._run_episodes()  # the record must be complete up to here
        seconds = self.recorder.seconds + time.perf_counter() - self.started
        notes = self.recorder.notes() | {"health": self.loop.health.save(), "seconds": seconds}
        arrays = {RECORD + name: array for name, array in self.recorder.arrays().items()}
        self.checkpointer.save(self.loop, notes, arrays)
        self.watchers.on_checkpoint(self.env_steps)

    def _save_early(self) -> None:
        """Save at a step that is no multiple of the period, so that nothing is lost."""
        self._run_episodes()
        if self.config.training.checkpoint_every:
            self._save()
            self.checkpointer.wait()
            self._report_problems()

    def _report_problems(self) -> None:
        while self.loop.health.news:
            self.say(self.loop.health.news.pop(0), warning=True)
        problem = self.checkpointer.problem()
        if problem is not None:
            self.say(f"{problem}; training goes on, the last good checkpoint is {self._last()}", warning=True)

    def _interrupted(self, number: int) -> NoReturn:
        self._save_early()
        raise Interrupted(f"stopped at step {self.env_steps:,}{self._hint()}", number)

    def _last(self) -> str:
        last = self.checkpointer.last
        return "none" if last is None else f"of step {last * self.loop.schedule.envs:,}"

    def _hint(self) -> str:
        self.checkpointer.wait()
        if self.checkpointer.last is None:
            return ""
        return f"; the last checkpoint is {self._last()}, continue with: dac resume {self.recorder.directory}"


def _fill_in(rows: list[Row], episodes: Episodes) -> None:
    """Put the returns and lengths of an evaluation's episodes into its rows."""
    means = episodes.returns.mean(axis=1)
    for index, row in enumerate(rows):
        row |= {"return": means[index], "return_std": episodes.returns[index].std()}
        row["length"] = episodes.lengths[index].mean()


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
