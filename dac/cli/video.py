"""`dac video`: film one episode of one member."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from dac.api import Run
from dac.config.text import whole_number
from dac.export.video import record_video


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    command.add_argument("--member", type=whole_number, metavar="K", help="which one (default: the best)")
    command.add_argument("--steps", type=whole_number, metavar="N", help="stop after N steps (default: when it ends)")
    command.add_argument("--out", type=Path, metavar="FILE", help="default: RUN/video.mp4")


def run(options: argparse.Namespace) -> int:
    path = options.out or options.run / "video.mp4"
    length, total = record_video(Run(options.run), path, options.member, options.steps)
    print(f"{path}: {length} steps, return {total:.1f}")
    return 0
