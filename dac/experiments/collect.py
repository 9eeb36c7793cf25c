"""The curves of an experiment, gathered from wherever its members were trained, and the scores read off them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from dac.config import RunConfig
from dac.envs.maze import SIZE
from dac.experiments.plan import Cell
from dac.experiments.stats import MaxAverage, max_average
from dac.runs import Run
from dac.types import UsageError


@dataclasses.dataclass(frozen=True)
class Curves:
    """One method on one task: what there is of it."""

    cell: Cell
    seeds: tuple[int, ...]
    steps: Int[np.ndarray, " time"]
    values: dict[str, Float[np.ndarray, "time seed"]]
    """By column of metrics.csv."""
    first_visit: Int[np.ndarray, "seed cell"] | None
    snapshots: dict[int, np.ndarray]
    """Visit counts (seed, cell) by step, where the task has a small grid."""
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        return self.cell.method.name

    def missing(self) -> str | None:
        """What is not there yet, in words."""
        so_far = self.so_far() if self.seeds else "nothing yet"
        return so_far and f"{self.name} on {self.cell.task}: {so_far}"

    def so_far(self) -> str | None:
        """How much of it there is, in words; None if that is all."""
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
        """Which seeds were no longer finite and stand still, in words: what they did later is not learnt."""
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
        """Environments per member, of every run it is from."""
        return tuple(sorted({_envs(run) for run in self.runs}))

    def has(self, measure: str) -> bool:
        return bool(self.seeds) and measure in self.values and bool(np.isfinite(self.values[measure]).any())

    def until(self, step: int) -> Curves:
        """The first part of it, for a fair comparison with what has not come further."""
        return self._rows(np.flatnonzero(self.steps <= step))

    def seen(self, measure: str) -> Curves:
        """Those of its evaluations in which some seed has a value."""
        return self._rows(np.flatnonzero(np.isfinite(self.values[measure]).any(axis=1)))

    def near(self, steps: Int[np.ndarray, " fewer"]) -> Curves:
        """Its evaluations nearest to some steps: of two methods, the one that is evaluated more often has more chances
        for a maximum."""
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


Holders = Mapping[int, Sequence[tuple[Run, int]]]
"""By seed, the runs that hold this member of a method, and its number there."""


def _envs(run: Run) -> int:
    return run.config.training.envs


class Shelf:
    """Runs by the members they hold, whatever their number of environments; each file is read once."""

    def __init__(self, runs: Sequence[Run]):
        self._members: dict[str, list[tuple[Run, int]]] = {}
        self._metrics: dict[Run, dict[str, np.ndarray]] = {}
        self._visits: dict[Run, dict[str, np.ndarray]] = {}
        self.problems: list[str] = []
        for run in runs:
            for index, member in enumerate(run.members):
                single = run.config.alone(member).one_at_a_time()
                self._members.setdefault(single.fingerprint(), []).append((run, index))

    def gather(self, cells: Sequence[Cell]) -> list[Curves]:
        """Every seed of each method that is there, finished or not, over the steps they all have.

        How many environments a member has changes how it learns, so methods on one task that ask for the same number
        are taken with the number that most of their members have, even where one was also run as it was asked for.
        """
        held = [{exact.seeds[0]: self._holders(exact) for exact in cell.members().values()} for cell in cells]
        alike: dict[tuple[str, int], list[tuple[Cell, Holders]]] = {}
        for cell, holders in zip(cells, held, strict=True):
            alike.setdefault((cell.task, cell.config.training.envs), []).append((cell, holders))
        envs = {key: self._usual_envs(key[1], group) for key, group in alike.items()}
        return [
            self._gather(cell, holders, envs[cell.task, cell.config.training.envs])
            for cell, holders in zip(cells, held, strict=True)
        ]

    def _usual_envs(self, asked: int, group: Sequence[tuple[Cell, Holders]]) -> int:
        """With how many most was trained, a member that is half done counting half; as asked if that says nothing."""
        there: collections.Counter[int] = collections.Counter({asked: 0})
        for cell, members in group:
            for holders in members.values():
                furthest: dict[int, int] = {}
                for run, index in holders:
                    done = self._progress(run, index, cell.config.training.steps)[0]
                    furthest[_envs(run)] = max(done, furthest.get(_envs(run), 0))
                there.update(furthest)
        return max(there, key=lambda n: (there[n], n == asked))

    def _holders(self, exact: RunConfig) -> list[tuple[Run, int]]:
        """Where a member is to be found, and which one it is there."""
        single = exact.one_at_a_time()
        return [
            (run, index)
            for run, index in self._members.get(single.fingerprint(), [])
            if run.config.alone(run.members[index]).one_at_a_time().covers(single)
            and len(self._read(run).get("step", ()))
        ]

    def _gather(self, cell: Cell, members: Holders, envs: int) -> Curves:
        found: list[tuple[int, Run, int]] = []
        for seed, holders in members.items():
            if holders:
                length = cell.config.training.steps
                run, index = max(holders, key=lambda holder: self._preference(envs, length, *holder))
                found.append((seed, run, index))
        runs = tuple(dict.fromkeys(run for _, run, _ in found))
        common = [set(self._read(run)["step"][:, 0].astype(int)) for run in runs]
        steps = np.array(sorted(set.intersection(*common)) if common else [], int)
        steps = steps[steps <= cell.config.training.steps]
        columns = set.intersection(*(set(self._read(run)) for run in runs)) if runs else set()
        values = {name: np.stack([self._column(r, name, steps)[:, i] for _, r, i in found], 1) for name in columns}
        first, snapshots = self._gather_visits(found, cell.config.training.steps)
        return Curves(cell, tuple(seed for seed, _, _ in found), steps, values, first, snapshots, runs)

    def _preference(self, envs: int, length: int, run: Run, index: int) -> tuple[bool, bool, int, int]:
        """One that is finished, with that many environments, else the furthest, the one evaluated most often."""
        last, count = self._progress(run, index, length)
        return last > length - run.config.training.eval_every, _envs(run) == envs, last, count

    def _progress(self, run: Run, index: int, length: int) -> tuple[int, int]:
        """The last evaluation within the steps that were asked for, and the number of evaluations up to it."""
        steps = self._read(run)["step"][:, index]
        within = steps[steps <= length]
        return (int(within[-1]), len(within)) if len(within) else (0, 0)

    def _column(self, run: Run, name: str, steps: np.ndarray) -> np.ndarray:
        metrics = self._read(run)
        rows = np.searchsorted(metrics["step"][:, 0], steps)
        return metrics[name][rows]

    def _gather_visits(
        self, found: Sequence[tuple[int, Run, int]], length: int
    ) -> tuple[np.ndarray | None, dict[int, np.ndarray]]:
        """Visits in the steps that were asked for; the runs may be longer."""
        visits = [(self._read_visits(run), index) for _, run, index in found]
        if not visits or not all("first_visit" in arrays for arrays, _ in visits):
            return None, {}
        names = set.intersection(*(set(arrays) for arrays, _ in visits)) - {"first_visit"}
        first = np.stack([arrays["first_visit"][index] for arrays, index in visits])
        counts = {name: np.stack([arrays[name][index] for arrays, index in visits]) for name in names}
        snapshots = {int(name.removeprefix("visits_")): counts[name] for name in sorted(names)}
        return np.where(first <= length, first, -1), {step: c for step, c in snapshots.items() if step <= length}

    def _read(self, run: Run) -> dict[str, np.ndarray]:
        if run not in self._metrics:
            try:
                self._metrics[run] = run.metrics
            except UsageError as error:
                self.problems.append(str(error))
                self._metrics[run] = {}
        return self._metrics[run]

    def _read_visits(self, run: Run) -> dict[str, np.ndarray]:
        if run not in self._visits:
            try:
                # those of a run that is getting longer are from its end before
                self._visits[run] = run.visits if run.finished else {}
            except UsageError:  # the task has no grid
                self._visits[run] = {}
        return self._visits[run]
