"""The maze result of one or several runs: figures, a table and a one-page summary.

python -m dac.experiments.maze RUN... --out FOLDER
"""

from __future__ import annotations

import argparse
import html
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dac.envs.maze import SIZE
from dac.experiments.figures import draw_histograms, draw_visited, save
from dac.experiments.page import page, picture, table
from dac.experiments.stats import mean_interval, ratio_interval
from dac.population import Member
from dac.runs import Run
from dac.types import UsageError

NAMES = {"sac": "SAC", "rnd": "RND", "maxent-state": "MaxEnt(State)"}


def groups_of(*runs: Run) -> dict[str, dict[str, np.ndarray]]:
    """The visits (see `Run.visits`) of members by what they are: `DAC 0.5`, `SAC` (also DAC at alpha = 1), ..."""
    groups: dict[str, dict[str, np.ndarray]] = {}
    for run in runs:
        if run.config.task != "maze":
            raise UsageError(f"{run.directory} is {run.config.algorithm} on {run.config.task}, not on maze")
        names, visits = np.array([_name(run, member) for member in run.members]), run.visits
        for name in sorted(set(names)):
            if name in groups:
                raise UsageError(f"{name} is in two of the runs; the second is {run.directory}")
            groups[name] = {key: array[names == name] for key, array in visits.items()}
    return groups


def _name(run: Run, member: Member) -> str:
    algorithm = run.config.algorithm
    if algorithm == "dac":
        return "SAC" if member.hyper["alpha"] == 1 else f"DAC {member.hyper['alpha']:g}"
    if algorithm == "sac-div":
        return f"SAC-Div {run.config.hyper['divergence'].upper()}"
    return NAMES.get(algorithm, algorithm)


def upper_right(first_visit: np.ndarray) -> np.ndarray:
    """Step at which each member first entered the room far from the start, -1 for never."""
    corner = first_visit.reshape(-1, SIZE, SIZE)[:, 53:, 53:].reshape(len(first_visit), -1)
    entered = np.where(corner >= 0, corner, np.iinfo(np.int32).max).min(axis=1)
    return np.where(entered == np.iinfo(np.int32).max, -1, entered)


def draw(groups: Mapping[str, Mapping[str, np.ndarray]], steps: int, folder: Path) -> tuple[Path, Path]:
    """Curves and histograms as PNG files."""
    first = {name: visits["first_visit"] for name, visits in groups.items()}
    snapshots = {
        name: {int(key.removeprefix("visits_")): counts for key, counts in visits.items() if key != "first_visit"}
        for name, visits in groups.items()
    }
    curves = save(draw_visited(first, steps), folder / "curves.png")
    return curves, save(draw_histograms(snapshots), folder / "visits.png")


def rows(groups: Mapping[str, Mapping[str, np.ndarray]]) -> list[list[str]]:
    """Per group: seeds, mean and standard deviation of visited cells, 95% interval, how many reached the far room."""
    lines = []
    for name, visits in groups.items():
        visited = (visits["first_visit"] >= 0).sum(axis=1)
        mean, low, high = mean_interval(visited)
        reached = int((upper_right(visits["first_visit"]) >= 0).sum())
        spread = f"{mean:.0f} ± {visited.std():.0f}"
        lines.append([name, str(len(visited)), spread, f"[{low:.0f}, {high:.0f}]", f"{reached} of {len(visited)}"])
    return lines


def verdict(groups: Mapping[str, Mapping[str, np.ndarray]], other: str = "SAC") -> str | None:
    """The ratio of DAC's to another's visited cells with its interval, or None if one of them is missing."""
    dac = next((name for name in groups if name.startswith("DAC")), None)
    if dac is None or other not in groups:
        return None
    counts = [(groups[name]["first_visit"] >= 0).sum(axis=1) for name in (dac, other)]
    ratio, low, high = ratio_interval(*counts)
    doubt = "; too few seeds to be sure" if low <= 1 <= high else ""
    return f"{dac} visited {ratio:.2f} times as many cells as {other} (95% interval {low:.2f} to {high:.2f}{doubt})"


def write_page(run: Run, path: Path, note: str, command: str) -> Path:
    """A self-contained page beside its figures."""
    groups = groups_of(run)
    curves, histograms = draw(groups, run.config.training.steps, path.parent)
    summary = run.summary
    versions = ", ".join(f"{name} {value}" for name, value in summary["versions"].items() if value)
    steps = run.config.training.steps
    body = [
        "<h1>Who explores the maze?</h1>",
        f'<p class="lead">{html.escape(verdict(groups) or "")}.</p>',
        f"<p>Four rooms, no reward, {steps:,} steps. SAC maximises the entropy of its policy. DAC maximises the "
        "entropy of its policy mixed with what the replay buffer already holds, so it prefers what it has not done "
        "yet.</p>",
        table(["", "seeds", "visited cells", "95% interval", "reached the far room"], rows(groups)),
        "<h2>Cells visited</h2>",
        picture(curves, "Number of visited cells over environment steps, mean and one standard deviation"),
        "<h2>Where they have been</h2>",
        picture(histograms, "Histograms of visited positions"),
        '<p class="soft">All seeds together, brighter is more often (logarithmic). The start is in the lower left '
        "corner.</p>",
        "<h2>What was run</h2>",
        f"<p>{html.escape(note)}</p>",
        f"<pre>{html.escape(command)}</pre>",
        f'<p class="soft">{html.escape(versions)}. {summary["seconds"]:.0f} s at '
        f"{summary['agent_steps_per_second'] or 0:,.0f} agent-steps/s. Raw data: config.toml, metrics.csv, "
        "summary.json and visits.npz of the run directory.</p>",
    ]
    path.write_text(page("Diversity Actor-Critic in the maze", body), encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures and a table of runs in the maze.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    runs = [Run(path) for path in options.runs]
    groups = groups_of(*runs)
    groups = dict(sorted(groups.items(), key=lambda item: -(item[1]["first_visit"] >= 0).sum()))
    options.out.mkdir(parents=True, exist_ok=True)
    draw(groups, max(run.config.training.steps for run in runs), options.out)
    for line in rows(groups):
        print("| " + " | ".join(line) + " |")
    for name in groups:
        if not name.startswith("DAC"):
            print(verdict(groups, name))


if __name__ == "__main__":
    main()
