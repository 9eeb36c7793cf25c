"""How long a look at many runs takes: `dac status` with the start of Python, and a pass of `dac report --live`.

python bench/status.py [--runs 200] [--evaluations 1000] [--members 2] [--written 10] [--rounds 5]

The runs are made up: every file that a run has, with random numbers. Some of them are written meanwhile by another
process, a few evaluations at a time, with rows that are torn in the middle.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import report

from dac.experiments.runs_page import Reader, write_runs

HYPER = 'hidden = [256, 256]\nactivation = "relu"\nlearning_rate = 0.0003\nclip = 1.0\nbatch_size = 256\n'
METRICS = [f"metric_{number}" for number in range(12)]


def make_run(directory: Path, number: int, evaluations: int, members: int, *, finished: bool) -> None:
    """Write a run directory of made-up numbers; one that is not finished is held by this process."""
    (directory / "checkpoint").mkdir(parents=True)
    algorithm, alpha = ("dac", 0.25 * (1 + number % 4)) if number % 2 else ("sac", 1.0)
    seeds = list(range(number * members, (number + 1) * members))
    training = f"steps = {1000 * evaluations}\nenvs = 1\neval_every = 1000\ncheckpoint_every = 20000\n"
    head = f'algorithm = "{algorithm}"\ntask = "gym:Task{number % 5}-v0"\nseeds = {seeds}\n'
    text = f"{head}\n[training]\n{training}\n[hyper]\nalpha = {alpha}\n{HYPER}"
    (directory / "config.toml").write_text(text)
    done = evaluations if finished else evaluations // 2
    header = ",".join(["member", "seed", "step", "updates", "return", "return_std", "length", "frozen", *METRICS])
    lines = [header, *(line for e in range(done) for line in rows(number, e, seeds))]
    (directory / "metrics.csv").write_text("\n".join(lines) + "\n")
    (directory / f"checkpoint/step-{1000 * done:012d}.json").write_text(json.dumps({"notes": ["x" * 80] * 20}))
    if finished:
        member = {"seed": 0, "frozen": None, "final_return": 1.0, "max_return": 2.0}
        summary = {"members": [member] * members, "versions": {"dac": "0", "jax": "0"}, "seconds": 60.0}
        summary |= {"agent_steps_per_second": 1000.0, "warnings": []}
        (directory / "summary.json").write_text(json.dumps(summary, indent=2))
    else:
        (directory / "lock").write_text(json.dumps({"pid": 1, "host": f"not-{socket.gethostname()}"}))
        progress = {"step": 1000 * done, "agent_steps_per_second": 1000.0, "seconds_left": 60.0, "time": time.time()}
        (directory / "progress.json").write_text(json.dumps(progress | {"end": None, "warnings": []}))


def rows(number: int, evaluation: int, seeds: list[int]) -> list[str]:
    chance = random.Random(1000 * number + evaluation)
    step = 1000 * (evaluation + 1)
    values = (f"{100 * np.log1p(evaluation) * (1 + number % 4) + chance.gauss(0, 20):.9g}" for _ in seeds)
    more = ",".join(f"{chance.random():.9g}" for _ in METRICS)
    return [
        f"{k},{seed},{step},{step},{value},0.0,1000.0,0,{more}"
        for k, (seed, value) in enumerate(zip(seeds, values, strict=True))
    ]


def write_on(folders: list[Path], numbers: list[int], evaluations: int, members: int) -> None:
    """Write to some runs until this process is ended, in pieces that end in the middle of a row."""
    at = evaluations // 2
    while True:
        for directory, number in zip(folders, numbers, strict=True):
            seeds = list(range(number * members, (number + 1) * members))
            text = "".join(line + "\n" for line in rows(number, at, seeds))
            with open(directory / "metrics.csv", "a") as file:
                file.write(text[:-7])
                file.flush()
                time.sleep(0.001)
                file.write(text[-7:])
        at += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--written", type=int, default=10, help="runs that are written meanwhile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="make the runs here and leave them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "runs"
        names = [folder / f"run-{number:03d}" for number in range(options.runs)]
        for number, name in enumerate(names):
            make_run(name, number, options.evaluations, options.members, finished=number >= options.written)
        command = [sys.executable, "-m", "dac", "status", str(folder)]
        plain = [seconds_of(command) for _ in range(options.rounds)]
        live = names[: options.written]
        numbers = list(range(options.written))
        process = multiprocessing.get_context("spawn").Process(
            target=write_on, args=(live, numbers, options.evaluations, options.members), daemon=True
        )
        process.start()
        written = [seconds_of(command) for _ in range(options.rounds)]
        reader, passes, cpus = Reader(), list[float](), list[float]()
        for _ in range(options.rounds + 1):
            start, cpu = time.perf_counter(), time.process_time()
            runs = write_runs([folder], Path(temporary) / "report.html", "", reader, 10.0)
            passes.append(time.perf_counter() - start)
            cpus.append(time.process_time() - cpu)
        process.terminate()
        process.join()
        assert len(runs) == options.runs
        assert not [run.detail for run in runs if run.state == "broken"]
        report(
            f"{options.runs} runs of {options.evaluations} evaluations x{options.members}",
            status_seconds=float(np.median(plain)),
            status_while_written=float(np.median(written)),
            first_pass_of_the_page=passes[0],
            later_pass_while_written=float(np.median(passes[1:])),
            cpu_seconds_of_the_first=cpus[0],
            cpu_seconds_of_a_later=float(np.median(cpus[1:])),
            page_mib=os.path.getsize(Path(temporary) / "report.html") / 2**20,
        )


def seconds_of(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
