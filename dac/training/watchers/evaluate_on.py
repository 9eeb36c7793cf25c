"""Evaluates the policies of a run on another environment."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dac.core.population import stack_keys
from dac.core.types import UsageError
from dac.envs.pace import Pace
from dac.rundir.lock import check_held
from dac.rundir.names import evaluations_file
from dac.tasks import find_task, task_of
from dac.training.evaluate import Evaluation as Episodes
from dac.training.evaluate import evaluate_on_device
from dac.training.host import evaluate_on_host
from dac.training.watchers import AbstractWatcher, Evaluation, Start
from dac.training.watchers.save_policies import check_every, is_due


class EvaluateOn(AbstractWatcher):
    """Runs episodes of another task, without exploration, with the policies of the run's own evaluations.

    The task is a name of `dac list tasks`, `gym:ID`, or a function that makes a Gymnasium environment. Its observations
    and actions must have the sizes of the run's. The results are in `rows`, and in `evaluations-TASK.csv` of the run
    directory: one row per member and evaluation, or one evaluation in every `every` environment steps.
    """

    def __init__(self, task: str | Callable[[], Any], every: int = 1, episodes: int = 5):
        self.task = task_of(task) if callable(task) else task
        self.every, self.episodes = check_every(every), episodes
        self._task = find_task(self.task)
        if not isinstance(episodes, int) or episodes < 1:
            raise UsageError(f"episodes must be at least 1, not {episodes!r}")
        self.rows: list[dict[str, Any]] = []
        self._envs: Any = None

    def on_start(self, start: Start) -> None:
        here, own = self._task.spec(), find_task(start.config.task).spec()
        sizes = [(spec.obs_size, spec.action_size) for spec in (here, own)]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"{self.task} has observations and actions of sizes {sizes[0]}, and {start.config.task} of {sizes[1]}"
            )
        # an action is held as long as in training; how long an episode is, is the other task's own affair
        self._paced = self._task.at(Pace(skip=start.config.training.frame_skip))
        self._start, self._keys = start, stack_keys(start.members)
        self._path = start.directory / evaluations_file(self.task)
        self.rows = []

    def on_restore(self, step: int) -> None:
        self.rows = [row for row in _read(self._path) if row["step"] <= step]
        self._path.unlink(missing_ok=True)
        self._write(self.rows)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        if not is_due(evaluation.step, self.every, self._start.config.training.eval_every):
            return
        results, members, rows = self._run(evaluation), self._start.members, list[dict[str, Any]]()
        for index, (member, returns, lengths) in enumerate(zip(members, results.returns, results.lengths, strict=True)):
            row: dict[str, Any] = {"member": index, "seed": member.seed, "step": evaluation.step}
            row |= {"return": float(returns.mean()), "return_std": float(returns.std())}
            row["length"] = float(lengths.mean())
            if results.successes is not None:
                row["success"] = float(results.successes[index].mean())
            rows.append(row)
        self.rows += rows
        self._write(rows)

    def on_end(self, error: BaseException | None) -> None:
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def _run(self, evaluation: Evaluation) -> Episodes:
        assert evaluation.moment is not None  # every evaluation of a run has one
        if self._paced.device is not None:
            return evaluate_on_device(self._paced.device(), evaluation.moment, self._keys, self.episodes)
        members = list(self._start.members)
        if self._envs is None:
            self._envs = self._paced.make_envs(len(members) * self.episodes)
        limit = self._start.config.training.eval_limit
        return evaluate_on_host(self._envs, [evaluation.moment], members, self.episodes, limit)[0]

    def _write(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        with open(self._path, "a", newline="", encoding="utf-8") as file:
            check_held(self._path)  # as with metrics.csv: who takes over makes another file of it
            # the columns of the first row; of an environment that speaks of success only now and then, some are empty
            columns = list(self.rows[0])
            writer = csv.DictWriter(file, columns, restval=math.nan, extrasaction="ignore", lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerows(rows)


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        whole = {"member", "seed", "step"}
        return [{n: int(v) if n in whole else float(v) for n, v in row.items()} for row in csv.DictReader(file)]
