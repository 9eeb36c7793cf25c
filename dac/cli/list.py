"""`dac list`: every task or every algorithm."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from dac.tasks import FORMS, TASKS

LISTS = {"tasks": "every task by name", "algorithms": "every algorithm by name"}


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("what", nargs="?", choices=list(LISTS), help="what to list; without it, what can be listed")


def run(options: argparse.Namespace) -> int:
    if options.what == "tasks":
        lines: Mapping[str, str] = {name: task.summary for name, task in TASKS.items()} | FORMS
    elif options.what == "algorithms":
        from dac.algorithms import ALGORITHMS  # JAX comes with it, for which the other lists need not wait

        lines = {name: entry.summary for name, entry in ALGORITHMS.items()}
    else:
        lines = {f"dac list {name}": text for name, text in LISTS.items()}
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in lines.items():
        table.add_row(name, text)
    Console().print(table)
    return 0
