"""From Python: train a population, continue it, and use what it learnt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from dac.config import resolve
from dac.core.keys import INIT, stream
from dac.core.population import each_member, stack_algorithms, stack_keys
from dac.core.types import UsageError
from dac.rundir.names import POLICY
from dac.rundir.reading import RunDirectory
from dac.rundir.weights import load_tree
from dac.rundir.writing import choose_directory
from dac.tasks import find_task, task_of
from dac.training.compilation import enable_compilation_cache
from dac.training.evaluate import Evaluation, Moment, evaluate_on_device
from dac.training.host import evaluate_on_host
from dac.training.run import continue_run, run
from dac.training.watchers import Watcher
from dac.training.watchers.log import Log


class Run(RunDirectory):
    """A run directory and what can be done with it: read its curves, act with its policies, go on with it."""

    def policies(self, file: str = POLICY) -> PyTree:
        """The policies of all members, stacked; also from another file of the run, such as `best.safetensors`."""
        algorithms = stack_algorithms(self.config.make_algorithm(), self.members)
        spec = find_task(self.config.task).spec()

        def fresh(algorithm, key):
            return algorithm.policy(algorithm.init(stream(key, INIT), spec))

        template = eqx.filter_eval_shape(each_member(fresh), algorithms, stack_keys(self.members))
        return load_tree(self.directory / file, template)

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Run fresh episodes with the saved policies, without exploration (Soft Q-Learning's policy samples anyway)."""
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, not {episodes}")
        task, moment = find_task(self.config.task), Moment(self.policies(), 2**31 - 1)  # no step of training
        if task.device is not None:
            return evaluate_on_device(task.device(), moment, stack_keys(self.members), episodes)
        envs = task.make_envs(len(self.members) * episodes, workers=self.config.training.workers)
        with contextlib.closing(envs):
            return evaluate_on_host(envs, [moment], self.members, episodes)[0]

    def resume(self, steps: int | None = None) -> Run:
        """Continue where the last checkpoint left it, to `steps` environment steps per member if given."""
        return resume(self.directory, steps)


def train(
    algorithm: str | None = None,
    task: str | Callable[[], Any] | None = None,
    *,
    seeds: Iterable[int] | int | str = 0,
    out: Path | str | None = None,
    config: Path | str | None = None,
    watchers: Sequence[Watcher] = (),
    **settings: Any,
) -> Run:
    """Train a population and return its run directory as a `Run`.

    Settings are those of `dac train --help`; a list for a float setting trains every combination at once:

        run = dac.train("dac", "maze", seeds=range(5), alpha=[0.5, 1.0], steps=20_000)

    The task is a name of `dac list tasks`, `gym:ID`, or a function that makes a Gymnasium environment. Watchers
    (`dac.callbacks`, or functions of an evaluation) see the run while it goes on and may stop it; warnings go to the
    logger `dac`.
    """
    name = task_of(task) if callable(task) else task
    file = None if config is None else Path(config)
    resolved = resolve(algorithm, name, seeds, settings, file)
    directory = choose_directory(None if out is None else Path(out), resolved.task, resolved.algorithm)
    enable_compilation_cache()
    return Run(run(resolved, directory, [Log(), *watchers]).directory)


def resume(
    directory: Path | str,
    steps: int | None = None,
    *,
    watchers: Sequence[Watcher] = (),
    log: Sequence[str] | None = None,
) -> Run:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given.

    It keeps its loggers, unless others are given by `log`.
    """
    enable_compilation_cache()
    return Run(continue_run(Path(directory), steps, [Log(), *watchers], log).directory)


load = Run
"""Read a run directory: `dac.load("runs/maze-dac-001")`; its `resume` continues it."""
