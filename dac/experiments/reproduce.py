"""What `dac reproduce` does: find what an experiment of the paper lacks, and write figures, tables, reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dac.core.types import UsageError
from dac.experiments.paper import Experiment
from dac.experiments.plan import Cell, Fits, Job, Plan, cells_of, find_runs, make_plan
from dac.rundir.reading import RunDirectory
from dac.training.preparation import place_of


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

    def plan(self, fits: Fits | None = place_of) -> Plan:
        """The populations that are missing, as large as `fits` lets them be: by default as this machine's memory."""
        return make_plan([cell for cells in self.cells for cell in cells], self.store, self.runs, fits=fits)

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


def steps_made(job: Job) -> int:
    """The steps per member that need not be made again by now: all of them where the population is done."""
    if not job.resume:
        return 0
    made = RunDirectory(job.directory)
    return made.config.training.steps if made.finished else made.last_checkpoint()
