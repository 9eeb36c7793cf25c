"""Draws figures in the paper's layout: mean and one standard deviation over seeds, histograms of visits."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # files only, no window

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from dac.api.drawing import draw_line
from dac.core.lines import LABELS, Line
from dac.envs.maze import SIZE, free_cells
from dac.rundir.files import write_atomically

STYLE: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def visited_curve(first_visit: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Count the cells visited up to each step, (member, step), from the step of each first visit (-1: never)."""
    sorted_first = [np.sort(row[row >= 0]) for row in first_visit]
    return np.stack([np.searchsorted(row, steps, side="right") for row in sorted_first])


def draw_histograms(groups: Mapping[str, Mapping[int, np.ndarray]]) -> Figure:
    """Draw where each group has been at some steps, all seeds together; brighter is more often."""
    steps = sorted({step for snapshots in groups.values() for step in snapshots})
    side_by_side = 2 if len(groups) > 2 else 1
    shape = -(-len(groups) // side_by_side), side_by_side * len(steps)
    with plt.rc_context(STYLE | {"axes.spines.left": False, "axes.spines.bottom": False}):
        size = (2.0 * shape[1] + 0.5, 2.1 * shape[0] + 0.3)
        figure, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
        walls = ~free_cells()
        colours = plt.get_cmap("magma").with_extremes(bad="#9a9a9a")
        for axis in axes.flat:
            axis.set(xticks=[], yticks=[])
        for number, (label, snapshots) in enumerate(groups.items()):
            row, block = divmod(number, side_by_side)
            for column, step in enumerate(steps):
                axis = axes[row][block * len(steps) + column]
                counts = snapshots[step].astype(float).sum(axis=0).reshape(SIZE, SIZE)
                picture = np.ma.masked_where(walls, np.log1p(counts))
                axis.imshow(picture.T, origin="lower", cmap=colours, extent=(0, SIZE, 0, SIZE), interpolation="nearest")
                if row == 0:
                    axis.set_title(f"{step:,} steps", fontsize=10)
                if column == 0:
                    axis.set_ylabel(label)
    return figure


def draw_curves(panels: Mapping[str, Sequence[Line]], measure: str) -> Figure:
    """Draw mean and one standard deviation over seeds: a row of panels, one per task, above one legend."""
    with plt.rc_context(STYLE):
        width = 3.2 * len(panels) if len(panels) > 1 else 4.6
        figure, axes = plt.subplots(1, len(panels), figsize=(width, 3.4), squeeze=False, layout="constrained")
        handles: dict[str, Any] = {}
        for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
            unit, name = (1e6, "million") if max(line.steps[-1] for line in lines) > 1e6 else (1e3, "thousand")
            for line in lines:
                handles.setdefault(line.label, draw_line(axis, line.steps / unit, line.values, line.style))
            axis.set(title=title, xlabel=f"environment steps ({name})")
            axis.margins(x=0)
        axes[0][0].set_ylabel(LABELS.get(measure, measure))
        _add_legend(figure, handles)
    return figure


def _add_legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """Put the legend below the panels, in as many columns as there is room for."""
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def save(figure: Figure, path: Path) -> Path:
    """Save a figure as PNG and as PDF, without a date, so that the same data give the same file."""
    for file, metadata in ((path, {}), (path.with_suffix(".pdf"), {"CreationDate": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=file.suffix[1:], dpi=160, metadata=metadata)
        write_atomically(file, buffer.getvalue())
    plt.close(figure)
    return path
