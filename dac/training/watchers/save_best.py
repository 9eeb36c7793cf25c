"""Keeps the policy of each member's best evaluation."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np

from dac.core.trees import name_leaves
from dac.core.types import UsageError
from dac.rundir.files import write_atomically
from dac.rundir.names import BEST_POLICY
from dac.rundir.weights import read_arrays, save_arrays
from dac.training.watchers import AbstractWatcher, Evaluation, Start


class SaveBest(AbstractWatcher):
    """Keeps, for each member, the policy of its best evaluation so far: `best.safetensors` in the run directory.

    The file has the form of `policy.safetensors`; the one beside it, `best.json`, has each member's step and return.
    Both are written with each checkpoint and at the end.
    """

    def __init__(self, path: Path | str | None = None):
        self.path = None if path is None else Path(path)

    def on_start(self, start: Start) -> None:
        self._file = start.directory / BEST_POLICY if self.path is None else self.path
        self._returns, self._steps = [-np.inf] * len(start.members), [0] * len(start.members)
        self._arrays: dict[str, np.ndarray] = {}
        self._changed = False

    def on_restore(self, step: int) -> None:
        """Go on with what was saved, but for members whose best is of a later step; without it, begin anew."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, UsageError):  # missing or damaged
            notes = json.loads(self._file.with_suffix(".json").read_bytes())
            arrays = read_arrays(self._file)
            found = list(zip(notes["returns"], notes["steps"], strict=True))
            if len(found) == len(self._returns):
                self._returns = [-np.inf if value is None or at > step else float(value) for value, at in found]
                self._steps, self._arrays = [int(at) for _, at in found], arrays

    def on_evaluation(self, evaluation: Evaluation) -> None:
        better = [i for i in evaluation.healthy() if evaluation.rows[i]["return"] > self._returns[i]]
        if not better or evaluation.moment is None:
            return
        for name, leaf in name_leaves(evaluation.moment.policies).items():
            values = np.asarray(leaf)
            kept = self._arrays.setdefault(name, values.copy())
            if not kept.flags.writeable:
                kept = self._arrays[name] = kept.copy()
            kept[better] = values[better]
        for index in better:
            self._returns[index], self._steps[index] = float(evaluation.rows[index]["return"]), evaluation.step
        self._changed = True

    def on_checkpoint(self, step: int) -> None:
        self._write()

    def on_end(self, error: BaseException | None) -> None:
        self._write()

    def _write(self) -> None:
        if not self._changed:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        notes = {"steps": self._steps, "returns": [r if np.isfinite(r) else None for r in self._returns]}
        save_arrays(self._file, self._arrays)
        write_atomically(self._file.with_suffix(".json"), (json.dumps(notes) + "\n").encode())
        self._changed = False
