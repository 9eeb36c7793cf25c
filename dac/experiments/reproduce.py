"""`dac reproduce`: run what an experiment of the paper still lacks, then draw its figures and write its report."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from dac.experiments.estimate import estimate
from dac.experiments.paper import EXPERIMENTS, Experiment
from dac.experiments.plan import Job, Plan, cells_of, find_runs, make_plan
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
    quiet: bool = False,
    command: str = "",
) -> list[Path]:
    """Train what is missing, unless it is only to `draw`, and write every artefact to `store/EXPERIMENT/`.

    Returns the reports.
    """
    from dac.experiments.report import write_artefacts

    for source in sources:
        if not source.is_dir():
            raise UsageError(f"no such folder: {source}")
    cells = {experiment.name: cells_of(experiment, scale, envs) for experiment in experiments}
    folders = [store, *sources] if store.is_dir() else list(sources)
    runs, problems = find_runs(folders)
    for problem in problems:
        print(f"not counted: {problem}", file=sys.stderr)
    plan = make_plan([cell for group in cells.values() for cell in group], store, runs)
    seconds, basis = estimate(plan.jobs, runs)
    if dry_run or not (quiet or draw):
        print_plan(plan, seconds, basis)
    if dry_run:
        return []
    if not draw:
        _work(plan, seconds, quiet, command)
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


def _work(plan: Plan, seconds: Sequence[float], quiet: bool, command: str) -> None:
    if not plan.jobs:
        return
    from dac.cli import enable_compilation_cache

    enable_compilation_cache()
    with PlanBar(plan.jobs, seconds, quiet) as bar:
        for number, job in enumerate(plan.jobs):
            progress = bar.part(number)
            try:
                run(job.config, job.directory, progress, resuming=job.resume)
            except KeyboardInterrupt as interruption:
                code = getattr(interruption, "exit_code", 128 + signal.SIGINT)
                again = f", continue with: {command}" if command else ""
                where = f"stopped in population {number + 1} of {len(plan.jobs)}"
                raise Interrupted(f"{where}{again}", code - 128) from None


class PlanBar:
    """One bar over the whole plan and one over the population that trains; lines now and then in a log file."""

    def __init__(self, jobs: Sequence[Job], seconds: Sequence[float], quiet: bool):
        self._jobs, self._seconds, self._quiet = jobs, list(seconds), quiet
        self._total = sum(job.agent_steps for job in jobs)
        self._console = Console(file=sys.stderr)
        self._live: Progress | None = None
        self._line, self._said = time.monotonic(), (-1, 0)

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f}%"),
                TextColumn("{task.fields[text]}"),
                console=self._console,
            )
            self._whole = self._live.add_task("the whole plan", total=self._total, text="")
            self._part = self._live.add_task("", total=1, text="")
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def part(self, number: int) -> _Part | Silence:
        return Silence() if self._quiet else _Part(self, number)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True) if self._live is None else self._console.print(Text(text))

    def show(self, number: int, steps: int, rate: float | None, text: str) -> None:
        """Population `number` is at `steps`."""
        job = self._jobs[number]
        members, total = len(job.config.members()), job.config.training.steps
        if rate:  # what was guessed gives way to what is measured
            self._seconds[number] = job.agent_steps / rate
        here = min(1.0, (steps - job.done) / max(1, total - job.done))
        left = (1 - here) * self._seconds[number] + sum(self._seconds[number + 1 :])
        done = sum(j.agent_steps for j in self._jobs[:number]) + members * (steps - job.done)
        speed = "compiling" if rate is None else f"{rate:,.0f} agent-steps/s"
        if self._live is not None:
            self._live.update(self._whole, completed=done, text=f"about {_duration(left)} left")
            label = f"{number + 1} of {len(self._jobs)}: {describe(job)}"
            self._live.update(self._part, description=label, completed=steps, total=total, text=f"{speed}  {text}")
        elif time.monotonic() - self._line > 15 or (steps == total and self._said != (number, steps)):
            self._line, self._said = time.monotonic(), (number, steps)
            share = f"{100 * done / max(1, self._total):.0f}% of the plan, about {_duration(left)} left"
            self.say(f"  {steps:,}/{total:,} steps  {speed}  {text}  ({share})")


class _Part:
    """The progress of one population, as a run wants it."""

    def __init__(self, bar: PlanBar, number: int):
        self._bar, self._number = bar, number

    def __enter__(self) -> Self:
        job = self._bar._jobs[self._number]
        self._bar.say(f"{self._number + 1} of {len(self._bar._jobs)}: {describe(job)}: {job.directory}")
        return self

    def __exit__(self, *exception: object) -> None: ...

    def announce(self, text: str) -> None:
        self._bar.say(f"  {text}")

    def update(self, steps: int, rate: float | None, **values: Any) -> None:
        shown = "  ".join(f"{name} {value:,.1f}" for name, value in values.items())
        self._bar.show(self._number, steps, rate, shown)


def _short(steps: float) -> str:
    return f"{steps / 1e6:,.3g}M" if 1e6 <= steps < 1e9 else f"{steps / 1e9:,.3g}G" if steps >= 1e9 else f"{steps:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"
