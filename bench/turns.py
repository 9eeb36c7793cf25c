"""Is one checkout slower than another? The same bench of both, in turns: what else the machine does falls on both.

python bench/turns.py [--rounds 4] OTHER_CHECKOUT update.py --members 1 --algorithm sac

Every figure that the bench reports is printed as the ratio of this checkout to the other one, the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[1]


def figures(checkout: Path, command: list[str]) -> dict[str, float]:
    """Run a bench of a checkout, and return every number it reports."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.jsonl"
        environment = os.environ | {"PYTHONPATH": str(checkout), "DAC_BENCH_OUT": str(out)}
        arguments = [sys.executable, "-W", "ignore", *command]
        done = subprocess.run(arguments, cwd=checkout / "bench", env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{checkout}: {' '.join(command)} failed: {done.stderr.strip().splitlines()[-1:]}")
        lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {
        f"{line['benchmark']}: {name}": value
        for line in lines
        for name, value in line.items()
        if isinstance(value, float)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a bench of both, with its options")
    options = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        theirs, ours = figures(options.other.resolve(), options.command), figures(HERE, options.command)
        for name in ours.keys() & theirs.keys():
            if theirs[name]:
                ratios.setdefault(name, []).append(ours[name] / theirs[name])
    for name, values in sorted(ratios.items()):
        rounded = [round(value, 3) for value in values]
        print(json.dumps({"ratio": name, "median": round(float(np.median(values)), 3), "rounds": rounded}))


if __name__ == "__main__":
    main()
