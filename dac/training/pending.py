"""Evaluations whose episodes are still to be run: on an accelerator several wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dac.config import RunConfig
from dac.envs.host import EnvironmentFailure
from dac.training.evaluate import Evaluation as Episodes
from dac.training.evaluate import Moment
from dac.training.loop import AbstractLoop
from dac.training.watchers import Evaluation

Row = dict[str, Any]


class PendingEvaluations:
    """The policies of some steps of training, with what is known of their rows before their episodes are run."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Moment, list[Row]]] = []
        self.failing = False
        """Whether an environment failed in an evaluation, as it would again."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> int:
        """The environment step of the evaluation that waits longest."""
        return self._waiting[0][1][0]["step"]

    def add(self, config: RunConfig, loop: AbstractLoop, metrics: dict[str, np.ndarray]) -> None:
        """Keep the policies of this step, with all columns of its rows but those that the episodes decide."""
        self._waiting.append((loop.moment(), _known_columns(config, loop, metrics)))

    def run(self, loop: AbstractLoop, episodes: int) -> list[tuple[Evaluation, Episodes]]:
        """Run the episodes of all of them; where an environment fails they go on waiting."""
        if not self._waiting:
            return []
        moments, rows = zip(*self._waiting, strict=True)
        try:
            results = loop.evaluate_moments(moments, episodes)
        except EnvironmentFailure:
            self.failing = True
            raise
        self._waiting.clear()
        for known, result in zip(rows, results, strict=True):
            _fill_in(known, result)
        evaluations = (Evaluation(known[0]["step"], known, moment) for moment, known in zip(moments, rows, strict=True))
        return list(zip(evaluations, results, strict=True))

    def drop_present(self, loop: AbstractLoop) -> None:
        """Forget the evaluation of this very step if it is the only one: it is made when the run resumes."""
        if self._waiting and self._waiting[0][0].step == loop.step:
            self._waiting.clear()


def blank(loop: AbstractLoop) -> dict[str, np.ndarray]:
    """Metrics before the first update: there is nothing to measure, but the columns must be there."""
    return {name: np.full(len(loop.members), np.nan) for name in loop.metric_names()}


def _known_columns(config: RunConfig, loop: AbstractLoop, metrics: dict[str, np.ndarray]) -> list[Row]:
    """The rows of an evaluation at this step, until its episodes have been run without their returns."""
    visited = loop.visited()
    rows = []
    for index, member in enumerate(loop.members):
        row: Row = {"member": index, "seed": member.seed}
        row |= {name: member.hyper[name] for name in config.varied()}
        row |= {"step": loop.env_steps, "updates": loop.schedule.updates(loop.step)}
        row |= dict.fromkeys(("return", "return_std", "length", "success"))
        row["frozen"] = int(index in loop.health.failures)
        if visited is not None:
            row["visited"] = int(visited[index])
        rows.append(row | {name: value[index] for name, value in metrics.items()})
    return rows


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
