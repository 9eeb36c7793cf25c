"""Shows how far a plan of several populations is."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from dac.experiments.budget import Budget
from dac.experiments.plan import Job
from dac.experiments.text import duration
from dac.training.watchers import AbstractWatcher, Message, Position, Start
from dac.training.watchers.log import Log
from dac.training.watchers.progress import Remainder

METHODS = 4
"""Methods of a population that are named; a study may have sixty in one."""


def describe(job: Job) -> str:
    """The population in a few words: `DAC 0.5, SAC on maze`."""
    names, more = job.methods[:METHODS], len(job.methods) - METHODS
    return f"{', '.join(names)}{f' and {more} more' if more > 0 else ''} on {job.config.task}"


class PlanBar:
    """One bar over the whole plan and one for each population that trains; lines now and then in a log file."""

    def __init__(
        self,
        jobs: Sequence[Job],
        seconds: Sequence[float],
        quiet: bool,
        at_once: int = 1,
        budget: Budget | None = None,
    ):
        self._jobs, self._seconds, self._quiet, self._at_once = jobs, list(seconds), quiet, at_once
        self._budget = budget
        self._total = sum(job.agent_steps for job in jobs)
        self._members = [len(job.config.members()) for job in jobs]
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

    def part(self, number: int) -> AbstractWatcher:
        """What shows the progress of one population."""
        return Log() if self._quiet else PopulationBar(self, number)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True) if self._live is None else self._console.print(Text(text))

    def label(self, number: int) -> str:
        return f"{number + 1} of {len(self._jobs)}: {describe(self._jobs[number])}"

    def advance(self, number: int, steps: int, rate: float | None) -> str:
        """Take note that population `number` is at `steps`; returns the share of the plan and the time left."""
        job = self._jobs[number]
        if rate:  # what was guessed gives way to what is measured
            self._seconds[number] = job.agent_steps / rate
        self._steps[number] = steps
        done, left = 0, []
        for job, members, steps, seconds in zip(self._jobs, self._members, self._steps, self._seconds, strict=True):
            wanted = job.config.training.steps - job.done
            done += members * (steps - job.done)
            left.append(seconds * (1 - min(1.0, (steps - job.done) / max(1, wanted))))
        # side by side they are no sooner done than the longest one
        time_left = f"about {duration(max(max(left), sum(left) / self._at_once))} left"
        if self._budget is not None:
            time_left += f", {duration(self._budget.left())} of the budget"
        if self._live is not None:
            self._live.update(self._whole, completed=done, text=time_left)
        return f"{100 * done / max(1, self._total):.0f}% of the plan, {time_left}"


class PopulationBar(AbstractWatcher):
    """Shows the progress of one population of a plan."""

    def __init__(self, bar: PlanBar, number: int):
        self._bar, self._number, self._job = bar, number, bar._jobs[number]
        self._line, self._said = time.monotonic(), -1
        self._task: TaskID | None = None

    def on_start(self, start: Start) -> None:
        label, live = self._bar.label(self._number), self._bar._live
        self._bar.say(f"{label}: {self._job.directory}")
        if live is not None:
            label = f"population {self._number + 1}"  # the line above says what it is
            self._task = live.add_task(label, total=self._job.config.training.steps, text="")

    def on_end(self, error: BaseException | None) -> None:
        if self._bar._live is not None and self._task is not None:
            self._bar._live.remove_task(self._task)

    def on_message(self, message: Message) -> None:
        self._bar.say(f"{self._indent()}{message.text}")

    def on_progress(self, position: Position) -> None:
        steps, rate = position.step, position.rate
        shown = "  ".join(f"{name} {value:,.1f}" for name, value in position.shown.items())
        speed = "compiling" if rate is None else f"{rate:,.0f} agent-steps/s"
        total = self._job.config.training.steps
        share = self._bar.advance(self._number, steps, rate)
        if self._bar._live is not None and self._task is not None:
            self._bar._live.update(self._task, completed=steps, text=f"{speed}  {shown}")
        elif time.monotonic() - self._line > 15 or (steps == total and self._said != steps):
            self._line, self._said = time.monotonic(), steps
            self._bar.say(f"{self._indent()}{steps:,}/{total:,} steps  {speed}  {shown}  ({share})")

    def _indent(self) -> str:
        """Names the population where several may speak."""
        return f"  {self._number + 1}: " if self._bar._at_once > 1 else "  "
