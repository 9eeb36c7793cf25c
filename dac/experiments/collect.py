"""The curves of an experiment, gathered from wherever its members were trained, and the scores read off them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dac.config import RunConfig
from dac.core.types import UsageError
from dac.envs.maze import SIZE
from dac.experiments.plan import Cell
from dac.experiments.stats import MaxAverage, max_average
from dac.rundir.reading import RunDirectory


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of one method on one task, of the members that there are."""

    cell: Cell
    seeds: tuple[int, ...]
    steps: Int[np.ndarray, " time"]
    values: dict[str, Float[np.ndarray, "time seed"]]
    """Every column of metrics.csv, by its name."""
    first_visit: Int[np.ndarray, "seed cell"] | None
    snapshots: dict[int, np.ndarray]
    """Visit counts (seed, cell) by step, where the task has a small grid."""
    runs: tuple[RunDirectory, ...]

    @property
    def name(self) -> str:
        return self.cell.method.name

    def missing(self) -> str | None:
        """Say in words what is not there yet; None if everything is."""
        so_far = self.so_far() if self.seeds else "nothing yet"
        return so_far and f"{self.name} on {self.cell.task}: {so_far}"

    def so_far(self) -> str | None:
        """Say in words how many seeds and steps there are; None if that is all of them."""
        wanted, training = len(self.cell.config.seeds), self.cell.config.training
        parts = []
        if len(self.seeds) < wanted:
            parts.append(f"{len(self.seeds)} of {wanted} seeds")
        # the last evaluation may fall a little short where steps are counted in rollouts
        last = int(self.steps[-1]) if len(self.steps) else 0
        if last < training.steps - training.eval_every:
            parts.append(f"{last:,} of {training.steps:,} steps")
        return ", ".join(parts) or None

    def frozen(self) -> str | None:
        """Say in words which seeds were frozen when they were no longer finite: what they did later is not learnt."""
        if "frozen" not in self.values:
            return None
        still = self.values["frozen"] > 0
        since = {seed: self.steps[row.argmax()] for seed, row in zip(self.seeds, still.T, strict=True) if row.any()}
        seeds = [f"{seed} from step {step:,}" for seed, step in since.items()]
        if not seeds:
            return None
        return f"{self.name} on {self.cell.task}: no longer finite and frozen, seed {', '.join(seeds)}"

    @property
    def envs(self) -> tuple[int, ...]:
        """Environments per member, of every run that the members are from."""
        return tuple(sorted({_envs(run) for run in self.runs}))

    def has(self, measure: str) -> bool:
        return bool(self.seeds) and measure in self.values and bool(np.isfinite(self.values[measure]).any())

    def until(self, step: int) -> Curves:
        """The evaluations up to a step, for a fair comparison with a method that has not come further."""
        return self._rows(np.flatnonzero(self.steps <= step))

    def seen(self, measure: str) -> Curves:
        """The evaluations in which some seed has a value."""
        return self._rows(np.flatnonzero(np.isfinite(self.values[measure]).any(axis=1)))

    def near(self, steps: Int[np.ndarray, " fewer"]) -> Curves:
        """The evaluations nearest to some steps.

        Two methods are compared with as many evaluations each, since more evaluations are more chances for a maximum.
        """
        if not len(steps) or not len(self.steps):
            return self._rows(np.zeros(0, int))
        return self._rows(np.unique(np.abs(self.steps[:, None] - steps).argmin(axis=0)))

    def _rows(self, rows: np.ndarray) -> Curves:
        values = {name: column[rows] for name, column in self.values.items()}
        return dataclasses.replace(self, steps=self.steps[rows], values=values)

    def best(self) -> MaxAverage:
        """The paper's max average return."""
        returns = self.values["return"]
        return max_average(np.where(np.isfinite(returns), returns, np.nan))

    def scores(self, measure: str) -> Float[np.ndarray, " seed"]:
        """One number per seed: the return at the time of the max average, as in the paper; else the last value."""
        values = self.values[measure]
        if measure == "return":
            values = values[self.best().index]
        else:
            values = values[np.flatnonzero(np.isfinite(values).any(axis=1))[-1]]
        return values[np.isfinite(values)]

    def last(self, measure: str) -> Float[np.ndarray, " seed"]:
        """Mean of each seed over the last tenth of its evaluations."""
        values = self.values[measure]
        tail = values[-max(1, len(values) // 10) :]
        return np.array([np.nanmean(column) for column in tail.T if np.isfinite(column).any()])


def far_room(first_visit: Int[np.ndarray, "seed cell"]) -> Int[np.ndarray, " seed"]:
    """Step at which each seed first entered the maze's room far from the start, -1 for never."""
    corner = first_visit.reshape(-1, SIZE, SIZE)[:, 53:, 53:].reshape(len(first_visit), -1)
    never = np.iinfo(np.int32).max
    entered = np.where(corner >= 0, corner, never).min(axis=1)
    return np.where(entered == never, -1, entered)


Holders = Mapping[int, Sequence[tuple[RunDirectory, int]]]
"""By seed, the runs that hold this member of a method, and its number there."""


class Holder(NamedTuple):
    """The run that a member is taken from, and its number there."""

    seed: int
    run: RunDirectory
    number: int


@dataclasses.dataclass(frozen=True)
class Standing:
    """How far the members of one method on one task are."""

    cell: Cell
    done: Mapping[int, int]
    """Environment steps by seed, of those that were begun: as many as are wanted where the member is complete."""
    envs: tuple[int, ...]
    """Environments per member, of every run they are from."""

    @property
    def complete(self) -> set[int]:
        """The seeds that have all their steps."""
        return {seed for seed, steps in self.done.items() if steps >= self.cell.config.training.steps}


def _envs(run: RunDirectory) -> int:
    return run.config.training.envs


class Shelf:
    """Finds runs by the members that they hold, whatever their number of environments, and reads each file once."""

    def __init__(self, runs: Sequence[RunDirectory]):
        self._members: dict[str, list[tuple[RunDirectory, int]]] = {}
        self._metrics: dict[RunDirectory, dict[str, np.ndarray]] = {}
        self._visits: dict[RunDirectory, dict[str, np.ndarray]] = {}
        self.problems: list[str] = []
        for run in runs:
            for index, member in enumerate(run.members):
                single = run.config.alone(member).one_at_a_time()
                self._members.setdefault(single.fingerprint(), []).append((run, index))

    def gather(self, cells: Sequence[Cell]) -> list[Curves]:
        """Every seed of each method that is there, finished or not, over the steps they all have."""
        return [self._gather(cell, found) for cell, found in zip(cells, self._choose(cells), strict=True)]

    def stand(self, cells: Sequence[Cell]) -> list[Standing]:
        """How far each method is, counting the same members as `gather` does."""
        return [self._stand(cell, found) for cell, found in zip(cells, self._choose(cells), strict=True)]

    def _choose(self, cells: Sequence[Cell]) -> list[list[Holder]]:
        """For every seed of each method, the run that it is taken from, where there is one.

        How many environments a member has changes how it learns, so methods on one task that ask for the same number
        are taken with the number that most of their members have, even where one was also run as it was asked for.
        """
        held = [{exact.seeds[0]: self._holders(exact) for exact in cell.members().values()} for cell in cells]
        alike: dict[tuple[str, int], list[tuple[Cell, Holders]]] = {}
        for cell, holders in zip(cells, held, strict=True):
            alike.setdefault((cell.task, cell.config.training.envs), []).append((cell, holders))
        envs = {key: self._usual_envs(key[1], group) for key, group in alike.items()}
        chosen = []
        for cell, members in zip(cells, held, strict=True):
            length, number = cell.config.training.steps, envs[cell.task, cell.config.training.envs]
            best = {
                seed: max(holders, key=lambda holder: self._preference(number, length, *holder))
                for seed, holders in members.items()
                if holders
            }
            chosen.append([Holder(seed, *holder) for seed, holder in best.items()])
        return chosen

    def _usual_envs(self, asked: int, group: Sequence[tuple[Cell, Holders]]) -> int:
        """The number of environments with which most steps were made; the number asked for if none were."""
        there: collections.Counter[int] = collections.Counter({asked: 0})
        for cell, members in group:
            for holders in members.values():
                furthest: dict[int, int] = {}
                for run, index in holders:
                    done = self._progress(run, index, cell.config.training.steps)[0]
                    furthest[_envs(run)] = max(done, furthest.get(_envs(run), 0))
                there.update(furthest)
        return max(there, key=lambda n: (there[n], n == asked))

    def _holders(self, exact: RunConfig) -> list[tuple[RunDirectory, int]]:
        """The runs that hold a member, and its number in each."""
        single = exact.one_at_a_time()
        return [
            (run, index)
            for run, index in self._members.get(single.fingerprint(), [])
            if run.config.alone(run.members[index]).one_at_a_time().covers(single)
            and len(self._read(run).get("step", ()))
        ]

    def _stand(self, cell: Cell, found: Sequence[Holder]) -> Standing:
        length, done = cell.config.training.steps, {}
        for seed, run, index in found:
            last, _ = self._progress(run, index, length)
            complete = run.finished or last > length - run.config.training.eval_every
            done[seed] = length if complete else last
        return Standing(cell, done, tuple(sorted({_envs(run) for _, run, _ in found})))

    def _gather(self, cell: Cell, found: Sequence[Holder]) -> Curves:
        runs = tuple(dict.fromkeys(run for _, run, _ in found))
        common = [set(self._read(run)["step"][:, 0].astype(int)) for run in runs]
        steps = np.array(sorted(set.intersection(*common)) if common else [], int)
        steps = steps[steps <= cell.config.training.steps]
        columns = set.intersection(*(set(self._read(run)) for run in runs)) if runs else set()
        values = {name: np.stack([self._column(r, name, steps)[:, i] for _, r, i in found], 1) for name in columns}
        first, snapshots = self._gather_visits(found, cell.config.training.steps)
        return Curves(cell, tuple(seed for seed, _, _ in found), steps, values, first, snapshots, runs)

    def _preference(self, envs: int, length: int, run: RunDirectory, index: int) -> tuple[bool, bool, int, int]:
        """Sort key of the runs that hold a member: finished ones, then those with `envs` environments, the longest, and
        the one evaluated most often."""
        last, count = self._progress(run, index, length)
        return last > length - run.config.training.eval_every, _envs(run) == envs, last, count

    def _progress(self, run: RunDirectory, index: int, length: int) -> tuple[int, int]:
        """The last evaluation within the steps that were asked for, and the number of evaluations up to it."""
        steps = self._read(run)["step"][:, index]
        within = steps[steps <= length]
        return (int(within[-1]), len(within)) if len(within) else (0, 0)

    def _column(self, run: RunDirectory, name: str, steps: np.ndarray) -> np.ndarray:
        metrics = self._read(run)
        rows = np.searchsorted(metrics["step"][:, 0], steps)
        return metrics[name][rows]

    def _gather_visits(self, found: Sequence[Holder], length: int) -> tuple[np.ndarray | None, dict[int, np.ndarray]]:
        """Visits within the steps that were asked for, since runs may be longer."""
        visits = [(self._read_visits(run), index) for _, run, index in found]
        if not visits or not all("first_visit" in arrays for arrays, _ in visits):
            return None, {}
        names = set.intersection(*(set(arrays) for arrays, _ in visits)) - {"first_visit"}
        first = np.stack([arrays["first_visit"][index] for arrays, index in visits])
        counts = {name: np.stack([arrays[name][index] for arrays, index in visits]) for name in names}
        snapshots = {int(name.removeprefix("visits_")): counts[name] for name in sorted(names)}
        return np.where(first <= length, first, -1), {step: c for step, c in snapshots.items() if step <= length}

    def _read(self, run: RunDirectory) -> dict[str, np.ndarray]:
        if run not in self._metrics:
            try:
                self._metrics[run] = run.metrics
            except UsageError as error:
                self.problems.append(str(error))
                self._metrics[run] = {}
        return self._metrics[run]

    def _read_visits(self, run: RunDirectory) -> dict[str, np.ndarray]:
        if run not in self._visits:
            try:
                # those of a run that is getting longer are from its end before
                self._visits[run] = run.visits if run.finished else {}
            except UsageError:  # the task has no grid
                self._visits[run] = {}
        return self._visits[run]
