"""Figures of the maze, in the paper's layout: mean and one standard deviation over seeds, histograms of visits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only, no window

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from dac.envs.maze import SIZE, free_cells

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which people who do not see all colours can tell apart."""

STYLE: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def visited_curve(first_visit: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Cells visited up to each step, (member, step), from the step of each cell's first visit (-1: never)."""
    sorted_first = [np.sort(row[row >= 0]) for row in first_visit]
    return np.stack([np.searchsorted(row, steps, side="right") for row in sorted_first])


def draw_visited(groups: Mapping[str, np.ndarray], steps: int) -> Figure:
    """Number of visited cells over time, one line per group of members (`first_visit` of each)."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.4, 3.8) if len(groups) > 2 else (5.2, 3.4), layout="constrained")
        grid = np.linspace(0, steps, 201)
        for (label, first_visit), colour in zip(groups.items(), COLOURS, strict=False):
            curves = visited_curve(first_visit, grid)
            mean, deviation = curves.mean(axis=0), curves.std(axis=0)
            axes.plot(grid / 1000, mean, color=colour, label=f"{label} ({len(curves)} seeds)")
            alpha = 0.2 if len(groups) <= 2 else 0.08  # many bands lie over one another
            axes.fill_between(grid / 1000, mean - deviation, mean + deviation, color=colour, alpha=alpha, linewidth=0)
        axes.set(xlabel="environment steps (thousands)", ylabel="visited cells (of 9225)", ylim=(0, None))
        axes.margins(x=0)
        if len(groups) > 2:
            axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        else:
            axes.legend(loc="upper left")
    return figure


def draw_histograms(groups: Mapping[str, Mapping[int, np.ndarray]]) -> Figure:
    """Where each group has been: one row per group, one column per step; brighter is more often, all seeds together."""
    columns = sorted({step for snapshots in groups.values() for step in snapshots})
    with plt.rc_context(STYLE | {"axes.spines.left": False, "axes.spines.bottom": False}):
        shape = (len(groups), len(columns))
        size = (2.3 * shape[1] + 0.6, 2.35 * shape[0] + 0.3)
        figure, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
        walls = ~free_cells()
        for row, (label, snapshots) in enumerate(groups.items()):
            for column, step in enumerate(columns):
                axis = axes[row][column]
                counts = snapshots[step].astype(float).sum(axis=0).reshape(SIZE, SIZE)
                picture = np.ma.masked_where(walls, np.log1p(counts))
                colours = plt.get_cmap("magma").with_extremes(bad="#9a9a9a")
                axis.imshow(picture.T, origin="lower", cmap=colours, extent=(0, SIZE, 0, SIZE), interpolation="nearest")
                axis.set(xticks=[], yticks=[])
                if row == 0:
                    axis.set_title(f"{step:,} steps", fontsize=10)
                if column == 0:
                    axis.set_ylabel(label)
    return figure


def save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=160)
    plt.close(figure)
    return path
