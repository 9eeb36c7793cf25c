"""metrics.csv as a watcher."""

from __future__ import annotations

from dac.rundir.writing import Recorder
from dac.training.watchers import AbstractWatcher, Evaluation


class MetricsFile(AbstractWatcher):
    """Appends the rows of every evaluation to metrics.csv."""

    essential = True

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._recorder.append(evaluation.rows)
