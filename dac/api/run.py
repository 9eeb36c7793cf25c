"""Run directories from Python: train a population, continue it, and use what it learnt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from dac.api.agents import evaluate_policies, load_policies
from dac.api.environments import Environment, NamedTask
from dac.api.model import Model, check_member
from dac.api.population import Population
from dac.config import resolve
from dac.core.types import UsageError
from dac.rundir.pooling import pool as pool_members
from dac.rundir.reading import RunDirectory
from dac.rundir.writing import check_new
from dac.training.compilation import enable_compilation_cache
from dac.training.evaluate import Evaluation
from dac.training.run import continue_run, run
from dac.training.watchers import Watcher
from dac.training.watchers.log import Log
from dac.training.watchers.progress import ProgressBar, shows_progress


class Run(RunDirectory):
    """A run directory and what can be done with it: read its curves, act with its policies, go on with it."""

    def policies(self, file: str | None = None) -> PyTree:
        """The policies of all members, stacked; `model(k)` is one that can act.

        `file` names another file of the run that holds policies, such as `best.safetensors`.
        """
        return load_policies(self, file)

    def model(self, member: int = 0) -> Model:
        """One member as a model, which can predict and evaluate; alone in its run, it can learn on as well."""
        return Model.load(self.directory, member=check_member(member, len(self.members)))

    def population(self) -> Population:
        """All members as a population."""
        return Population.load(self.directory)

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Run fresh episodes with the saved policies, without exploration (Soft Q-Learning's policy samples anyway)."""
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, not {episodes}")
        task = self.config.find_task()
        return evaluate_policies(self.policies(), self.members, task, episodes, self.config.training)

    def resume(self, steps: int | None = None) -> Run:
        """Continue where the last checkpoint left it, to `steps` environment steps per member if given."""
        return resume(self.directory, steps)

    def __repr__(self) -> str:
        count, steps = len(self.members), self.config.training.steps
        done = "finished" if self.finished else f"not finished, checkpoint at {self.last_checkpoint():,}"
        members = f"{count} member{'s' * (count > 1)}"
        return (
            f"<Run of {self.config.algorithm} on {self.config.task}, {members}, {steps:,} steps each, {done}: "
            f"{self.directory}>"
        )


def train(
    algorithm: str | None = None,
    task: Environment | None = None,
    *,
    seeds: Iterable[int] | int | str = 0,
    out: Path | str | None = None,
    config: Path | str | None = None,
    watchers: Sequence[Watcher] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train a population and return its run directory as a `Run`.

    Settings are those of `dac train --help`; a list for a float setting trains every combination at once:

        run = dac.train("dac", "maze", seeds=range(5), alpha=[0.5, 1.0], steps=20_000)

    `seeds=2` is the one seed 2; `seeds=range(2)` trains two members, of the seeds 0 and 1.

    The task is a name of `dac list tasks`, an id of Gymnasium, an environment, or a function that makes one. Watchers
    (`dac.callbacks`, or functions of an evaluation) see the run while it goes on and may stop it. Warnings go to the
    logger `dac` where no progress bar is shown. `progress` shows one; by default there is one in terminals and
    notebooks.
    """
    name = None if task is None else NamedTask(task).name
    file = None if config is None else Path(config)
    resolved = resolve(algorithm, name, seeds, settings, file)
    directory = None if out is None else Path(out)
    check_new(directory)
    enable_compilation_cache()
    return Run(run(resolved, directory, [_show(progress), *watchers]).directory)


def resume(
    directory: Path | str,
    steps: int | None = None,
    *,
    watchers: Sequence[Watcher] = (),
    progress: bool | None = None,
    log: Sequence[str] | None = None,
    devices: int | None = None,
) -> Run:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given.

    It keeps its loggers, unless others are given by `log`, and its number of devices, unless another one is given.
    """
    enable_compilation_cache()
    return Run(continue_run(Path(directory), steps, [_show(progress), *watchers], log, devices).directory)


def pool(members: Sequence[tuple[Run | Path | str, int]], out: Path | str) -> Run:
    """Put members of several runs together as a new run, which goes on as each of them would have where it was.

        best = dac.pool([("runs/maze-dac-001", 3), ("runs/maze-dac-002", 0)], out="runs/best").resume()

    The runs differ in seeds and float settings only, and their latest checkpoints are of the same step; they are only
    read. Environments that cannot be saved begin new episodes, as in any run that resumes.
    """
    picks = [(run if isinstance(run, RunDirectory) else RunDirectory(run), index) for run, index in members]
    return Run(pool_members(picks, Path(out)).directory)


def _show(progress: bool | None) -> Watcher:
    return ProgressBar() if shows_progress(progress) else Log()


load = Run
"""Read a run directory: `dac.load("runs/maze-dac-001")`; its `resume` continues it, its `model` acts."""
