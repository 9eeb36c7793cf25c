"""What `dac reproduce` does: find what an experiment of the paper lacks, train it, write figures, tables, reports."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from dac.core.types import UsageError
from dac.experiments.budget import Queue
from dac.experiments.jobs import run_side_by_side
from dac.experiments.paper import Experiment
from dac.experiments.plan import Cell, Job, Plan, cells_of, find_runs, make_plan
from dac.rundir.reading import RunDirectory
from dac.training.run import run
from dac.training.signals import Interrupted
from dac.training.watchers import AbstractWatcher, Position


class Reproduction:
    """Some experiments, the runs there are of them, and the folder that takes what is still to be run and drawn."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        store: Path,
        sources: Sequence[Path] = (),
        *,
        scale: float = 1.0,
        envs: int | None = None,
        seeds: Sequence[int] | None = None,
    ):
        for source in sources:
            if not source.is_dir():
                raise UsageError(f"no such folder: {source}")
        self.experiments, self.store, self.sources = experiments, store, sources
        self.cells: list[list[Cell]] = [cells_of(experiment, scale, envs, seeds) for experiment in experiments]
        """The methods on the tasks of each experiment."""
        self.runs, self.problems = find_runs([store, *sources] if store.is_dir() else sources)

    def plan(self) -> Plan:
        """The populations that are missing."""
        return make_plan([cell for cells in self.cells for cell in cells], self.store, self.runs)

    def needs(self, plan: Plan) -> list[frozenset[int]]:
        """By panel, that is by experiment and task, the numbers of the populations that it lacks."""
        panels: dict[tuple[int, str], set[str]] = {}
        for number, cells in enumerate(self.cells):
            for cell in cells:
                panels.setdefault((number, cell.task), set()).update(cell.members())
        return [
            frozenset(number for number, job in enumerate(plan.jobs) if job.serves & members)
            for members in panels.values()
        ]

    def draw(self, command: str = "") -> list[Path]:
        """Write every artefact of what there is by now to `store/EXPERIMENT/`, and return the reports."""
        from dac.experiments.report import write_artefacts

        runs, _ = find_runs([self.store, *self.sources])
        reports = []
        for experiment, cells in zip(self.experiments, self.cells, strict=True):
            folder = self.store / experiment.name.replace("/", "-")
            reports.append(write_artefacts(experiment, cells, runs, folder, command))
        return reports


def train(
    jobs: Sequence[Job],
    show: Callable[[int], AbstractWatcher],
    at_once: int = 1,
    command: str = "",
    queue: Queue | None = None,
) -> None:
    """Train the populations in the order of the queue, `at_once` at a time, each shown by `show(number)`.

    Several at a time are in processes of their own. Where the queue has a budget, what does not fit is not begun, and
    what is running at its end saves and stops. `command` is named as the one that goes on after a signal.
    """
    if not jobs:
        return
    from dac.training.compilation import enable_compilation_cache

    enable_compilation_cache()
    queue = Queue(len(jobs)) if queue is None else queue
    if at_once > 1:
        run_side_by_side(jobs, at_once, show, command, queue)
        return
    while (number := queue.take()) is not None:
        job = jobs[number]
        try:
            run(job.config, job.directory, [show(number), _WhileTimeLasts(queue)], resuming=job.resume)
        except KeyboardInterrupt as interruption:
            code = getattr(interruption, "exit_code", 128 + signal.SIGINT)
            again = f", continue with: {command}" if command else ""
            where = f"stopped in population {number + 1} of {len(jobs)}"
            raise Interrupted(f"{where}{again}", code - 128) from None


def steps_made(job: Job) -> int:
    """The steps per member that need not be made again by now: all of them where the population is done."""
    if not job.resume:
        return 0
    made = RunDirectory(job.directory)
    return made.config.training.steps if made.finished else made.last_checkpoint()


class _WhileTimeLasts(AbstractWatcher):
    """Asks a run to stop when the budget is used up."""

    def __init__(self, queue: Queue):
        self._queue = queue

    def on_progress(self, position: Position) -> str | None:
        return "the budget is used up" if self._queue.used_up() else None
