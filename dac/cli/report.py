"""`dac report`: one page over runs."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from dac.core.errors import UsageError


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = (
        "Write one self-contained page over runs: their states, and their curves by task. With --paper, and for a "
        "folder of `dac reproduce`, it also compares them with the paper."
    )
    command.epilog = "example: dac report runs --live"
    command.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="run directories, or folders of them")
    command.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html")
    how = command.add_mutually_exclusive_group()
    how.add_argument("--paper", action="store_true", help="show what the runs say of the paper's experiments")
    how.add_argument("--live", action="store_true", help="write the page anew while runs go on; it loads itself anew")
    command.add_argument(
        "--every", type=_seconds, metavar="SECONDS", help="with --live: between one page and the next (default: 10)"
    )


def run(options: argparse.Namespace) -> int:
    if options.every is not None and not options.live:
        raise UsageError("--every goes with --live")
    command = shlex.join(["dac", "report", *map(str, options.folders), *(["--paper"] if options.paper else [])])
    command += f" -o {shlex.quote(str(options.out))}"
    if options.paper or (not options.live and any(map(_is_of_the_paper, options.folders))):
        from dac.experiments.report import write_report  # JAX comes with it, for which the others need not wait

        for line in write_report(options.folders, options.out, command):
            print(line)
        print(options.out)
        return 0
    from dac.experiments.runs_page import describe, watch, write_runs

    if options.live:
        print(options.out, flush=True)
        runs = watch(options.folders, options.out, command, 10.0 if options.every is None else options.every)
    else:
        runs = write_runs(options.folders, options.out, command)
    print(describe(runs) if runs else f"no runs below {', '.join(map(str, options.folders))}")
    if not options.live:
        print(options.out)
    return 0


def _is_of_the_paper(folder: Path) -> bool:
    """Whether `dac reproduce` has written tables into a folder."""
    return any(folder.glob("*/table.csv"))


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0.5 <= float(text) <= 86_400:
            return float(text)
    raise argparse.ArgumentTypeError(f"takes seconds from 0.5 to 86400, not {text!r}")
