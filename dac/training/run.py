"""One run from its configuration to its directory: train, evaluate, record, and tell the watchers.

`run` and `continue_run` are one run from its start to its end. A `Session` is a run that stays alive: it can be given
more steps and goes on to the bit, also where its environments cannot be saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np

from dac.config import RunConfig, with_loggers, with_steps
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec, UsageError
from dac.envs.host import EnvironmentFailure, usable_cores
from dac.rundir.checkpoints import Checkpointer, disk_bytes, free_bytes, restore_latest
from dac.rundir.lock import Lock
from dac.rundir.names import CONFIG, METRICS, PROGRESS
from dac.rundir.reading import RunDirectory
from dac.rundir.writing import Recorder, Result, copy_rows, make_directory, resume_command, take_next_free
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from dac.training.evaluate import Evaluation as Episodes
from dac.training.evaluate import Moment
from dac.training.health import find_warnings
from dac.training.host import HostLoop
from dac.training.loggers import make_loggers
from dac.training.loop import AbstractLoop
from dac.training.memory import Place, describe_replay, keep_freed_memory, place_replay, replay_bytes
from dac.training.precision import settle_precision
from dac.training.signals import Interrupted, Signals
from dac.training.watchers import (
    AbstractWatcher,
    CallbackError,
    Evaluation,
    Position,
    Start,
    Watcher,
    Watchers,
    as_watcher,
)
from dac.training.watchers.metrics import MetricsFile
from dac.training.watchers.progress_file import ProgressFile

if TYPE_CHECKING:
    from dac.training.offline import OfflineData

RECORD = "record/"
"""Marks the record's arrays among those of a checkpoint."""
Row = dict[str, Any]
SHOWN = ("return", "success", "visited")
"""Columns that the progress bar shows, where they are there."""
SLOW_AFTER = 5.0
"""Seconds of training after which it is judged whether the environments take most of the time."""


def read_dataset(config: RunConfig) -> tuple[RunConfig, OfflineData | None]:
    """The dataset that the run learns from beside what it sees, or None, and the run with the dataset's checksum."""
    if config.training.init_replay == "none":
        return config, None
    from dac.training.offline import load_offline  # Gymnasium comes with it, for which the others need not wait

    task = config.find_task()
    offline = load_offline(config.training.init_replay, task.spec(), task.bounds())
    return config.with_dataset(offline.name), offline


def place_of(
    config: RunConfig,
    spec: EnvSpec | None = None,
    offline: OfflineData | None = None,
    schedule: Schedule | None = None,
) -> Place:
    """Where the replay buffer of this run goes, a dataset with it; refuses, with the figures, one that fits nowhere."""
    task, schedule = config.find_task(), schedule or config.schedule()
    # a rollout is small and read as a whole: what learns on-policy has it on the device
    on_host = task.host is not None and not schedule.rollout
    wanted = "auto" if schedule.rollout else config.training.replay
    return place_replay(wanted, len(config.members()), schedule, spec or task.spec(), on_host=on_host, offline=offline)


def make_loop(config: RunConfig, offline: OfflineData | None = None) -> tuple[AbstractLoop, str]:
    """The loop that fits the task, and a line on the memory that its replay buffer needs."""
    task, members, schedule = config.find_task(), config.members(), config.schedule()
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
        more: Row = {"host_replay": place == "host", "on_nan": on_nan, "eval_limit": config.training.eval_limit}
        loop = HostLoop(algorithm, make_envs, members, schedule, envs=envs, dataset=dataset, **more)
    except BaseException:
        envs.close()
        raise
    return loop, memory


