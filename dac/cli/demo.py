"""`make demo`: DAC and SAC side by side in the maze, in a few minutes on two cores."""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from dac.cli.reproduce import reproduce
from dac.cli.text import with_options
from dac.core.types import UsageError
from dac.experiments.paper import Experiment, Method

SETTINGS = {"hidden": (128, 128), "batch_size": 64, "eval_every": 5000}
NOTE = (
    "A small version for two cores: networks of 2 x 128 instead of 2 x 256, batches of 64 instead of 256, 25,000 steps "
    "instead of 300,000, 5 seeds instead of 30. The result at full size is in results/ of the repository. "
    "SAC is DAC at alpha = 1, in the same compiled program."
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, default=25_000, help="environment steps per member")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    options = parser.parse_args()
    methods = tuple(
        Method(name, "dac", SETTINGS | {"alpha": alpha}) for name, alpha in (("DAC 0.5", 0.5), ("SAC", 1.0))
    )
    experiment = Experiment(
        "maze",
        "Who explores the maze?",
        "DAC visits far more of four rooms without reward than SAC does. SAC maximises the entropy of its policy, DAC "
        "that of its policy mixed with what the replay buffer already holds, so it prefers what it has not done yet.",
        (("maze", methods),),
        seeds=options.seeds,
        steps=options.steps,
        note=NOTE,
    )
    try:
        (page,) = reproduce([experiment], options.out, command="make demo")
    except UsageError as error:
        print(f"dac: {with_options(str(error))}", file=sys.stderr)
        return 2
    with open(page.parent / "table.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            reached = row["reached the far room"]
            print(f"{row['method']:8} visited {row['at the end']} cells, {reached} reached the far room")
    print(f"open {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
