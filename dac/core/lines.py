"""Curves as numbers: what figures and pages have in common, without a library that draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""The palette of Okabe and Ito, which colour-blind people can tell apart."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
"""The pattern of each line, for print without colour."""

LABELS = {
    "return": "return",
    "success": "success rate",
    "visited": "visited cells",
    "js_divergence": "divergence from the ring, D_JS",
    "alpha_mean": "alpha",
    "policy_entropy": "policy entropy",
}

POINTS = 200
"""Points of a curve on the page; raw data have them all."""


class Line(NamedTuple):
    """The curve of one method in a panel."""

    label: str
    style: int
    """Number of its colour and pattern."""
    steps: Float[np.ndarray, " time"]
    values: Float[np.ndarray, "time seed"]


def moments(values: Float[np.ndarray, "time seed"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the seeds that have a value; NaN where none has."""
    there = np.isfinite(values)
    count = np.where(there.any(axis=1), there.sum(axis=1), np.nan)
    mean = np.where(there, values, 0).sum(axis=1) / count
    return mean, np.sqrt(np.where(there, (values - mean[:, None]) ** 2, 0).sum(axis=1) / count)


def thin(count: int) -> np.ndarray:
    """Thin a curve of `count` points to at most `POINTS`, keeping its ends; returns the indices that stay."""
    return np.unique(np.linspace(0, count - 1, min(POINTS, count)).round().astype(int))


def make_series(name: str, style: int, steps: np.ndarray, values: np.ndarray, seeds: Sequence[int]) -> dict[str, Any]:
    """One line of a chart: values (time, seed) with their mean and standard deviation."""
    mean, deviation = moments(values)
    return {
        "name": name,
        "colour": COLOURS[style % len(COLOURS)],
        "x": numbers(steps),
        "mean": numbers(mean),
        "std": numbers(deviation),
        "seeds": {str(seed): numbers(column) for seed, column in zip(seeds, values.T, strict=True)},
    }


def numbers(values: np.ndarray) -> list[float | None]:
    """Round to five digits, more than a page can show; what is not finite becomes None, since JSON has no NaN."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in np.asarray(values, float)]
