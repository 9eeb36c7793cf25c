"""The loop of `dac tune`: tell Optuna what is known, choose a population, train it to the end of its rung, and again.

All that is decided is decided under the lock of the study's folder, from the folder and the storage alone. So it does
not matter which process goes on: the same one, one that was started after it was killed, or another machine's.
A process keeps the lock until it has that of the population it trains, so no two choose the same one.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dac.cluster.tuning.folder import Population, Tuning, make_population, read_populations, tidy
from dac.cluster.tuning.sampling import distributions_of, sample
from dac.core.types import UsageError
from dac.rundir.lock import Fenced, InUse, Lock, find_holder
from dac.training.run import continue_run
from dac.training.watchers import AbstractWatcher, Evaluation, Message, Position, Start

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

MakeWatcher = Callable[[Population], AbstractWatcher]
WAIT = 0.5
"""Seconds between looks at what other processes do."""
PATIENCE = 30.0
"""Seconds without anything to do before the populations of other machines are looked at for signs of life."""


class Tuner:
    """One process that works on a study, alone or beside others."""

    def __init__(self, directory: Path, tuning: Tuning, storage: BaseStorage, study: Study):
        self.directory, self.tuning, self.storage, self.study = directory, tuning, storage, study
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._waiting_since: float | None = None

    def run(self, watch: MakeWatcher, say: Callable[[str], None]) -> None:
        """Work until the last population of the study has reached its end, here or elsewhere.

        `watch` makes what shows the progress of a population, and `say` shows a line.
        """
        self._watch, self._say = watch, say
        while True:
            with contextlib.ExitStack() as planning:
                lock = self._begin_planning(planning)
                populations = read_populations(self.directory)
                tidy(self.directory, populations)
                self.tell(populations)
                chosen = (
                    self._find_free(populations) or self._climb(populations, lock) or self._begin(populations, lock)
                )
                if chosen is not None:
                    if chosen.chosen_from:  # those that were not chosen are known now
                        self.tell(read_populations(self.directory))
                    self._waiting_since = None
                    self._train(chosen, planning.close)
                    continue
            if self._is_over(populations):
                return
            self._wait(populations)

    def tell(self, populations: Sequence[Population]) -> None:
        """Report the value of every trial at the end of each rung, and say which have ended; nothing is told twice."""
        from optuna.trial import TrialState

        trials = {trial.number: trial for trial in self.study.get_trials(deepcopy=False)}
        missing = sorted({t for population in populations for t in population.trials} - set(trials))
        if missing:
            raise UsageError(
                f"the storage does not have trial {missing[0]} of {self.directory}; give the storage of this study"
            )
        gone_on = {name: set(p.trials) for p in populations for name in p.chosen_from}
        for population in populations:
            judged = population.name in gone_on
            open_trials = [n for n in population.trials if not trials[n].state.is_finished()]
            last = population.rung == self.tuning.ladder.last
            known = all(population.step in trials[number].intermediate_values for number in open_trials)
            if not open_trials or (known and not judged and not last) or not (judged or self._is_done(population)):
                continue
            for number, value in zip(population.trials, population.values(self.tuning), strict=True):
                trial = trials[number]
                if trial.state.is_finished():
                    continue
                if population.step not in trial.intermediate_values and math.isfinite(value):
                    identifier = self.storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
                    self.storage.set_trial_intermediate_value(identifier, population.step, value)
                if judged and number not in gone_on[population.name]:
                    state = TrialState.PRUNED if math.isfinite(value) else TrialState.FAIL
                    self.study.tell(number, state=state, skip_if_finished=True)
                elif last and math.isfinite(value):
                    self.study.tell(number, value, skip_if_finished=True)
                elif last:
                    self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def _is_done(self, population: Population) -> bool:
        return population.steps_made() >= population.step

    def _is_over(self, populations: Sequence[Population]) -> bool:
        ladder = self.tuning.ladder
        return any(p.rung == ladder.last and self._is_done(p) for p in populations)

    def _open(self, populations: Sequence[Population]) -> list[Population]:
        """The populations that are to be trained further."""
        judged = {name for population in populations for name in population.chosen_from}
        return [p for p in populations if p.name not in judged and not self._is_done(p)]

    def _find_free(self, populations: Sequence[Population]) -> Population | None:
        """A population that was begun and is trained by nobody, the one nearest to the end first."""
        for population in reversed(self._open(populations)):
            holder = find_holder(population.directory)
            if holder is None or not holder.alive:
                return population
        return None

    def _climb(self, populations: Sequence[Population], lock: Lock) -> Population | None:
        """Make a population of the best trials of a rung, as soon as enough of them have been measured."""
        ladder, count = self.tuning.ladder, self.tuning.at_once
        judged = {name for population in populations for name in population.chosen_from}
        for rung in reversed(range(ladder.last)):
            number = sum(p.rung == rung + 1 for p in populations)
            if number == ladder.counts[rung + 1]:
                continue
            waiting = [p for p in populations if p.rung == rung and p.name not in judged and self._is_done(p)]
            size = ladder.block(rung, number)
            if len(waiting) < size:
                continue
            below = waiting[:size]
            values = {t: v for p in below for t, v in zip(p.trials, p.values(self.tuning), strict=True)}
            best = sorted(values, key=lambda t: (-values[t] if math.isfinite(values[t]) else math.inf, t))[:count]
            return make_population(self.directory, self.tuning, rung + 1, number, self._params(best), below, lock)
        return None

    def _begin(self, populations: Sequence[Population], lock: Lock) -> Population | None:
        """Make a population of new trials on the lowest rung, if the study is to have more."""
        number = sum(p.rung == 0 for p in populations)
        if number == self.tuning.ladder.counts[0]:
            return None
        placed = {trial for population in populations for trial in population.trials}
        # a process that died may have left trials without a population: they are the first
        chosen = [t.number for t in self._trials() if t.number not in placed and not t.state.is_finished()]
        chosen = chosen[: self.tuning.at_once]
        while len(chosen) < self.tuning.at_once:
            chosen.append(self._ask(lock))
        return make_population(self.directory, self.tuning, 0, number, self._params(chosen), lock=lock)

    def _ask(self, lock: Lock) -> int:
        """Put one more trial into the storage, with all of its settings at once; returns its number."""
        from optuna.trial import TrialState, create_trial

        trials = self._trials()
        params = sample(self.tuning, trials)
        lock.check()
        self.study.add_trial(
            create_trial(state=TrialState.RUNNING, params=params, distributions=distributions_of(self.tuning))
        )
        return max(trial.number for trial in self._trials())

    def _trials(self) -> list[FrozenTrial]:
        return sorted(self.study.get_trials(deepcopy=False), key=lambda trial: trial.number)

    def _params(self, numbers: Sequence[int]) -> Mapping[int, Mapping[str, float]]:
        trials = {trial.number: trial for trial in self._trials()}
        return {number: trials[number].params for number in numbers}

    def _begin_planning(self, planning: contextlib.ExitStack) -> Lock:
        """Take the lock of the folder, when it is free."""
        while True:
            end = time.monotonic() + PATIENCE
            while _is_held(self.directory) and time.monotonic() < end:
                time.sleep(WAIT)
            with contextlib.suppress(InUse):  # of another machine, it has been looked at for signs of life
                return planning.enter_context(Lock(self.directory))
            time.sleep(WAIT)

    def _train(self, population: Population, begun: Callable[[], None]) -> None:
        watchers = [_Begun(begun), _Rung(population.step), _Warnings(self._watch(population))]
        try:
            continue_run(population.directory, None, watchers)
        except (InUse, Fenced):  # this process gave no sign of life for too long
            self._say(f"{population.name} is trained by another process now")

    def _wait(self, populations: Sequence[Population]) -> None:
        """Wait for populations that others train; after a while, see whether those machines still live."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
            names = ", ".join(p.name for p in self._open(populations))
            self._say(f"waiting for {names}, which other processes train")
        time.sleep(WAIT)
        if now - self._waiting_since < PATIENCE:
            return
        self._waiting_since = now
        for population in self._open(populations):
            with contextlib.suppress(InUse), Lock(population.directory):
                return  # it was left behind, and is free now


