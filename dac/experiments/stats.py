"""Statistics of a few seeds: means and ratios with bootstrap intervals, and those of many tasks together.

The statistics over tasks are the ones of Agarwal et al. (2021), "Deep reinforcement learning at the edge of the
statistical precipice". Scores of several tasks are a sequence of arrays, one per task, each with one score per seed;
the tasks may have different numbers of seeds. (An array of task by seed is such a sequence.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from dac.core.types import UsageError

RESAMPLES = 10_000


def mean_interval(values: Float[np.ndarray, " seed"], level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Mean and percentile-bootstrap interval over seeds."""
    low, high = _percentiles(_means(values, seed), level)
    return float(np.mean(values)), float(low), float(high)


def ratio_interval(
    values: Float[np.ndarray, " seed"], base: Float[np.ndarray, " seed"], level: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Ratio of two means and its bootstrap interval; the two groups are resampled independently."""
    low, high = _percentiles(_means(values, seed) / _means(base, seed + 1), level)
    return float(np.mean(values) / np.mean(base)), float(low), float(high)


@dataclasses.dataclass(frozen=True)
class MaxAverage:
    """The best evaluation of several seeds: mean and (population) standard deviation over them, and its time index."""

    mean: float
    std: float
    index: int


def max_average(returns: Float[np.ndarray, "time seed"]) -> MaxAverage:
    """The paper's "max average return": the largest mean over seeds, with the deviation over seeds at that time.

    A seed that is NaN at some time is left out there, and a time at which all are NaN is skipped.
    """
    array = _numbers(returns, "returns")
    if array.ndim != 2:
        raise UsageError(f"returns must be an array of time by seed, not one of shape {array.shape}")
    if np.isinf(array).any():
        raise UsageError("returns must be finite, or NaN where there is none; some are infinite")
    times = np.flatnonzero(~np.isnan(array).all(axis=1))
    if not len(times):
        raise UsageError("returns must hold at least one that is not NaN; there is none")
    means = np.nanmean(array[times], axis=1)
    index = int(times[np.argmax(means)])
    return MaxAverage(float(means.max()), float(np.nanstd(array[index])), index)


@overload
def iqm(scores: ArrayLike, axis: None = None) -> float: ...
@overload
def iqm(scores: ArrayLike, axis: int) -> np.ndarray: ...
def iqm(scores: ArrayLike, axis: int | None = None) -> float | np.ndarray:
    """Interquartile mean: the mean of what is left without the lowest and the highest quarter (rounded down)."""
    array = _scores(scores, "scores")
    rows = array.ravel() if axis is None else np.moveaxis(array, axis, -1)
    size = rows.shape[-1]
    cut = size // 4
    middle = np.partition(rows, (cut, size - cut - 1), axis=-1)[..., cut : size - cut].mean(axis=-1)
    return float(middle) if axis is None else middle


@overload
def optimality_gap(scores: ArrayLike, target: float = 1.0, axis: None = None) -> float: ...
@overload
def optimality_gap(scores: ArrayLike, target: float = 1.0, *, axis: int) -> np.ndarray: ...
def optimality_gap(scores: ArrayLike, target: float = 1.0, axis: int | None = None) -> float | np.ndarray:
    """How far runs stay below the target on average; a run above it counts as being there."""
    if not np.isfinite(target):
        raise UsageError(f"the target must be a finite number, not {target}")
    gap = target - np.minimum(_scores(scores, "scores"), target).mean(axis=axis)
    return float(gap) if axis is None else gap


def stratified_interval(
    groups: Sequence[Float[np.ndarray, " seed"]],
    statistic: Callable[..., Any],
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
    task_means: bool = False,
) -> tuple[float, float, float]:
    """A statistic of all tasks' runs and its percentile interval; seeds are resampled within each task.

    `statistic(scores, axis=-1)` must reduce the last axis, as `iqm`, `optimality_gap`, `np.mean` and `np.median` do. It
    is given all runs of all tasks or, with `task_means`, one mean per task: so Agarwal et al. take median and mean.
    """
    tasks = _tasks(groups, "groups")
    rng = _generator(seed, resamples)

    def reduce(runs: list[Float[np.ndarray, "resample seed"]]) -> Float[np.ndarray, " resample"]:
        scores = np.stack([run.mean(axis=-1) for run in runs], -1) if task_means else np.concatenate(runs, axis=-1)
        values = np.asarray(statistic(scores, axis=-1))
        if values.shape != scores.shape[:1]:
            raise UsageError(f"the statistic must reduce the last axis of {scores.shape}, but gave {values.shape}")
        return values

    (point,) = reduce([task[None] for task in tasks])
    low, high = _percentiles(reduce([_resample(task, rng, resamples) for task in tasks]), level)
    return float(point), float(low), float(high)


def probability_of_improvement(
    x: Sequence[Float[np.ndarray, " seed"]] | Float[np.ndarray, " seed"],
    y: Sequence[Float[np.ndarray, " seed"]] | Float[np.ndarray, " seed"],
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float, float]:
    """Mean over tasks of P(X > Y) + P(X = Y) / 2 for a run of x and one of y, and its stratified bootstrap interval.

    The runs of x and y are not paired: they are resampled independently. One array each stands for one task.
    """
    ours, theirs = _tasks(x, "x"), _tasks(y, "y")
    if len(ours) != len(theirs):
        raise UsageError(f"x and y must have the same tasks, but x has {len(ours)} and y has {len(theirs)}")
    rng = _generator(seed, resamples)
    points, samples = [], []
    for a, b in zip(ours, theirs, strict=True):
        wins = (a[:, None] > b) + 0.5 * (a[:, None] == b)
        points.append(wins.mean())
        counts = _counts(len(a), rng, resamples), _counts(len(b), rng, resamples)
        samples.append(((counts[0] @ wins) * counts[1]).sum(axis=1) / wins.size)
    low, high = _percentiles(np.mean(samples, axis=0), level)
    return float(np.mean(points)), float(low), float(high)


def performance_profile(
    groups: Sequence[Float[np.ndarray, " seed"]],
    thresholds: Float[np.ndarray, " threshold"],
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Float[np.ndarray, " threshold"], Float[np.ndarray, " threshold"], Float[np.ndarray, " threshold"]]:
    """Share of a task's runs above each threshold, averaged over tasks, and its pointwise stratified bootstrap band."""
    tasks = _tasks(groups, "groups")
    levels = _numbers(thresholds, "thresholds")
    if levels.ndim != 1 or not levels.size or np.isnan(levels).any():
        raise UsageError("thresholds must be one or more numbers in a row, none of them NaN")
    rng = _generator(seed, resamples)
    above = [task[:, None] > levels for task in tasks]
    profile = np.mean([each.mean(axis=0) for each in above], axis=0)
    samples = [_counts(len(each), rng, resamples) @ each.astype(float) / len(each) for each in above]
    low, high = _percentiles(np.mean(samples, axis=0), level)
    return profile, low, high


def _means(values: Float[np.ndarray, " seed"], seed: int) -> Float[np.ndarray, " resample"]:
    return _resample(values, np.random.default_rng(seed), RESAMPLES).mean(axis=1)


def _resample(
    values: Float[np.ndarray, " seed"], rng: np.random.Generator, resamples: int
) -> Float[np.ndarray, "resample seed"]:
    return values[rng.integers(0, len(values), (resamples, len(values)))]


def _counts(size: int, rng: np.random.Generator, resamples: int) -> Int[np.ndarray, "resample seed"]:
    """How often each seed is in each resample: all that a sum over seeds has to know, and less than the resamples."""
    return rng.multinomial(size, np.full(size, 1 / size), resamples)


def _percentiles(samples: Float[np.ndarray, "resample *rest"], level: float) -> Float[np.ndarray, "2 *rest"]:
    if not 0 < level < 1:
        raise UsageError(f"the level of an interval must be between 0 and 1, not {level}")
    return np.quantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=0)


