"""`dac resume`: continue a run from its last checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from dac.cli.summary import print_summary
from dac.config.schema import LOGGERS
from dac.config.text import whole_number
from dac.training.compilation import enable_compilation_cache
from dac.training.run import continue_run
from dac.training.watchers.log import Log
from dac.training.watchers.progress import ProgressBar


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    command.add_argument(
        "--steps", type=whole_number, metavar="N", help="end at N environment steps per member, earlier or later"
    )
    command.add_argument(
        "--log", metavar="X", help=f"other loggers than before: {', '.join(LOGGERS)}, with commas; none: an empty text"
    )
    command.add_argument(
        "--devices", type=whole_number, metavar="N", help="spread the members over N devices; 0 for every GPU there is"
    )
    command.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    enable_compilation_cache()
    log = None if options.log is None else [name for name in options.log.split(",") if name]
    finished = continue_run(
        options.run, options.steps, [Log() if options.quiet else ProgressBar()], log, options.devices
    )
    if not options.quiet:
        print_summary(finished)
    return 0
