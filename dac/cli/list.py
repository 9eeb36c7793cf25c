"""`dac list`: every task or every algorithm, or those whose names contain some letters."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from dac.core.errors import UsageError, did_you_mean
from dac.tasks import FORMS, Task, listed

LISTS = {"tasks": "every task by name, with its sizes and defaults", "algorithms": "every algorithm by name"}
Value = TypeVar("Value")
_WIDE = 160
"""Columns of a table that is not shown in a terminal, so that `grep` finds whole rows."""


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("what", nargs="?", choices=list(LISTS), help="what to list; without it, what can be listed")
    command.add_argument(
        "filter", nargs="?", default="", help="list only names that contain this, such as dmc: or sparse"
    )


def run(options: argparse.Namespace) -> int:
    if options.what == "tasks":
        table = _tasks(_matching(listed(), options.filter), {} if options.filter else FORMS)
    elif options.what == "algorithms":
        from dac.algorithms import ALGORITHMS  # JAX comes with it, for which the other lists need not wait

        found = _matching(ALGORITHMS, options.filter)
        table = _plain({name: entry.summary for name, entry in found.items()})
    else:
        table = _plain({f"dac list {name}": text for name, text in LISTS.items()})
    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    console.print(table)
    return 0


def _matching(entries: Mapping[str, Value], part: str) -> dict[str, Value]:
    """Return the entries whose names contain some letters, whether large or small."""
    found = {name: entry for name, entry in entries.items() if part.lower() in name.lower()}
    if not found:
        raise UsageError(f"no name contains {part!r}{did_you_mean(part, entries)}")
    return found


def _tasks(tasks: Mapping[str, Task], forms: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    table.add_column("obs", justify="right", no_wrap=True)
    table.add_column("act", justify="right", no_wrap=True)
    table.add_column("extra", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("beta", no_wrap=True)
    table.add_column("what it is")
    for name, task in tasks.items():
        sizes = [str(task.sizes.obs_size), str(task.sizes.action_size)] if task.sizes else ["", ""]
        steps, beta = _short(task.training["steps"]), f"{task.hyper.get('beta', '')}"
        table.add_row(name, *sizes, task.extra, steps, beta, task.summary)
    for form, text in forms.items():
        table.add_row(form, "", "", "", "", "", text)
    return table


def _short(number: int) -> str:
    """Format a number of steps: 300k, 1M."""
    for size, letter in ((1_000_000, "M"), (1000, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return str(number)


def _plain(lines: Mapping[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in lines.items():
        table.add_row(name, text)
    return table