def continue_run(
    directory: Path, steps: int | None, watchers: Sequence[Watcher], log: Sequence[str] | None = None
) -> RunDirectory:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given.

    These may be fewer than were asked for at first, but not fewer than the run has. The run keeps its loggers, unless
    others are given.
    """
    found = RunDirectory(directory)
    before, last = found.config.training.steps, found.last_checkpoint()
    config = found.config if log is None else with_loggers(found.config, log)
    config = config if steps is None else with_steps(config, steps)
    if found.finished and config.training.steps <= before:
        raise UsageError(f"{directory} is finished, at {before} steps; give more with `steps=`")
    if config.training.steps < last:
        raise UsageError(f"{directory} is at step {last} already, its last checkpoint; `steps=` cannot be {steps}")
    return run(config, directory, watchers, resuming=True)


def run(config: RunConfig, wanted: Path | None, watchers: Sequence[Watcher], *, resuming: bool = False) -> RunDirectory:
    """Train to the end, evaluating, recording and saving on the way.

    A new run is put into the directory that is wanted, or into the next free one of `runs`.
    """
    everyone = all_watchers(config, watchers)
    with contextlib.closing(Session(config, wanted)) as session:
        return session.train(everyone, resume_from=wanted if resuming else None)


def all_watchers(config: RunConfig, watchers: Sequence[Watcher]) -> list[AbstractWatcher]:
    """The loggers of a configuration and a user's watchers; refuses what is no watcher and a logger that is missing."""
    return [*make_loggers(config.training.log), *(as_watcher(watcher) for watcher in watchers)]