def _is_held(directory: Path) -> bool:
    holder = find_holder(directory)
    return holder is not None and holder.alive


class _Begun(AbstractWatcher):
    """Lets go of the study's lock as soon as the run has its own."""

    def __init__(self, begun: Callable[[], None]):
        self._begun = begun

    def on_start(self, start: Start) -> None:
        self._begun()


class _Rung(AbstractWatcher):
    """Stops a population at the end of its rung, after the evaluation there."""

    def __init__(self, step: int):
        self._step = step

    def on_progress(self, position: Position) -> str | None:
        return "its rung ends" if position.step >= self._step else None


class _Warnings(AbstractWatcher):
    """Another watcher, which hears nothing of what a population says as a run but its warnings."""

    def __init__(self, watcher: AbstractWatcher):
        self._watcher = watcher

    def on_start(self, start: Start) -> None:
        self._watcher.on_start(start)

    def on_message(self, message: Message) -> None:
        if message.warning:
            self._watcher.on_message(message)

    def on_progress(self, position: Position) -> str | None:
        return self._watcher.on_progress(position)

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        return self._watcher.on_evaluation(evaluation)

    def on_checkpoint(self, step: int) -> None:
        self._watcher.on_checkpoint(step)

    def on_end(self, error: BaseException | None) -> None:
        self._watcher.on_end(error)
