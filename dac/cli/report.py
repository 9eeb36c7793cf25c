"""`dac report`: one page over runs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from dac.experiments.report import write_report


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="run directories, or folders of them")
    command.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html")


def run(options: argparse.Namespace) -> int:
    command = shlex.join(["dac", "report", *map(str, options.folders), "-o", str(options.out)])
    for line in write_report(options.folders, options.out, command):
        print(line)
    print(options.out)
    return 0
