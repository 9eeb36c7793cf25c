"""A run that stays alive: trained, evaluated, recorded and saved, and given more steps later."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from dac.config import RunConfig
from dac.core.types import UsageError
from dac.envs.host import EnvironmentFailure
from dac.rundir.checkpoints import Checkpointer, restore_latest
from dac.rundir.lock import Fenced, Lock
from dac.rundir.names import CONFIG, METRICS, PROGRESS
from dac.rundir.reading import RunDirectory
from dac.rundir.writing import Recorder, Result, copy_rows, make_directory, resume_command, take_next_free
from dac.training.advice import describe_cut, describe_disk, describe_slow_envs
from dac.training.devices import choose_devices, count_devices, divide_cpu
from dac.training.health import find_warnings
from dac.training.kernels import settle_kernels
from dac.training.memory import describe_replay, keep_freed_memory
from dac.training.pending import PendingEvaluations, blank
from dac.training.precision import settle_precision
from dac.training.preparation import make_loop, place_of, read_dataset
from dac.training.signals import Interrupted, Signals
from dac.training.speedometer import Speedometer
from dac.training.watchers import AbstractWatcher, CallbackError, Position, Start, Watchers
from dac.training.watchers.metrics import MetricsFile
from dac.training.watchers.progress_file import TRACE, WAY_ON, ProgressFile

RECORD = "record/"
"""Marks the record's arrays among those of a checkpoint."""
SHOWN = ("return", "success", "visited")
"""Columns that the progress bar shows, where they are there."""


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
        divide_cpu(config.training.devices)
        config, self.offline = read_dataset(config)
        _, self.devices = choose_devices(config.training.devices, len(config.members()))
        config, self.precision = settle_precision(config)
        config, self.kernels = settle_kernels(config)
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
        self.pending = PendingEvaluations()
        self.told: set[str] = set()
        """What was said and is not to be said again."""

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
            self.loop.stopping, self.stop_reason, self.pending.failing = False, None, False
            start = Start(self.config, directory, self.loop.members, self.watchers.say, count_devices(self.loop.mesh))
            with _watched(self.watchers, start), Signals(self.loop.ask_to_stop) as self.signals:
                notes = (self.devices, self.precision, self.kernels)
                chosen = [line for line in notes if line is not None]
                for line in (self.memory, *chosen, *self._describe_dataset(), *self.loop.notes):
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
                    line, too_little = describe_disk(self.config, self.loop, directory)
                    self.say(line, warning=too_little)
                    self._tell_once("inexact", self.loop.inexact)
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
        if self.pending:  # a checkpoint behind them would be without their rows
            raise UsageError(f"an evaluation of step {self.pending.first:,} failed and is still to be made: learn on")
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
        return self.loop.env_steps

    def say(self, text: str, *, warning: bool = False) -> None:
        self.watchers.say(text, warning=warning)

    def _describe_dataset(self) -> list[str]:
        return [] if self.offline is None else [self.offline.line(self.config.training.offline_share)]

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
        if loop.inexact is not None:
            self.say(f"{loop.inexact}: not the same to the bit")

    def _run(self) -> RunDirectory:
        try:
            self._train()
        except EnvironmentFailure as failure:
            raise self._save_despite(failure) from failure.__cause__
        except Fenced:  # the run goes on elsewhere: there is nothing to save here, nor to continue
            raise
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
            devices=count_devices(loop.mesh),
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
            self._tell_once("slow", describe_slow_envs(self.config, self.loop, self.clock))
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
        metrics = loop.measure() if loop.step > loop.schedule.first_update else blank(loop)
        self._keep_visits()
        self.pending.add(self.config, loop, metrics)
        for (index, name), line in find_warnings(metrics, loop.members).items():
            if self.recorder.warn(index, name, line):
                self.say(f"{line}, at step {self.env_steps}", warning=True)
        if len(self.pending) >= loop.evaluations_at_once or loop.step == loop.schedule.iterations:
            self._run_episodes()

    def _keep_visits(self) -> None:
        visits = self.loop.visits()
        if visits is not None:
            self.recorder.keep_visits(self.env_steps, visits)

    def _run_episodes(self) -> None:
        """Run the episodes of all evaluations that wait for them, and hand their rows to the watchers."""
        done = self.pending.run(self.loop, self.config.training.eval_episodes)
        if not done:
            return
        self._tell_once("cut", describe_cut(self.config, self.loop, [episodes for _, episodes in done]))
        for evaluation, _ in done:
            row = evaluation.rows[0]
            self.shown = {name: evaluation.mean(name) for name in SHOWN if name in row}
            if new := self.recorder.lacking(row):  # begun by an older version, or before a first success
                line = f"{METRICS} of this run was begun without {', '.join(new)}, and goes on without"
                self._tell_once("columns", line, warning=True)
            self._heed(self.watchers.on_evaluation(evaluation))
        self._report_progress()

    def _tell_once(self, topic: str, line: str | None, *, warning: bool = False) -> None:
        """Say the line, if there is one and nothing was said on its topic before."""
        if line is not None and topic not in self.told:
            self.told.add(topic)
            self.say(line, warning=warning)

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
                more = f"{TRACE}{self.recorder.write_traceback(failure.__cause__)}"
            if not self.pending.failing:
                self._run_episodes()
            else:
                self.pending.drop_present(self.loop)  # earlier ones need the checkpoint before them
        if not self.pending:
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
        return f"{WAY_ON}{self._last()}, continue with: {resume_command(self.recorder.directory)}"
