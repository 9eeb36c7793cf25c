"""The maze result of a run: figures, a table and a one-page summary."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

from dac.envs.maze import SIZE
from dac.experiments.figures import draw_histograms, draw_visited, save
from dac.experiments.page import page, picture, table
from dac.experiments.stats import mean_interval, ratio_interval
from dac.runs import Run
from dac.types import UsageError


def groups_of(run: Run) -> dict[str, np.ndarray]:
    """Member indices by name: `DAC 0.5`, and `SAC` for alpha = 1."""
    if run.config.task != "maze" or run.config.algorithm != "dac":
        raise UsageError(f"{run.directory} is {run.config.algorithm} on {run.config.task}, not dac on maze")
    alphas = np.array([member.hyper["alpha"] for member in run.members])
    names = {float(a): "SAC" if a == 1 else f"DAC {a:g}" for a in sorted(set(alphas))}
    return {name: np.flatnonzero(alphas == alpha) for alpha, name in names.items()}


def upper_right(first_visit: np.ndarray) -> np.ndarray:
    """Step at which each member first entered the room far from the start, -1 for never."""
    corner = first_visit.reshape(-1, SIZE, SIZE)[:, 53:, 53:].reshape(len(first_visit), -1)
    entered = np.where(corner >= 0, corner, np.iinfo(np.int32).max).min(axis=1)
    return np.where(entered == np.iinfo(np.int32).max, -1, entered)


def draw(run: Run, folder: Path) -> tuple[Path, Path]:
    """Curves and histograms as PNG files."""
    visits, groups = run.visits, groups_of(run)
    first = {name: visits["first_visit"][index] for name, index in groups.items()}
    steps = {int(key.removeprefix("visits_")): key for key in visits if key.startswith("visits_")}
    snapshots = {name: {s: visits[key][index] for s, key in steps.items()} for name, index in groups.items()}
    curves = save(draw_visited(first, run.config.training.steps), folder / "curves.png")
    return curves, save(draw_histograms(snapshots), folder / "visits.png")


def rows(run: Run) -> list[list[str]]:
    """Per group: seeds, mean and standard deviation of visited cells, 95% interval, how many reached the far room."""
    first = run.visits["first_visit"]
    lines = []
    for name, index in groups_of(run).items():
        visited = (first[index] >= 0).sum(axis=1)
        mean, low, high = mean_interval(visited)
        reached = int((upper_right(first[index]) >= 0).sum())
        spread = f"{mean:.0f} ± {visited.std():.0f}"
        lines.append([name, str(len(index)), spread, f"[{low:.0f}, {high:.0f}]", f"{reached} of {len(index)}"])
    return lines


def verdict(run: Run) -> str | None:
    """The ratio of DAC's to SAC's visited cells with its interval, or None if one of them is missing."""
    first, groups = run.visits["first_visit"], groups_of(run)
    dac = next((name for name in groups if name.startswith("DAC")), None)
    if dac is None or "SAC" not in groups:
        return None
    counts = [(first[groups[name]] >= 0).sum(axis=1) for name in (dac, "SAC")]
    ratio, low, high = ratio_interval(*counts)
    doubt = "; too few seeds to be sure" if low <= 1 <= high else ""
    return f"{dac} visited {ratio:.2f} times as many cells as SAC (95% interval {low:.2f} to {high:.2f}{doubt})"


def write_page(run: Run, path: Path, note: str, command: str) -> Path:
    """A self-contained page beside its figures."""
    curves, histograms = draw(run, path.parent)
    summary = run.summary
    versions = ", ".join(f"{name} {value}" for name, value in summary["versions"].items() if value)
    steps = run.config.training.steps
    body = [
        "<h1>Who explores the maze?</h1>",
        f'<p class="lead">{html.escape(verdict(run) or "")}.</p>',
        f"<p>Four rooms, no reward, {steps:,} steps. SAC maximises the entropy of its policy. DAC maximises the "
        "entropy of its policy mixed with what the replay buffer already holds, so it prefers what it has not done "
        "yet.</p>",
        table(["", "seeds", "visited cells", "95% interval", "reached the far room"], rows(run)),
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
