"""The published runs on sparse tasks of the control suite and in mazes: every number is that of the raw data."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dac.api import Run
from dac.experiments.stats import mean_interval, probability_of_improvement

RESULTS = Path(__file__).parents[2] / "results"
LAST = 5
"""Evaluations at the end of a run that its score is the mean of."""
FOLDERS = sorted(path.parent for name in ("dmc", "mazes") for path in (RESULTS / name).glob("*/metrics.csv"))


def published(task, steps):
    """Return the steps nearest to these in the published curves of SAC, and the return of every seed there."""
    with open(RESULTS / "dmc/published-sac.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == task]
    nearest = min({int(row["step"]) for row in rows}, key=lambda step: abs(step - steps))
    return nearest, [float(row["return"]) for row in rows if int(row["step"]) == nearest]


def scores_of(folder):
    """Return the scores of five seeds of DAC and of five of SAC."""
    run = Run(folder)
    maze = folder.parent.name == "mazes"
    scores = run.metrics["success" if maze else "return"][-LAST:].mean(axis=0) * (100 if maze else 1)
    return scores[:5], scores[5:]


def row_of(folder):
    """The row of the published table that belongs to a run."""
    run, maze, scores = Run(folder), folder.parent.name == "mazes", scores_of(folder)
    assert [member.hyper["alpha"] for member in run.members] == 5 * [0.5] + 5 * [1.0]
    assert [member.seed for member in run.members] == [*range(5), *range(5)]
    steps = run.config.training.steps * run.config.training.frame_skip
    assert run.metrics["step"][-1, 0] == run.config.training.steps
    cells = [f"`{folder.name}`", f"{steps:,}"]
    for values in scores:
        mean, low, high = mean_interval(values)
        cells += [f"{mean:.0f} [{low:.0f}, {high:.0f}]", ", ".join(f"{value:.0f}" for value in sorted(values))]
    cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*probability_of_improvement(*scores)))
    if not maze:
        at, theirs = published(folder.name, steps)
        cells.append(f"{np.mean(theirs):.0f} ({', '.join(f'{value:.0f}' for value in sorted(theirs))}) at {at:,}")
    return "| " + " | ".join(cells) + " |"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_published_rows_are_those_of_the_raw_data(folder):
    assert row_of(folder) in (RESULTS / "README.md").read_text()


def test_what_is_said_of_the_rows_holds():
    for folder in FOLDERS:
        ours = np.concatenate(scores_of(folder))
        _, low, high = probability_of_improvement(*scores_of(folder))
        assert low <= 0.5 <= high, "every interval of P contains 0.5"
        if folder.parent.name == "dmc":
            run = Run(folder)
            _, theirs = published(folder.name, run.config.training.steps * run.config.training.frame_skip)
            overlap = min(theirs) <= ours.max() and ours.min() <= max(theirs)
            assert overlap == (folder.name != "ball_in_cup-catch")
    ball, swing = scores_of(RESULTS / "dmc/ball_in_cup-catch"), scores_of(RESULTS / "dmc/cartpole-swingup_sparse")
    assert np.mean(published("ball_in_cup-catch", 100_000)[1]) > 2 * max(score.mean() for score in ball)
    assert (np.concatenate(swing) > 500).sum() == 6


def test_every_row_has_its_run():
    """And the page of curves holds every run."""
    section = (RESULTS / "README.md").read_text().split("\n## dmc and mazes")[1].split("\n## ")[0]
    rows = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(folder.name for folder in FOLDERS)
    assert len(rows) >= 7
    page = (RESULTS / "dmc/report.html").read_text()
    assert all(folder.name in page for folder in FOLDERS)


def test_the_speeds_of_the_control_suite_are_those_of_the_raw_lines():
    """And five times dm_control's are reached wherever the simulations alone reach them, and nowhere else."""
    lines = (RESULTS / "bench/dmc-2-cores.jsonl").read_text().splitlines()
    measured = {line["task"]: (line["ratio"], line["simulation_alone"]) for line in map(json.loads, lines)}
    table = (RESULTS.parent / "docs/speed.md").read_text().split("| the simulations alone |")[1].split("\n\n")[0]
    quoted = {}
    for row in table.splitlines()[2:]:
        names, *values = (cell.split(", ") for cell in row.strip("| ").split(" | "))
        quoted |= dict(zip(names, zip(*values, strict=True), strict=True))
    assert quoted == {task: (f"{ours:.1f}", f"{alone:.1f}") for task, (ours, alone) in measured.items()}
    assert [alone >= 5 for _, alone in measured.values()] == [ours >= 5 for ours, _ in measured.values()]
    assert sum(ours >= 5 for ours, _ in measured.values()) == 8
    rates = [line["ours_per_core_second"] for line in map(json.loads, lines)]
    slowest, second = sorted((30 / (16 * rate) * 1e3 for rate in rates), reverse=True)[:2]
    text = (RESULTS.parent / "docs/speed.md").read_text()
    assert f"takes {slowest:.2f} ms on dog-run and at most {second:.2f} ms on every other task" in text


def print_rows():
    """Write the rows of the table, for whoever publishes other runs."""
    for folder in FOLDERS:
        print(row_of(folder))


if __name__ == "__main__":
    print_rows()
