"""`make demo`: DAC and SAC side by side in the maze, in a few minutes on two cores."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from dac.cli import enable_compilation_cache
from dac.config import resolve
from dac.experiments.maze import groups_of, rows, verdict, write_page
from dac.progress import ProgressBar
from dac.training.run import run
from dac.types import UsageError

SETTINGS = {"alpha": [0.5, 1.0], "hidden": (128, 128), "batch_size": 64, "eval_every": 5000}
NOTE = (
    "A small version for two cores: networks of 2 x 128 instead of 2 x 256, batches of 64 instead of 256, 25,000 steps "
    "instead of 300,000, 5 seeds instead of 30. The result at full size is in results/maze/ of the repository. SAC is "
    "DAC at alpha = 1, in the same compiled program."
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--steps", type=int, default=25_000, help="environment steps per member")
    parser.add_argument("--seeds", default="0:5")
    options = parser.parse_args()
    try:
        config = resolve("dac", "maze", options.seeds, SETTINGS | {"steps": options.steps})
        directory = options.out / "run"
        if (directory / "config.toml").exists():
            shutil.rmtree(directory)  # an earlier demo's
        enable_compilation_cache()
        finished = run(config, directory, ProgressBar(config, label="DAC and SAC in the maze"))
        command = (
            f"dac train dac maze --seeds {options.seeds} --alpha 0.5,1.0 --hidden 128,128 --batch-size 64 "
            f"--steps {options.steps}"
        )
        path = write_page(finished, options.out / "index.html", NOTE, command)
    except UsageError as error:
        print(f"dac: {error}", file=sys.stderr)
        return 2
    groups = groups_of(finished)
    for line in rows(groups):
        print(f"{line[0]:8} visited {line[2]} cells, {line[4]} reached the far room")
    print(f"{verdict(groups)}\nopen {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