@contextlib.contextmanager
def _emptied(directory: Path):
    """Remove a directory that an error left without a run: what cannot run leaves nothing behind."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # it holds something else
            if not (directory / CONFIG).exists():
                (directory / PROGRESS).unlink(missing_ok=True)
            directory.rmdir()
        raise


@contextlib.contextmanager
def _watched(watchers: Watchers, start: Start):
    """Tell the watchers of the start and, whatever happens, of the end."""
    try:
        watchers.on_start(start)
        yield
    except BaseException as error:
        watchers.on_end(error)
        raise
    watchers.on_end(None)
    if (failure := watchers.failure) is not None:
        raise CallbackError(f"{failure}; the run itself is saved in {start.directory}") from failure.__cause__


class Session:
    """A run in this process, from its first step, or from a checkpoint, to as many steps as it is given."""

    signals: Signals
    watchers: Watchers

    def __init__(self, config: RunConfig, directory: Path | None, *, saves: bool = True):
        """Make the training loop, and only then the directory, so that what cannot run leaves nothing behind.

        Without a directory it is the next free one of `runs`. Without `saves` no checkpoints are written on the way:
        for a run whose directory nobody else knows.
        """
        self.started = time.perf_counter()
        keep_freed_memory()
        config, self.offline = read_dataset(config)
        config, self.precision = settle_precision(config)
        self.config, self.saves = config, saves
        self.loop, self.memory = make_loop(config, self.offline)
        if directory is None:
            try:
                directory = take_next_free(config.task, config.algorithm)
            except BaseException:
                self.loop.close()
                raise
        self.recorder = Recorder(directory, config, config.members())
        self.checkpointer = Checkpointer(directory, config.fingerprint())
        self.clock = Speedometer(len(self.loop.members) * self.loop.schedule.envs)
        self.shown: dict[str, float] = {}
        self.begun = False
        """Whether the directory holds this run."""
        self.broken: str | None = None
        """Why the training loop cannot go on, and what to do, once something went wrong in it."""
        self.stop_reason: str | None = None
        """Why a watcher asked the run to stop, if one did."""
        self.waiting: list[tuple[Moment, list[Row]]] = []
        """Evaluations whose episodes are still to be run, with what is known of their rows."""
        self.told: set[str] = set()
        """What was said and is not to be said again."""
        self.evaluations_fail = False
        """Whether an environment failed in an evaluation, as it would again."""

    def close(self) -> None:
        self.loop.close()

    def train(self, watchers: Sequence[AbstractWatcher], *, resume_from: Path | None = None) -> RunDirectory:
        """Train to the end of the configuration, evaluating, recording and saving on the way.

        With `resume_from` the run goes on from the latest checkpoint of that directory.
        """
        if self.broken is not None:
            raise UsageError(self.broken)
        directory = self.recorder.directory
        make_directory(directory)
        with _emptied(directory), Lock(directory):
            if not self.begun and directory != resume_from and (directory / CONFIG).exists():
                raise UsageError(f"{directory} exists already; give another `out=`, or remove it first")
            self.watchers = Watchers([MetricsFile(self.recorder), ProgressFile(directory), *watchers])
            self.loop.stopping, self.stop_reason, self.evaluations_fail = False, None, False
            start = Start(self.config, directory, self.loop.members, self.watchers.say)
            with _watched(self.watchers, start), Signals(self.loop.ask_to_stop) as self.signals:
                precision = [] if self.precision is None else [self.precision]
                for line in (self.memory, *precision, *self._describe_dataset(), *self.loop.notes):
                    self.say(line)
                if self.begun:
                    self.recorder.go_on()
                    self.watchers.on_restore(self.env_steps)
                elif resume_from is not None:
                    copy_rows(resume_from, directory)
                    self.restore(resume_from)
                # only now: beside the summary of a shorter run, that of a longer one would make it look finished
                self.recorder.write_config()
                self.begun = True
                if self.save_every:
                    self.describe_disk()
                try:
                    return self._run()
                finally:
                    self.recorder.seconds += time.perf_counter() - self.started

    def extend(self, config: RunConfig) -> None:
        """Give the run more steps: `config` is its configuration with another number of them.

        The replay buffer may have to grow. It at least doubles then: every size is a program of its own to compile.
        """
        if self.broken is not None:
            raise UsageError(self.broken)
        loop, schedule = self.loop, config.schedule()
        capacity, on_host = loop.capacity, loop.host_replay
        if schedule.capacity > capacity:
            most = math.ceil(config.training.capacity / schedule.envs) * schedule.envs
            capacity = min(most, max(schedule.capacity, 2 * capacity))
        schedule = dataclasses.replace(schedule, capacity=capacity)
        if capacity > loop.capacity:
            place = place_of(config, loop.spec, self.offline, schedule)
            self.memory, on_host = describe_replay(place, len(loop.members), schedule, loop.spec), place == "host"
            self.clock.forget_programs()
        loop.extend(config.make_algorithm(), config.members(), schedule, host_replay=on_host)
        self.config = self.recorder.config = config
        self.started = time.perf_counter()

    def save(self, directory: Path) -> None:
        """Write the run as it is now into another directory, with a checkpoint, so that it can go on from there."""
        if self.waiting:  # a checkpoint behind them would be without their rows
            raise UsageError(
                f"an evaluation of step {self.waiting[0][1][0]['step']:,} failed and is still to be made: learn on"
            )
        make_directory(directory)
        recorder, saved = self.recorder, self.checkpointer
        if directory != recorder.directory:
            recorder, saved = recorder.copy_to(directory), Checkpointer(directory, self.config.fingerprint())
        saved.save(self.loop, self._notes(recorder), self._arrays(recorder))
        saved.wait()
        if (problem := saved.problem()) is not None:
            raise UsageError(problem)
        recorder.write_config()
        recorder.write_policies(self.loop.policies())
        if self.loop.step >= self.loop.schedule.iterations:
            recorder.finish(self._result())

    @property
    def save_every(self) -> int:
        """Iterations between checkpoints, 0 for none."""
        return math.ceil(self.config.training.checkpoint_every / self.loop.schedule.envs) if self.saves else 0

    @property
    def env_steps(self) -> int:
        """Environment steps per member so far."""
        return self.loop.step * self.loop.schedule.envs

    def say(self, text: str, *, warning: bool = False) -> None:
        self.watchers.say(text, warning=warning)

    def _describe_dataset(self) -> list[str]:
        return [] if self.offline is None else [self.offline.line(self.config.training.offline_share)]

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

    def restore(self, directory: Path) -> None:
        """Put loop and record back to the latest checkpoint of a directory that is whole."""
        loop, recorder, fingerprint = self.loop, self.recorder, self.config.fingerprint()
        found = restore_latest(
            directory,
            fingerprint,
            lambda found: recorder.check(found.notes),
            lambda problem: self.say(problem, warning=True),
        )
        if found is None:
            recorder.restore(None, {})
            self.watchers.on_restore(0)
            self.say("no checkpoint yet: the run starts from the beginning")
            return
        checkpoint, arrays, rows = found
        record = {name.removeprefix(RECORD): array for name, array in arrays.items() if name.startswith(RECORD)}
        loop.health.restore(checkpoint.notes["health"])
        loop.restore(checkpoint.step, {n: a for n, a in arrays.items() if not n.startswith(RECORD)}, rows)
        recorder.restore(checkpoint.notes, record)
        if directory == recorder.directory:
            self.checkpointer = Checkpointer(directory, fingerprint, checkpoint)
            recorder.write_policies(loop.policies())  # those on the disk may be of a later checkpoint that is damaged
        self.watchers.on_restore(self.env_steps)
        self.say(f"continues at step {self.env_steps:,}")
        platform = jax.devices()[0].platform
        if platform != checkpoint.platform:
            self.say(f"it ran on {checkpoint.platform} and goes on on {platform}: not the same to the last bit")
        if not loop.restores_exactly:
            self.say("its environments cannot be saved: they begin new episodes, so it is not the same to the bit")

    def _run(self) -> RunDirectory:
        try:
            self._train()
        except EnvironmentFailure as failure:
            raise self._save_despite(failure) from failure.__cause__
        except UsageError as error:
            with contextlib.suppress(UsageError):
                self._run_episodes()
            raise UsageError(f"{error}{self._hint()}") from error
        finally:
            self.checkpointer.wait()
            self._report_problems()
        loop, recorder = self.loop, self.recorder
        recorder.write_policies(loop.policies())
        if loop.step < loop.schedule.iterations:  # a watcher had seen enough, or failed
            if self.watchers.failure is not None:
                raise CallbackError(f"{self.watchers.failure}{self._hint()}") from self.watchers.failure.__cause__
            self.say(f"stopped at step {self.env_steps:,}: {self.stop_reason}{self._hint()}")
            return RunDirectory(recorder.directory)
        self._keep_visits()  # of a run that was cut to what it had, the last step was not known to be the last
        recorder.finish(self._result(time.perf_counter() - self.started))
        return RunDirectory(recorder.directory)

    def _result(self, seconds: float = 0.0) -> Result:
        """What the run has come to; `seconds` are those that the recorder has not counted yet."""
        loop = self.loop
        return Result(
            steps=self.env_steps,
            updates=loop.schedule.updates(loop.step),
            frozen=loop.health.save(),
            visited=loop.visited(),
            first_visits=loop.first_visits(),
            grid=loop.grid,
            walls=loop.walls,
            seconds=seconds,
            agent_steps_per_second=self.clock.rate,
        )

    def _train(self) -> None:
        loop, schedule, save_every = self.loop, self.loop.schedule, self.save_every
        if self._lacks_evaluation():
            self._evaluate()
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

    def _lacks_evaluation(self) -> bool:
        """Whether a run that resumes stands where there is an evaluation, and has none: it was to go further."""
        loop, schedule = self.loop, self.loop.schedule
        due = loop.step % schedule.eval_iterations == 0 or loop.step == schedule.iterations
        return due and self.recorder.last_step < self.env_steps

    def _advance(self, until: int) -> None:
        loop, schedule = self.loop, self.loop.schedule
        while loop.step < until and not loop.stopping:
            try:
                self.clock.measure(loop, lambda: loop.advance(min(until, loop.step + schedule.chunk)))
            except BaseException as error:
                whole = isinstance(error, EnvironmentFailure)  # the loop stands between two steps
                hint = "save it, and load that to go on" if whole else "go on from a checkpoint"
                self.broken = f"training broke off ({' '.join(f'{type(error).__name__}: {error}'.split())}); {hint}"
                raise
            self._report_problems()
            self._tell_of_slow_envs()
            self._report_progress()

    def _report_progress(self) -> None:
        self._heed(self.watchers.on_progress(Position(self.env_steps, self.clock.rate, self.shown)))

    def _heed(self, reason: str | None) -> None:
        """Stop as soon as the present step is complete, if a watcher gave a reason to."""
        if reason is not None and self.stop_reason is None:
            self.stop_reason = reason
            self.loop.ask_to_stop()

    def _evaluate(self) -> None:
        loop = self.loop
        metrics = loop.measure() if loop.step > loop.schedule.first_update else _blank(loop)
        self._keep_visits()
        self.waiting.append((loop.moment(), self._known_columns(metrics)))
        for (index, name), line in find_warnings(metrics, loop.members).items():
            if self.recorder.warn(index, name, line):
                self.say(f"{line}, at step {self.env_steps}", warning=True)
        if len(self.waiting) >= loop.evaluations_at_once or loop.step == loop.schedule.iterations:
            self._run_episodes()

    def _keep_visits(self) -> None:
        visits = self.loop.visits()
        if visits is not None:
            self.recorder.keep_visits(self.env_steps, visits)

    def _known_columns(self, metrics: dict[str, np.ndarray]) -> list[Row]:
        """The rows of an evaluation at this step, until its episodes have been run without their returns."""
        loop, visited = self.loop, self.loop.visited()
        rows = []
        for index, member in enumerate(loop.members):
            row: Row = {"member": index, "seed": member.seed}
            row |= {name: member.hyper[name] for name in self.config.varied()}
            row |= {"step": self.env_steps, "updates": loop.schedule.updates(loop.step)}
            row |= dict.fromkeys(("return", "return_std", "length", "success"))
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
        try:
            results = self.loop.evaluate_moments(moments, self.config.training.eval_episodes)
        except EnvironmentFailure:
            self.evaluations_fail = True
            raise
        self.waiting.clear()
        self._tell_of_cut(results)
        for moment, known, episodes in zip(moments, rows, results, strict=True):
            _fill_in(known, episodes)
            evaluation = Evaluation(known[0]["step"], known, moment)
            self.shown = {name: evaluation.mean(name) for name in SHOWN if name in known[0]}
            self._tell_of_new_columns(known[0])
            self._heed(self.watchers.on_evaluation(evaluation))
        self._report_progress()

    def _tell_of_cut(self, results: Sequence[Episodes]) -> None:
        """Say once that episodes end where the environment would go on."""
        cut, told = self.loop.cut_at, self.told
        if cut is not None and "cut" not in told and any((episodes.lengths >= cut).any() for episodes in results):
            told.add("cut")
            self.say(
                f"{self.config.task} has no time limit below {cut:,} steps, after which evaluations cut an episode "
                "(the setting eval_limit)"
            )

    def _tell_of_new_columns(self, row: Row) -> None:
        """Say once that metrics.csv was begun without a column: by an older version, or before a first success."""
        if "columns" not in self.told and (new := self.recorder.lacking(row)):
            self.told.add("columns")
            self.say(f"{METRICS} of this run was begun without {', '.join(new)}, and goes on without", warning=True)

    def _tell_of_slow_envs(self) -> None:
        """Say once that worker processes would help, where most of the time goes into stepping environments in turn."""
        loop, clock = self.loop, self.clock
        if "slow" in self.told or clock.seconds < SLOW_AFTER or clock.stepping < clock.seconds / 2:
            return
        self.told.add("slow")
        count = min(len(loop.members) * loop.schedule.envs, usable_cores())
        if count > 1 and not self.config.training.workers and find_task(self.config.task).takes_workers:
            self.say(
                f"{clock.stepping / clock.seconds:.0%} of the time goes into stepping the environments one after the "
                f"other; the setting workers spreads them over processes (--workers {count})"
            )

    def _save(self) -> None:
        self._run_episodes()  # the record must be complete up to here
        notes = self._notes(self.recorder, time.perf_counter() - self.started)
        policies = self.loop.copy_policies()
        write_policies = functools.partial(self.recorder.write_policies, policies)
        self.checkpointer.save(self.loop, notes, self._arrays(self.recorder), write_policies)
        self.watchers.on_checkpoint(self.env_steps)

    def _notes(self, recorder: Recorder, seconds: float = 0.0) -> dict[str, Any]:
        """What a checkpoint remembers beside arrays; `seconds` are those that the recorder has not counted yet."""
        return recorder.notes() | {"health": self.loop.health.save(), "seconds": recorder.seconds + seconds}

    def _arrays(self, recorder: Recorder) -> dict[str, np.ndarray]:
        return {RECORD + name: array for name, array in recorder.arrays().items()}

    def _save_early(self) -> None:
        """Save at a step that is no multiple of the period, so that nothing is lost."""
        self._run_episodes()
        if self.save_every:
            self._save()
            self.checkpointer.wait()
            self._report_problems()
        else:
            self.recorder.write_policies(self.loop.policies())

    def _save_despite(self, failure: EnvironmentFailure) -> EnvironmentFailure:
        """Save a run whose environment failed, and return the failure with what to do about it."""
        more = ""
        with contextlib.suppress(UsageError):
            if failure.__cause__ is not None:
                more = f"; its traceback is in {self.recorder.write_traceback(failure.__cause__)}"
            if not self.evaluations_fail:
                self._run_episodes()
            elif self.waiting and self.waiting[0][0].step == self.loop.step:
                self.waiting.clear()  # it is made when the run resumes; earlier ones need the checkpoint before them
        if not self.waiting:
            with contextlib.suppress(UsageError):
                self._save_early()
        return EnvironmentFailure(f"{failure}{more}{self._hint()}", failure.row, failure.when, failure.what)

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
        return f"; the last checkpoint is {self._last()}, continue with: {resume_command(self.recorder.directory)}"


def _fill_in(rows: list[Row], episodes: Episodes) -> None:
    """Put the returns and lengths of an evaluation's episodes into its rows."""
    means = episodes.returns.mean(axis=1)
    for index, row in enumerate(rows):
        row |= {"return": means[index], "return_std": episodes.returns[index].std()}
        row["length"] = episodes.lengths[index].mean()
        if episodes.successes is None:
            del row["success"]
        else:
            row["success"] = episodes.successes[index].mean()


