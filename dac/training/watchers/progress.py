"""A live progress bar in a terminal, a line now and then in a log file."""

from __future__ import annotations

import importlib.util
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from dac.core.streams import lasting
from dac.training.watchers import AbstractWatcher, Message, Position, Start


class Remainder(ProgressColumn):
    """The task's `text`, as much of it as the terminal has room for: the bar and the time left stay."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=False))  # what could be wrapped gives way first; the text itself is cut

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["text"]), no_wrap=True, overflow="ellipsis")


def shows_progress(wanted: bool | None) -> bool:
    """Tell whether there is to be a progress bar: as asked for, otherwise in terminals and notebooks."""
    return _is_live(Console(file=sys.stderr)) if wanted is None else wanted


def _is_live(console: Console) -> bool:
    """Tell whether what was printed can be drawn over; in a notebook rich needs ipywidgets for it."""
    notebook = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal or notebook


class ProgressBar(AbstractWatcher):
    """Shows steps, agent-steps per second, time left and the latest evaluation of one run."""

    def __init__(self, console: Console | None = None):
        self._console = Console(file=lasting(sys.stderr)) if console is None else console
        self._live: Progress | None = None
        self._steps = 0
        self._last_line = time.monotonic()

    def on_start(self, start: Start) -> None:
        config, members = start.config, start.members
        who = f"{len(members)} members" if len(members) > 1 else f"1 member ({members[0].label()})"
        label = f"{config.algorithm} on {config.task}, {who}"
        self._steps = config.training.steps
        if _is_live(self._console):
            self._live = Progress(
                BarColumn(20),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps"),
                TimeRemainingColumn(),
                Remainder(),
                console=self._console,
            )
            self._task = self._live.add_task("", total=self._steps, text="compiling")
            self._live.start()
            self.on_message(Message(label))
        else:
            self.on_message(Message(f"{label}: {self._steps:,} steps each"))

    def on_message(self, message: Message) -> None:
        style = "yellow" if message.warning and self._console.is_terminal else ""
        self._console.print(Text(message.text, style=style), soft_wrap=self._live is None)

    def on_progress(self, position: Position) -> None:
        speed = "compiling" if position.rate is None else f"{position.rate:,.0f} agent-steps/s"
        text = "  ".join(f"{name} {_format(name, value)}" for name, value in position.shown.items())
        if self._live is not None:
            self._live.update(self._task, completed=position.step, text=f"{speed}  {text}")
        elif time.monotonic() - self._last_line > 15 or position.step == self._steps:
            self._last_line = time.monotonic()
            self.on_message(Message(f"  {position.step:,}/{self._steps:,} steps  {speed}  {text}"))

    def on_end(self, error: BaseException | None) -> None:
        if self._live is not None:
            self._live.stop()


def _format(name: str, value: float) -> str:
    """Format a number of the bar: a rate from 0 to 1 in percent."""
    return f"{value:.0%}" if name == "success" else f"{value:,.1f}"
