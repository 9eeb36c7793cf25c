"""The table that a report opens with: every experiment, its state, its verdict and a small picture of its figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Literal

import numpy as np

from dac.core.lines import COLOURS, Line, moments

State = Literal["complete", "partial", "missing"]

WIDTH, HEIGHT = 72, 44
"""Size of a panel of the small picture."""
POINTS = 40
"""Points of a curve in the small picture."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One row of the table."""

    anchor: str
    """The section that it leads to."""
    title: str
    state: State
    words: str
    """The state in words."""
    lines: Sequence[tuple[str, str]]
    """What came out: a kind of verdict (good, bad, unsure, or none) and a sentence for each."""
    panels: Sequence[Sequence[Line]]
    """The curves of the small picture."""


def overview(entries: Sequence[Entry]) -> str:
    """The table as HTML."""
    head = "".join(f"<th>{name}</th>" for name in ("experiment", "state", "verdict", "picture"))
    rows = "".join(map(_row, entries))
    return (
        f'<div class="scroll"><table class="overview"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _row(entry: Entry) -> str:
    link = f'<a href="#{escape(entry.anchor)}">'
    lines = "".join(f'<li class="{kind}">{escape(text)}</li>' for kind, text in entry.lines)
    picture = f'<a class="thumbnails" href="#{escape(entry.anchor)}" aria-label="figure of {escape(entry.title)}">'
    picture = picture + "".join(map(thumbnail, entry.panels)) + "</a>" if entry.panels else ""
    return (
        f"<tr><td>{link}{escape(entry.title)}</a></td>"
        f'<td><span class="badge {entry.state}">{escape(entry.words)}</span></td>'
        f"<td>{f'<ul>{lines}</ul>' if lines else ''}</td><td>{picture}</td></tr>"
    )


def thumbnail(lines: Sequence[Line]) -> str:
    """A small picture of one panel: the mean of each method over time, without scales."""
    curves = [(line.style, *_thin(line.steps, moments(line.values)[0])) for line in lines]
    steps = np.concatenate([steps for _, steps, _ in curves])
    values = np.concatenate([values for _, _, values in curves])
    low, high, end = min(0.0, values.min(initial=0)), values.max(initial=0), max(1.0, steps.max(initial=0))
    scale = (HEIGHT - 4) / ((high - low) or 1)
    drawn = f'<path class="axis" d="M.5 0V{HEIGHT - 0.5}H{WIDTH}"/>'
    for style, steps, values in curves:
        points = zip(steps / end * WIDTH, HEIGHT - 2 - (values - low) * scale, strict=True)
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        drawn += f'<path style="--c:{COLOURS[style % len(COLOURS)]}" d="M{path}"/>' if path else ""
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">{drawn}</svg>'


def _thin(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Thin a curve to a few points, keeping its ends; points without a value are left out."""
    there = np.flatnonzero(np.isfinite(values))
    keep = there[np.unique(np.linspace(0, len(there) - 1, min(POINTS, len(there))).round().astype(int))]
    return steps[keep], values[keep]