class Speedometer:
    """Agent-steps per second of training alone: no evaluation, no compilation."""

    def __init__(self, steps_per_iteration: int):
        self.steps_per_iteration = steps_per_iteration
        self.rate: float | None = None
        self.seconds, self.stepping = 0.0, 0.0
        """Time without compilation, and what of it went into stepping environments."""
        self._seen: set[tuple[int, bool, bool]] = set()
        self._steps = 0

    def forget_programs(self) -> None:
        """Expect that what comes next has to be compiled."""
        self._seen.clear()

    def measure(self, loop: AbstractLoop, advance: Callable[[], None]) -> None:
        before, learning = loop.step, loop.step >= loop.schedule.first_update
        stepping = loop.seconds_stepping
        start = time.perf_counter()
        advance()
        loop.wait()
        seconds = time.perf_counter() - start
        program = (loop.step - before, learning, loop.health.mask is None)
        if program in self._seen and learning:  # the first call of each program compiles it
            self._steps += loop.step - before
            self.seconds += seconds
            self.stepping += loop.seconds_stepping - stepping
            self.rate = self._steps * self.steps_per_iteration / self.seconds
        self._seen.add(program)


def _blank(loop: AbstractLoop) -> dict[str, np.ndarray]:
    """Before the first update there is nothing to measure, but the columns must be there."""
    return {name: np.full(len(loop.members), np.nan) for name in loop.metric_names()}