def _generator(seed: int, resamples: int) -> np.random.Generator:
    if resamples < 1:
        raise UsageError(f"the number of resamples must be at least 1, not {resamples}")
    return np.random.default_rng(seed)


def _numbers(values: ArrayLike, name: str) -> Float[np.ndarray, "*axes"]:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be an array of numbers") from None


def _scores(values: ArrayLike, name: str) -> Float[np.ndarray, "*axes"]:
    array = _numbers(values, name)
    if not array.size:
        raise UsageError(f"{name} must hold at least one score; there is none")
    if not np.isfinite(array).all():
        raise UsageError(f"{name} must be finite; {(~np.isfinite(array)).sum()} of {array.size} are NaN or infinite")
    return array


def _tasks(groups: Sequence[ArrayLike] | np.ndarray, name: str) -> list[Float[np.ndarray, " seed"]]:
    """The scores of each task as one checked array; numbers instead of arrays are the scores of one task."""
    if not len(groups):
        raise UsageError(f"{name} must hold the scores of at least one task; there is none")
    tasks = [groups] if all(np.ndim(group) == 0 for group in groups) else groups
    arrays = [_scores(task, f"the scores of task {i} in {name}") for i, task in enumerate(tasks)]
    for i, array in enumerate(arrays):
        if array.ndim != 1:
            raise UsageError(f"the scores of task {i} in {name} must be one per seed, not of shape {array.shape}")
    return arrays
