"""A live progress bar in a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from dac.config import RunConfig


class Remainder(ProgressColumn):
    """The task's `text`, as much of it as the terminal has room for: the bar and the time left stay."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))  # what could be wrapped gives way first; the text itself is cut

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["text"]), no_wrap=True, overflow="ellipsis")


class ProgressBar:
    """Shows steps, agent-steps per second, time left and the latest evaluation of one run."""

    def __init__(self, config: RunConfig, label: str | None = None):
        members = len(config.members())
        self._steps = config.training.steps
        self._label = label or f"{config.algorithm} on {config.task}, {members} member{'s' * (members > 1)}"
        self._console = Console(file=sys.stderr)
        self._live: Progress | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Progress(
                BarColumn(20),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
                TimeRemainingColumn(),
                Remainder(),
                console=self._console,
            )
            self._task = self._live.add_task("", total=self._steps, text="compiling")
            self._live.start()
            self.announce(self._label)
        else:
            print(f"{self._label}: {self._steps:,} steps each", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def announce(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True) if self._live is None else self._console.print(Text(text))

    def update(self, steps: int, rate: float | None, **values: float) -> None:
        speed = "compiling" if rate is None else f"{rate:,.0f} agent-steps/s"
        text = "  ".join(f"{name} {value:,.1f}" for name, value in values.items())
        if self._live is not None:
            self._live.update(self._task, completed=steps, text=f"{speed}  {text}")
        elif time.monotonic() - self._last_line > 15 or steps == self._steps:
            self._last_line = time.monotonic()
            print(f"  {steps:,}/{self._steps:,} steps  {speed}  {text}", file=sys.stderr, flush=True)
