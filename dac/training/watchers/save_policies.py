"""Keeps the policies of chosen steps."""

from __future__ import annotations

from pathlib import Path

from dac.core.types import UsageError
from dac.rundir.names import POLICIES
from dac.rundir.weights import save_tree
from dac.training.watchers import AbstractWatcher, Evaluation, Start


class SavePolicies(AbstractWatcher):
    """Keeps the policies of the first evaluation in every `every` steps, in `policies/` of the run directory.

    Each file has the form of `policy.safetensors`. To go on with a run nothing of this is needed: checkpoints are a
    setting, `checkpoint_every`.
    """

    def __init__(self, every: int, folder: Path | str | None = None):
        self.every = check_every(every)
        self.folder = None if folder is None else Path(folder)

    def on_start(self, start: Start) -> None:
        self._folder = start.directory / POLICIES if self.folder is None else self.folder
        self._eval_every = start.config.training.eval_every

    def on_evaluation(self, evaluation: Evaluation) -> None:
        if evaluation.moment is not None and is_due(evaluation.step, self.every, self._eval_every):
            self._folder.mkdir(parents=True, exist_ok=True)
            save_tree(self._folder / f"step-{evaluation.step:012d}.safetensors", evaluation.moment.policies)


def check_every(every: int) -> int:
    """Return a number of environment steps, or say what is accepted."""
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise UsageError(f"every must be a whole number of at least 1 environment step, not {every!r}")
    return every


def is_due(step: int, every: int, eval_every: int) -> bool:
    """Tell whether an evaluation is the first in a period; it follows from the step alone, also in a resumed run."""
    return step // every > (step - eval_every) // every
