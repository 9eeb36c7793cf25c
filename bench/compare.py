"""Our SAC and DAC beside SBX's and Stable-Baselines3's SAC on HalfCheetah, in turns, so that all see the same machine.

    python bench/compare.py [--rounds 3] [--steps 500] [--peers .bench-venv/bin/python]

One update per step, two layers of 256, batch 256. Ours also with bf16 products. Each figure is the median of the
rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def ours(algorithm: str, precision: str, steps: int) -> float:
    import json

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.jsonl"
        command = [sys.executable, HERE / "robots.py", "--task", "HalfCheetah", "--algorithm", algorithm]
        command += ["--precision", precision]
        subprocess.run(
            [*command, "--steps", str(steps)],
            check=True,
            env=os.environ | {"DAC_BENCH_OUT": str(out)},
            stdout=subprocess.DEVNULL,
        )
        return json.loads(out.read_text())["steps_per_second_per_member"]


def peer(python: Path, library: str, steps: int) -> float:
    command = [python, HERE / "peers.py", library, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:  # MuJoCo writes a log where it stands
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--peers", type=Path, default=Path(".bench-venv/bin/python"))
    options = parser.parse_args()
    python = options.peers.absolute()
    runners = {
        "dac: SAC": lambda: ours("sac", "float32", options.steps),
        "dac: DAC": lambda: ours("dac", "float32", options.steps),
        "dac: SAC, bf16": lambda: ours("sac", "bf16", options.steps),
        "dac: DAC, bf16": lambda: ours("dac", "bf16", options.steps),
        "SBX: SAC": lambda: peer(python, "sbx", options.steps),
        "SB3: SAC": lambda: peer(python, "sb3", options.steps),
    }
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(options.rounds):
        for name, run in runners.items():
            rates[name].append(run())
    base = statistics.median(rates["SBX: SAC"])
    print("HalfCheetah, one update per step: steps/s of every round, median over SBX's median")
    for name, values in rates.items():
        rounds = "  ".join(f"{value:6.1f}" for value in values)
        print(f"{name:14}   {rounds}   {statistics.median(values) / base:.2f}")


if __name__ == "__main__":
    main()
