"""Stops a run that does not get better."""

from __future__ import annotations

import numpy as np

from dac.core.types import UsageError
from dac.rundir.names import METRICS
from dac.rundir.table import read_table
from dac.training.watchers import AbstractWatcher, Evaluation, Start
from dac.training.watchers.stop_on_return import Whose, check_whose


class StopWithoutImprovement(AbstractWatcher):
    """Stops after `patience` evaluations in a row without a return that is more than `min_delta` above the best before.

    That must hold for all members, for any, or for their mean. Frozen members are not asked. A resumed run remembers
    its evaluations.
    """

    def __init__(self, patience: int, min_delta: float = 0.0, members: Whose = "all"):
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
            raise UsageError(f"patience must be a whole number of at least 1 evaluation, not {patience!r}")
        if not min_delta >= 0:
            raise UsageError(f"min_delta must be at least 0, not {min_delta!r}")
        self.patience, self.min_delta, self.members = patience, min_delta, check_whose(members)

    def on_start(self, start: Start) -> None:
        count = 1 if self.members == "mean" else len(start.members)
        self._start = start
        self._best, self._since = np.full(count, -np.inf), np.zeros(count, int)

    def on_restore(self, step: int) -> None:
        for rows in read_table(self._start.directory / METRICS, len(self._start.members)).evaluations():
            if rows[0]["step"] <= step:
                self._note(Evaluation(int(rows[0]["step"]), [{"frozen": 0} | row for row in rows]))

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        self._note(evaluation)
        asked = [0] if self.members == "mean" else evaluation.healthy()
        tired = self._since[asked] >= self.patience
        if not (tired.any() if self.members == "any" else tired.all()):
            return None
        who = {"all": "no member is", "any": "a member is no longer", "mean": "the mean over members is not"}[
            self.members
        ]
        return f"{who} getting better: {self.patience} evaluations without improvement"

    def _note(self, evaluation: Evaluation) -> None:
        if self.members == "mean":
            returns = np.array([evaluation.mean("return")])
        else:
            returns = np.array([row["return"] for row in evaluation.rows], float)
        better = returns > self._best + self.min_delta
        self._since = np.where(better, 0, self._since + 1)
        self._best = np.where(better, returns, self._best)
