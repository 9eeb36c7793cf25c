"""`dac status`: one table of all runs below a folder."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dac.experiments.text import duration, short
from dac.rundir.glance import Glance, find_directories, glance

RUNS = Path("runs")
"""Where `dac train` puts runs unless it is told otherwise."""
STYLES = {"running": "green", "finished": "", "stopped": "yellow", "broken": "red"}
COLUMNS = ("run", "algorithm", "task", "members", "state", "steps", "return", "steps/s", "left")
WORDS = ("run", "algorithm", "task", "state")


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = "One table of all runs below a folder: their state, steps, return, speed and time left."
    command.epilog = "example: dac status runs --watch 5"
    command.add_argument("folders", type=Path, nargs="*", default=[RUNS], metavar="FOLDER", help="default: runs")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="for scripts: a list with an object for each run")
    how.add_argument("--watch", type=_seconds, metavar="SECONDS", help="show it anew every so often, until Ctrl-C")


def run(options: argparse.Namespace) -> int:
    if options.watch is None:
        runs = look(options.folders)
        if options.json:
            print(json.dumps([_finite(found.to_json()) for found in runs], indent=1, allow_nan=False))
        else:
            console = Console()
            if not console.is_terminal:  # a file or a pipe has no width: no line is broken
                console.width = 400
            console.print(describe(runs, options.folders))
        return 0
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(describe(look(options.folders), options.folders), auto_refresh=False) as live,
    ):
        while True:
            time.sleep(options.watch)
            live.update(describe(look(options.folders), options.folders), refresh=True)
    return 0


def look(folders: Sequence[Path]) -> list[Glance]:
    """Look at every run in and under some folders; before the first run there is no `runs`."""
    if list(folders) == [RUNS] and not RUNS.exists():
        return []
    return [glance(directory) for directory in find_directories(folders)]


def describe(runs: Sequence[Glance], folders: Sequence[Path]) -> Group:
    """The table, the frozen members, and what there is to know of runs that are stopped or broken."""
    named = ", ".join(map(str, folders))
    if not runs:
        return Group(Text(f"no runs below {named}"))
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        words = column in WORDS
        table.add_column(column, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for found in runs:
        table.add_row(*_cells(found, folders))
    counts = {state: sum(found.state == state for found in runs) for state in STYLES}
    summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return Group(table, Text(f"{len(runs)} run{'s' * (len(runs) > 1)} below {named}: {summary}"))


def _cells(found: Glance, folders: Sequence[Path]) -> list[Text | str]:
    state = Text(found.state, STYLES[found.state])
    if found.detail:
        state.append(f": {found.detail}" if found.state == "broken" else f" ({found.detail})", "dim")
    members = f"{found.members:,}" if found.members else "-"
    if found.frozen:
        members += f" ({len(found.frozen)} frozen)"
    return [
        Text(_name(found.directory, folders)),
        found.algorithm,
        Text(found.task),
        members,
        state,
        f"{short(found.step)} of {short(found.steps)}" if found.steps else "-",
        "-" if found.mean_return is None else f"{found.mean_return:,.1f}",
        "-" if found.rate is None else f"{found.rate:,.0f}",
        "-" if found.seconds_left is None else duration(found.seconds_left),
    ]


def _name(directory: Path, folders: Sequence[Path]) -> str:
    """A run's place below the folder, where there is one folder."""
    if len(folders) == 1 and directory != folders[0]:
        return str(directory.relative_to(folders[0]))
    return str(directory)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.1 <= float(text) <= 86_400:
            return float(text)
    raise argparse.ArgumentTypeError(f"takes seconds from 0.1 to 86400, not {text!r}")


def _finite(row: dict) -> dict:
    """The same row with None for what JSON has no word for."""
    return {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in row.items()}
