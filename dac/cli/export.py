"""`dac export`: one member's policy, or what it has seen, in a form that others read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dac import export
from dac.api import Run
from dac.config.text import whole_number

WRITERS: dict[str, Callable[..., object]] = {
    "onnx": export.to_onnx,
    "stablehlo": export.to_stablehlo,
    "numpy": export.to_numpy,
    "minari": export.to_minari,
}


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = (
        "Write one member's policy (onnx, stablehlo, numpy), with the observation's normaliser and the action's range "
        "inside, or the replay buffer of its last checkpoint as a dataset (minari)."
    )
    command.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    command.add_argument("--format", required=True, choices=list(WRITERS), help="what to write")
    command.add_argument("--member", type=whole_number, metavar="K", help="which one (default: the best)")
    command.add_argument(
        "--out",
        metavar="PATH",
        help="default: RUN/policy_memberK.SUFFIX; for minari the dataset's id, TASK/RUN_memberK-v0",
    )
    command.add_argument("--force", action="store_true", help="replace what is there")


def run(options: argparse.Namespace) -> int:
    written: Any = WRITERS[options.format](Run(options.run), options.out, options.member, force=options.force)
    if options.format == "minari":
        episodes, left_out = written.total_episodes, json.loads(written.storage.metadata["dac"])["steps_left_out"]
        more = (
            f"; {left_out:,} older ones left out, whose episodes begin before what the buffer holds" if left_out else ""
        )
        print(f"minari:{written.id}: {written.total_steps:,} steps, episodes: {episodes:,}{more}")
    else:
        print(written)
    return 0
