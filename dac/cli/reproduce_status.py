"""The table of `dac reproduce --status`."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dac.experiments.reproduce import Reproduction
from dac.experiments.status import Row, find_status
from dac.experiments.text import duration, short

STYLES = {"complete": "green", "partial": "yellow", "missing": "dim"}


def print_status(work: Reproduction) -> None:
    """Print a line for the methods on a task that are equally far, with members per method, and what is left."""
    for problem in work.problems:
        print(f"not counted: {problem}", file=sys.stderr)
    status = find_status(work)
    table = Table(box=None, pad_edge=False)
    for column in (
        "experiment",
        "task",
        "methods",
        "state",
        "complete",
        "partial",
        "missing",
        "envs",
        "to go",
        "about",
    ):
        words = column in ("experiment", "task", "methods", "state")
        table.add_column(column, justify="left" if words else "right", no_wrap=column != "methods")
    before = ("", "")
    for row in status.rows:
        here = row.experiment, row.task
        names = row.experiment if row.experiment != before[0] else "", row.task if here != before else ""
        before = here
        methods = f"all {row.among}" if len(row.methods) == row.among > 1 else ", ".join(row.methods)
        table.add_row(*names, methods, Text(row.state, STYLES[row.state]), *_numbers(row))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: no line is broken
        console.width = 400
    console.print(table)
    print(f"{short(status.agent_steps)} agent-steps to go in all, about {duration(status.seconds)} ({status.basis})")
    if any(row.envs for row in status.rows):
        print(
            "envs: environments per member, where that is not the number asked for. Reports count these members; "
            "`dac reproduce` does so too with --envs and that number, and trains others without it."
        )


def _numbers(row: Row) -> list[str]:
    """The columns after the state."""
    ends = sorted({min(row.partial), max(row.partial)}) if row.partial else []
    so_far = f"{len(row.partial)} at {' to '.join(map(short, ends))} of {short(row.steps)}" if ends else "-"
    return [
        f"{row.complete} of {row.seeds}",
        so_far,
        str(row.missing) if row.missing else "-",
        " or ".join(map(str, row.envs)) or "-",
        short(row.agent_steps) if row.agent_steps else "-",
        duration(row.seconds) if row.agent_steps else "-",
    ]
