"""Statistics of a few seeds: means with bootstrap intervals, and ratios of means."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

RESAMPLES = 10_000


def mean_interval(values: Float[np.ndarray, " seed"], level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Mean and percentile-bootstrap interval over seeds."""
    low, high = np.quantile(_means(values, seed), [(1 - level) / 2, (1 + level) / 2])
    return float(np.mean(values)), float(low), float(high)


def ratio_interval(
    values: Float[np.ndarray, " seed"], base: Float[np.ndarray, " seed"], level: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Ratio of two means and its bootstrap interval; the two groups are resampled independently."""
    ratios = _means(values, seed) / _means(base, seed + 1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return float(np.mean(values) / np.mean(base)), float(low), float(high)


def _means(values: Float[np.ndarray, " seed"], seed: int) -> Float[np.ndarray, " resample"]:
    rng = np.random.default_rng(seed)
    return values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
