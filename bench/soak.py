"""Hours of one run, watched from outside: memory, file descriptors, threads, disk and speed must stay flat.

python bench/soak.py [--hours 2] [--out soak] [--algorithm dac] [--task SparseHopper]

The ring is full after a few minutes, evaluations and checkpoints go on all the time. At the end the run is stopped by
SIGTERM and resumed for a moment, which must work. Speed is counted in steps per second of the process's own CPU time,
so that what else the machine does hardly shows.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SETTINGS = "--seeds 0:3 --hidden 64,64 --batch-size 64 --alpha adapt --capacity 20000 --eval-every 1000"
COLUMNS = ["seconds", "cpu_seconds", "steps", "rss_kib", "descriptors", "threads", "disk_kib"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between samples")
    parser.add_argument("--out", type=Path, default=Path("soak"))
    parser.add_argument("--task", default="SparseHopper")
    options = parser.parse_args()
    run = options.out / "run"
    options.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "dac", "train", "dac", options.task, *SETTINGS.split()]
    command += ["--steps", "1000000000", "--checkpoint-every", "5000", "--out", str(run)]
    with open(options.out / "log.txt", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        rows = watch(process, run, options)
        process.send_signal(signal.SIGTERM)
        code = process.wait(300)
        last = rows[-1]["steps"]
        resume = subprocess.Popen([sys.executable, "-m", "dac", "resume", str(run)], stdout=log, stderr=log)
        deadline = time.monotonic() + 300
        while steps_of(run) <= last + 1000 and resume.poll() is None and time.monotonic() < deadline:
            time.sleep(1)
        resumed = resume.poll() is None and steps_of(run) > last
        resume.kill()
        resume.wait()
    return judge(rows, code, resumed)


def watch(process: subprocess.Popen, run: Path, options: argparse.Namespace) -> list[dict[str, float]]:
    start, rows = time.monotonic(), []
    with open(options.out / "samples.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        while time.monotonic() - start < 3600 * options.hours:
            time.sleep(options.every)
            if process.poll() is not None:
                raise SystemExit(f"the run ended by itself: see {options.out / 'log.txt'}")
            rows.append(sample(process.pid, run, time.monotonic() - start))
            writer.writerow(rows[-1])
            file.flush()
    return rows


def sample(pid: int, run: Path, seconds: float) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    checkpoint = run / "checkpoint"
    disk = sum(p.stat().st_size for p in checkpoint.iterdir() if p.exists()) if checkpoint.is_dir() else 0
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
        "steps": steps_of(run),
        "rss_kib": int(status["VmRSS"].split()[0]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "disk_kib": disk // 1024,
    }


def steps_of(run: Path) -> int:
    """Of the last row of metrics.csv; its columns before the hyperparameters are fixed."""
    path = run / "metrics.csv"
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        header = file.readline().decode().split(",")
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").splitlines()
    whole = [line.split(",") for line in lines if line.count(",") == len(header) - 1]
    return int(whole[-1][header.index("step")]) if whole and whole[-1][0] != "member" else 0


def judge(rows: list[dict[str, float]], code: int, resumed: bool) -> int:
    """Compare the first quarter after the warm-up with the last."""
    table = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
    warm = np.searchsorted(table["steps"], 25_000)  # the ring is full
    if len(rows) - warm < 8:
        raise SystemExit("too short: the ring was hardly full")
    quarter = (len(rows) - warm) // 4
    early, late = slice(warm, warm + quarter), slice(len(rows) - quarter, len(rows))
    rate = [np.ptp(table["steps"][part]) / np.ptp(table["cpu_seconds"][part]) for part in (early, late)]
    figures = {
        "hours": round(table["seconds"][-1] / 3600, 2),
        "steps": int(table["steps"][-1]),
        "rss_growth_percent": 100 * (table["rss_kib"][late].mean() / table["rss_kib"][early].mean() - 1),
        "speed_change_percent": 100 * (rate[1] / rate[0] - 1),
        "steps_per_cpu_second": rate[1],
        "descriptor_growth": int(table["descriptors"][late].max() - table["descriptors"][early].max()),
        "thread_growth": int(table["threads"][late].max() - table["threads"][early].max()),
        "disk_growth_percent": 100 * (table["disk_kib"][late].mean() / table["disk_kib"][early].mean() - 1),
        "exit_code_after_sigterm": code,
        "resumed": resumed,
    }
    print(json.dumps(figures, indent=2))
    flat = figures["rss_growth_percent"] < 1 and figures["descriptor_growth"] <= 0
    return 0 if flat and resumed and code == 128 + signal.SIGTERM else 1


if __name__ == "__main__":
    sys.exit(main())
