"""`dac reproduce`: run what an experiment of the paper still lacks, then draw its figures and write its report."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from dac.experiments.estimate import estimate
from dac.experiments.jobs import run_side_by_side
from dac.experiments.paper import EXPERIMENTS, Experiment
from dac.experiments.plan import Job, Plan, cells_of, find_runs, make_plan
from dac.progress import Remainder
from dac.training.run import Silence, run
from dac.training.signals import Interrupted
from dac.types import UsageError


def list_experiments() -> None:
    """Every experiment with its tasks, members and steps."""
    table = Table(box=None, pad_edge=False)
    for column in ("experiment", "tasks (NAME/TASK for one)", "members", "agent-steps"):
        table.add_column(column, justify="right" if column in ("members", "agent-steps") else "left")
    for experiment in EXPERIMENTS.values():
        cells = cells_of(experiment)
        members = sum(len(cell.config.seeds) for cell in cells)
        steps = sum(len(cell.config.seeds) * cell.config.training.steps for cell in cells)
        tasks = "\n".join(task for task, _ in experiment.panels)
        table.add_row(experiment.name, tasks, str(members), _short(steps))
    Console().print(table)


def reproduce(
    experiments: Sequence[Experiment],
    store: Path,
    sources: Sequence[Path] = (),
    *,
    scale: float = 1.0,
    envs: int | None = None,
    dry_run: bool = False,
    draw: bool = False,
    jobs: int = 1,
    quiet: bool = False,
    command: str = "",
) -> list[Path]:
    """Train what is missing, unless it is only to `draw`, and write every artefact to `store/EXPERIMENT/`.

    With `jobs`, so many populations train at a time, in processes of their own. Returns the reports.
    """
    from dac.experiments.report import write_artefacts

    if jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    for source in sources:
        if not source.is_dir():
            raise UsageError(f"no such folder: {source}")
    cells = {experiment.name: cells_of(experiment, scale, envs) for experiment in experiments}
    folders = [store, *sources] if store.is_dir() else list(sources)
    runs, problems = find_runs(folders)
    for problem in problems:
        print(f"not counted: {problem}", file=sys.stderr)
    if not draw:
        plan = make_plan([cell for group in cells.values() for cell in group], store, runs)
        seconds, basis = estimate(plan.jobs, runs)
        if dry_run or not quiet:
            print_plan(plan, seconds, basis)
        if dry_run:
            return []
        _work(plan, seconds, jobs, quiet, command)
        runs, _ = find_runs(folders if store in folders else [store, *folders])
    reports = []
    for experiment in experiments:
        folder = store / experiment.name.replace("/", "-")
        reports.append(write_artefacts(experiment, cells[experiment.name], runs, folder, command))
    return reports


def print_plan(plan: Plan, seconds: Sequence[float], basis: str) -> None:
    """Each population, its size and time; then the whole."""
    console = Console()
    if plan.jobs:
        table = Table(box=None, pad_edge=False)
        for column in ("population", "members", "steps", "agent-steps", "about"):
            table.add_column(column, justify="left" if column == "population" else "right", min_width=5)
        for job, time_needed in zip(plan.jobs, seconds, strict=True):
            steps = _short(job.config.training.steps)
            row = [
                describe(job),
                str(len(job.config.members())),
                f"{_short(job.done)} to {steps}" if job.done else steps,
            ]
            table.add_row(*row, _short(job.agent_steps), _duration(time_needed))
        console.print(table)
    print(f"{plan.found} of {plan.wanted} members are finished", end="; " if plan.jobs else "\n")
    if plan.jobs:
        print(f"{_short(plan.agent_steps)} agent-steps to go, about {_duration(sum(seconds))} ({basis})")


def describe(job: Job) -> str:
    """The population in a few words: `DAC 0.5, SAC on maze`."""
    return f"{', '.join(job.methods)} on {job.config.task}"


def _work(plan: Plan, seconds: Sequence[float], jobs: int, quiet: bool, command: str) -> None:
    if not plan.jobs:
        return
    from dac.cli import enable_compilation_cache

    enable_compilation_cache()
    with PlanBar(plan.jobs, seconds, quiet, jobs) as bar:
        if jobs > 1:
            run_side_by_side(plan.jobs, jobs, bar.part, command)
            return
        for number, job in enumerate(plan.jobs):
            try:
                run(job.config, job.directory, bar.part(number), resuming=job.resume)
            except KeyboardInterrupt as interruption:
                code = getattr(interruption, "exit_code", 128 + signal.SIGINT)
                again = f", continue with: {command}" if command else ""
                where = f"stopped in population {number + 1} of {len(plan.jobs)}"
                raise Interrupted(f"{where}{again}", code - 128) from None


class PlanBar:
    """One bar over the whole plan and one for each population that trains; lines now and then in a log file."""

    def __init__(self, jobs: Sequence[Job], seconds: Sequence[float], quiet: bool, at_once: int = 1):
        self._jobs, self._seconds, self._quiet, self._at_once = jobs, list(seconds), quiet, at_once
        self._total = sum(job.agent_steps for job in jobs)
        self._steps = [job.done for job in jobs]
        self._console = Console(file=sys.stderr)
        self._live: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Progress(
                TextColumn("{task.description}"),
                BarColumn(20),
                TextColumn("{task.percentage:3.0f}%"),
                Remainder(),
                console=self._console,
            )
            self._whole = self._live.add_task("the whole plan", total=self._total, text="")
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def part(self, number: int) -> _Part | Silence:
        return Silence() if self._quiet else _Part(self, number)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True) if self._live is None else self._console.print(Text(text))

    def label(self, number: int) -> str:
        return f"{number + 1} of {len(self._jobs)}: {describe(self._jobs[number])}"

    def advance(self, number: int, steps: int, rate: float | None) -> str:
        """Population `number` is at `steps`; how far that is, and how long the rest will take."""
        job = self._jobs[number]
        if rate:  # what was guessed gives way to what is measured
            self._seconds[number] = job.agent_steps / rate
        self._steps[number] = steps
        done, left = 0, []
        for job, steps, seconds in zip(self._jobs, self._steps, self._seconds, strict=True):
            wanted = job.config.training.steps - job.done
            done += len(job.config.members()) * (steps - job.done)
            left.append(seconds * (1 - min(1.0, (steps - job.done) / max(1, wanted))))
        # side by side they are no sooner done than the longest one
        time_left = f"about {_duration(max(max(left), sum(left) / self._at_once))} left"
        if self._live is not None:
            self._live.update(self._whole, completed=done, text=time_left)
        return f"{100 * done / max(1, self._total):.0f}% of the plan, {time_left}"


class _Part:
    """The progress of one population, as a run wants it."""

    def __init__(self, bar: PlanBar, number: int):
        self._bar, self._number, self._job = bar, number, bar._jobs[number]
        self._line, self._said = time.monotonic(), -1
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        label, live = self._bar.label(self._number), self._bar._live
        self._bar.say(f"{label}: {self._job.directory}")
        if live is not None:
            label = f"population {self._number + 1}"  # what it is was said
            self._task = live.add_task(label, total=self._job.config.training.steps, text="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar._live is not None and self._task is not None:
            self._bar._live.remove_task(self._task)

    def announce(self, text: str) -> None:
        self._bar.say(f"{self._indent()}{text}")

    def update(self, steps: int, rate: float | None, **values: Any) -> None:
        shown = "  ".join(f"{name} {value:,.1f}" for name, value in values.items())
        speed = "compiling" if rate is None else f"{rate:,.0f} agent-steps/s"
        total = self._job.config.training.steps
        share = self._bar.advance(self._number, steps, rate)
        if self._bar._live is not None and self._task is not None:
            self._bar._live.update(self._task, completed=steps, text=f"{speed}  {shown}")
        elif time.monotonic() - self._line > 15 or (steps == total and self._said != steps):
            self._line, self._said = time.monotonic(), steps
            self._bar.say(f"{self._indent()}{steps:,}/{total:,} steps  {speed}  {shown}  ({share})")

    def _indent(self) -> str:
        """Which population says it, where several may."""
        return f"  {self._number + 1}: " if self._bar._at_once > 1 else "  "


def _short(steps: float) -> str:
    return f"{steps / 1e6:,.3g}M" if 1e6 <= steps < 1e9 else f"{steps / 1e9:,.3g}G" if steps >= 1e9 else f"{steps:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"
