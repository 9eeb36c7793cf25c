"""The tables of the laboratory log come out of the raw data again."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from dac.experiments.stats import mean_interval

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "research"
RAW = ROOT / "results" / "research"


def page(name):
    return (PAGES / f"{name}.md").read_text()


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def interval(values):
    return "{:.0f} [{:.0f}, {:.0f}]".format(*mean_interval(np.array(values, float)))


def test_why_it_flattens():
    visited, paid = defaultdict(list), defaultdict(list)
    for row in read(RAW / "frontier" / "visited.csv"):
        visited[row["setting"], int(row["step"])].append(int(row["visited"]))
    for row in read(RAW / "frontier" / "paid.csv"):
        paid[row["setting"]].append([float(row[name]) for name in ("visits", "paid", "expected")])
    text = page("why-it-flattens")
    assert len(paid) == 11
    for setting, rows in paid.items():
        cells = [interval(visited[setting, step]) for step in (1000, 2000, 4000)]
        visits, pay, expected = np.mean(rows, axis=0)
        assert f"| {setting} | {' | '.join(cells)} | {visits:.0f} | {pay:.3f} | {expected:.4f} |" in text
        assert len(rows) == 20


def test_how_much_entropy_was_left_in_the_published_maze():
    rows = [row for row in read(ROOT / "results" / "maze" / "metrics.csv") if row["alpha"] == "0.5"]
    for step, share in ((5000, 96), (300_000, 94)):
        measured = [float(row["mixture_entropy"]) for row in rows if int(row["step"]) == step]
        assert len(measured) == 30
        assert round(100 * np.mean(measured) / (2 * np.log(2))) == share
        assert f"{share}%" in page("why-it-flattens")
