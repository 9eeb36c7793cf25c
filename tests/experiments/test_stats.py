"""Statistics over seeds and tasks against loops, all resamples of a tiny case, SciPy, rliable, and the truth."""

import dataclasses
import functools
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

from dac.core.types import UsageError
from dac.experiments.stats import (
    MaxAverage,
    iqm,
    max_average,
    mean_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    ratio_interval,
    stratified_interval,
)

NAN = np.nan
# Coarse values, so that ties occur; and tasks with different numbers of seeds.
GROUPS = st.lists(st.lists(st.integers(-8, 8).map(lambda i: i / 4), min_size=1, max_size=6), min_size=1, max_size=4)
few = functools.partial(settings, deadline=None, derandomize=True)


def arrays(groups):
    return [np.array(group) for group in groups]


def between(low, value, high):
    """Rounding aside; quantiles of discrete distributions are often equal."""
    return np.all((low - 1e-12 <= value) & (value <= high + 1e-12))


def assert_ends_agree(interval, ends, slack=0.01):
    """`ends` must be those of the 95% interval, up to the error of the resampling; `interval` takes the level.

    10,000 resamples put the share below a quantile of 2.5% wrong by 0.16% (one standard deviation); a `slack` of 0.01
    in the level is 0.5% at either end.
    """
    _, lowest, highest = interval(0.95 + slack)
    _, low, high = interval(0.95 - slack)
    assert between(lowest, ends[0], low)
    assert between(high, ends[1], highest)


# The paper's max average return


def test_max_average_by_hand():
    returns = np.array([[1.0, 3.0], [6.0, 2.0], [0.0, 7.0], [4.0, 4.0]])
    assert max_average(returns) == MaxAverage(4.0, 2.0, 1)  # the first of the two times with mean 4


def test_max_average_is_that_of_one_time():
    """Not the mean of each seed's best, and not its deviation; the deviation is not the largest either."""
    returns = np.random.default_rng(0).normal(100, 30, (50, 5))
    best = max((sum(row) / 5, i) for i, row in enumerate(returns.tolist()))
    result = max_average(returns)
    assert (result.mean, result.index) == (pytest.approx(best[0], rel=1e-14), best[1])
    assert result.std == pytest.approx(np.sqrt(sum((v - best[0]) ** 2 for v in returns[best[1]]) / 5), rel=1e-14)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.mean = 0.0


def test_max_average_without_the_missing_ones():
    returns = np.array([[NAN, NAN, NAN], [1.0, NAN, 4.0], [2.0, 2.0, 2.0], [NAN, NAN, NAN]])
    assert max_average(returns) == MaxAverage(2.5, 1.5, 1)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (np.full((3, 2), NAN), "not NaN"),
        (np.zeros((0, 2)), "not NaN"),
        (np.zeros(4), r"time by seed, not one of shape \(4,\)"),
        (np.array([[1.0, np.inf]]), "infinite"),
        ([["a", "b"]], "array of numbers"),
    ],
)
def test_max_average_refuses(returns, message):
    with pytest.raises(UsageError, match=message):
        max_average(returns)


# Aggregates


@few(max_examples=200)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_iqm_is_scipys_trimmed_mean(scores):
    assert iqm(scores) == scipy.stats.trim_mean(scores, 0.25, axis=None)


def test_iqm_along_axes():
    scores = np.random.default_rng(0).normal(size=(7, 11))
    assert isinstance(iqm(scores), float)
    assert iqm(scores) == scipy.stats.trim_mean(scores, 0.25, axis=None)
    for axis in (0, 1, -1):
        np.testing.assert_array_equal(iqm(scores, axis=axis), scipy.stats.trim_mean(scores, 0.25, axis=axis))


def test_iqm_by_hand():
    assert iqm([100.0, 1.0, 2.0, -50.0]) == 1.5
    assert iqm([9, 1, 2]) == 4.0  # a quarter of three is none


def test_optimality_gap_by_hand():
    scores = np.array([[0.5, 2.0], [1.0, -0.5]])
    assert optimality_gap(scores) == pytest.approx((0.5 + 0 + 0 + 1.5) / 4, rel=1e-15)
    assert optimality_gap(scores, target=3.0) == pytest.approx((2.5 + 1 + 2 + 3.5) / 4, rel=1e-15)
    np.testing.assert_allclose(optimality_gap(scores, axis=-1), [0.25, 0.75], rtol=1e-15)


# The bootstrap against all resamples of a tiny case


def resamples_of(values):
    """All of them, each as likely as every other."""
    return np.array(list(itertools.product(values, repeat=len(values))))


def all_resamples(groups):
    """All resamples within tasks: their entries side by side."""
    return np.array([np.concatenate(rows) for rows in itertools.product(*map(resamples_of, groups))])


def exact_ends(values):
    """The interval of 95% of the whole distribution."""
    return np.quantile(values, [0.025, 0.975], axis=0, method="inverted_cdf")


TINY = arrays([[0.0, 1.0, 5.0], [10.0, 11.0, 17.0]])
UNEVEN = arrays([[0.0, 1.0, 5.0], [10.0, 12.0]])


@pytest.mark.parametrize("groups", [TINY, UNEVEN], ids=["even", "uneven"])
def test_every_resample_within_tasks_is_equally_likely(groups):
    seen = []

    def mean(scores, axis):
        seen.append(scores)
        return scores.mean(axis=axis)

    stratified_interval(groups, mean, seed=3)
    original, drawn = seen
    np.testing.assert_array_equal(original, [np.concatenate(groups)])
    everything = all_resamples(groups)
    assert len(everything) == np.prod([len(group) ** len(group) for group in groups])
    place = {tuple(row): i for i, row in enumerate(everything)}
    counts = np.bincount([place[tuple(row)] for row in drawn], minlength=len(everything))
    assert counts.sum() == 10_000
    assert 0.001 < scipy.stats.chisquare(counts).pvalue < 0.999
    means = everything.mean(axis=1)
    assert drawn.mean() == pytest.approx(means.mean(), abs=4 * means.std() / 100)
    assert drawn.mean(axis=1).std() == pytest.approx(means.std(), rel=0.03)


@pytest.mark.parametrize("groups", [TINY, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(
    "statistic",
    [np.mean, np.median, iqm, functools.partial(optimality_gap, target=11.0)],
    ids=["mean", "median", "iqm", "gap"],
)
def test_interval_is_that_of_all_resamples(groups, statistic):
    ends = exact_ends([statistic(row) for row in all_resamples(groups)])
    assert_ends_agree(lambda level: stratified_interval(groups, statistic, level), ends, 0.015)
    assert stratified_interval(groups, statistic)[0] == pytest.approx(statistic(np.concatenate(groups)), rel=1e-14)


@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_task_means_weigh_tasks_alike(statistic):
    groups = [*UNEVEN, np.array([3.0])]
    everything = [[row[:3].mean(), row[3:5].mean(), row[5]] for row in all_resamples(groups)]
    ends = exact_ends([statistic(row) for row in everything])
    assert_ends_agree(lambda level: stratified_interval(groups, statistic, level, task_means=True), ends, 0.015)
    assert stratified_interval(groups, statistic, task_means=True)[0] == pytest.approx(statistic([2.0, 11.0, 3.0]))
    assert stratified_interval(groups, statistic)[0] == pytest.approx(statistic([0, 1, 5, 10, 12, 3]))


def improvement(x, y):
    """By the definition, one pair after another."""
    shares = []
    for ours, theirs in zip(x, y, strict=True):
        pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in ours for b in theirs]
        shares.append(sum(pairs) / len(pairs))
    return sum(shares) / len(shares)


def test_improvement_interval_is_that_of_all_resamples():
    x, y = arrays([[1.0, 2.0, 6.0], [3.0, 4.0]]), arrays([[1.0, 4.0], [0.0, 3.0, 7.0]])
    per_task = [
        [improvement([a], [b]) for a in resamples_of(u) for b in resamples_of(v)] for u, v in zip(x, y, strict=True)
    ]
    ends = exact_ends(np.add.outer(*map(np.array, per_task)).ravel() / 2)
    assert_ends_agree(lambda level: probability_of_improvement(x, y, level), ends)


def test_profile_band_is_that_of_all_resamples():
    groups, thresholds = UNEVEN, np.array([-1.0, 0.0, 0.5, 1.0, 7.0, 10.0, 12.0])
    everything = all_resamples(groups)[:, :, None] > thresholds
    shares = (everything[:, :3].mean(axis=1) + everything[:, 3:].mean(axis=1)) / 2
    assert_ends_agree(lambda level: performance_profile(groups, thresholds, level), exact_ends(shares))


# Improvement and profiles against loops and SciPy


@few(max_examples=60)
@given(GROUPS, st.data())
def test_improvement_is_the_share_of_pairs(x, data):
    y = data.draw(st.lists(st.sampled_from([[0.0], [1.0, -1.0, 0.25], [2.0, 0.5]]), min_size=len(x), max_size=len(x)))
    point, low, high = probability_of_improvement(arrays(x), arrays(y), resamples=50)
    assert point == pytest.approx(improvement(x, y), abs=1e-14)
    assert 0 <= low <= high <= 1
    assert probability_of_improvement(arrays(y), arrays(x), resamples=50)[0] == pytest.approx(1 - point, abs=1e-14)
    assert probability_of_improvement(arrays(x), arrays(x), resamples=50)[0] == pytest.approx(0.5, abs=1e-14)


def test_improvement_is_mann_whitneys_u():
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 9, 12).astype(float), rng.integers(0, 9, 7).astype(float)
    point, low, high = probability_of_improvement(x, y)
    assert point == pytest.approx(scipy.stats.mannwhitneyu(x, y).statistic / (12 * 7), rel=1e-14)
    assert (point, low, high) == probability_of_improvement([x], [y])
    assert (point, low, high) == probability_of_improvement(list(x), list(y))
    assert probability_of_improvement(x + 100, y) == (1.0, 1.0, 1.0)


@few(max_examples=60)
@given(GROUPS, st.lists(st.integers(-9, 9).map(lambda i: i / 4), min_size=1, max_size=12).map(sorted))
def test_profile_is_a_falling_share(groups, thresholds):
    profile, low, high = performance_profile(arrays(groups), np.array(thresholds), resamples=50)
    for i, threshold in enumerate(thresholds):
        shares = [sum(score > threshold for score in group) / len(group) for group in groups]
        assert profile[i] == pytest.approx(sum(shares) / len(shares), abs=1e-14)
    for curve in (profile, low, high):
        assert (np.diff(curve) <= 1e-12).all()
        assert (curve >= -1e-12).all()
        assert (curve <= 1 + 1e-12).all()
    assert (low <= high).all()


# What holds for all intervals


@few(max_examples=60)
@given(GROUPS, st.integers(0, 5), st.floats(-3, 3), st.floats(0.1, 3))
def test_intervals_hold_the_mean_and_move_with_the_scores(groups, seed, shift, scale):
    scores = arrays(groups)
    point, low, high = stratified_interval(scores, np.mean, seed=seed, resamples=1000)
    assert between(low, point, high)
    assert between(np.concatenate(scores).min(), low, high)
    assert between(low, high, np.concatenate(scores).max())
    narrow = stratified_interval(scores, np.mean, 0.5, seed, resamples=1000)
    assert between(low, narrow[1], narrow[2])
    assert between(narrow[1], narrow[2], high)
    for statistic in (np.mean, np.median, iqm):
        before = stratified_interval(scores, statistic, seed=seed, resamples=100)
        after = stratified_interval([scale * each + shift for each in scores], statistic, seed=seed, resamples=100)
        np.testing.assert_allclose(after, scale * np.array(before) + shift, atol=1e-12)


def test_one_group_is_mean_interval():
    values = np.random.default_rng(5).normal(size=30)
    for level, seed in ((0.95, 0), (0.8, 7)):
        assert stratified_interval([values], np.mean, level, seed) == mean_interval(values, level, seed)
        assert stratified_interval(values, np.mean, level, seed) == mean_interval(values, level, seed)


def test_older_intervals_to_the_bit():
    """Published numbers were made with these; the resampling must not change under them."""
    values, base = np.array([3.0, 1.0, 4.0, 1.0, 5.0]), np.array([2, 7, 1, 8])
    draws = [np.random.default_rng(seed).integers(0, n, (10_000, n)) for seed, n in ((3, 5), (4, 4))]
    means = values[draws[0]].mean(axis=1), base[draws[1]].mean(axis=1)
    assert mean_interval(values, 0.9, 3) == (2.8, *np.quantile(means[0], [(1 - 0.9) / 2, (1 + 0.9) / 2]))
    assert ratio_interval(values, base, seed=3) == (2.8 / 4.5, *np.quantile(means[0] / means[1], [0.05 / 2, 1.95 / 2]))


def test_results_depend_on_the_seed_alone():
    groups = [np.random.default_rng(i).normal(size=6) for i in range(3)]
    for function in (
        lambda seed: stratified_interval(groups, iqm, seed=seed),
        lambda seed: probability_of_improvement(groups, groups[::-1], seed=seed, resamples=20),
        lambda seed: np.ravel(performance_profile(groups, np.linspace(-1, 1, 40), seed=seed, resamples=501)),
    ):
        np.testing.assert_array_equal(function(1), function(1))
        assert not np.array_equal(function(1), function(2))


# Coverage


def share_inside(interval, truth, repetitions=300):
    rng = np.random.default_rng(11)
    results = [interval(rng) for _ in range(repetitions)]
    return np.mean([low <= truth <= high for _, low, high in results])


def test_interval_of_the_mean_covers_the_truth():
    def interval(rng):
        return stratified_interval([rng.normal(3, 2, 30)], np.mean, resamples=1000)

    assert 0.9 <= share_inside(interval, 3.0) <= 0.98


def test_interval_of_the_iqm_over_tasks_covers_the_truth():
    """Scores of three tasks that are symmetric around their common centre: it is the IQM."""

    def interval(rng):
        return stratified_interval([rng.normal(3, scale, 20) for scale in (1, 2, 3)], iqm, resamples=1000)

    assert 0.89 <= share_inside(interval, 3.0) <= 0.985


def test_interval_of_improvement_covers_the_truth():
    """Of two normal distributions, P(X > Y) = Phi(difference of means / sqrt(2))."""
    truth = np.mean([scipy.stats.norm.cdf(d / np.sqrt(2)) for d in (0.3, -0.5)])

    def interval(rng):
        x = [rng.normal(d, 1, 30) for d in (0.3, -0.5)]
        return probability_of_improvement(x, [rng.normal(0, 1, 25) for _ in x], resamples=1000)

    assert 0.89 <= share_inside(interval, truth) <= 0.985


# rliable 1.2.0 (with arch 7.2.0 and NumPy 2.4.6), the implementation of Agarwal et al.: `get_interval_estimates` with
# 50,000 resamples (improvement: 10,000) after `np.random.seed(0)`. Its scores are run by task, ours task by run.

X = np.array(
    [
        [0.13, 0.35, 0.21, 0.42, 0.28],
        [0.91, 1.07, 0.88, 1.32, 0.97],
        [0.55, 0.55, 0.71, 0.02, 0.64],
        [1.85, 0.40, 1.21, 1.21, 0.93],
    ]
)
Y = np.array(
    [
        [0.11, 0.35, 0.18, 0.22, 0.28, 0.09],
        [0.84, 1.07, 0.79, 0.93, 1.01, 0.66],
        [0.60, 0.55, 0.48, 0.49, 0.71, 0.37],
        [1.10, 0.38, 1.21, 0.76, 0.52, 1.40],
    ]
)
MEAN = functools.partial(stratified_interval, statistic=np.mean, task_means=True)
MEDIAN = functools.partial(stratified_interval, statistic=np.median, task_means=True)
IQM = functools.partial(stratified_interval, statistic=iqm)
GAP = functools.partial(stratified_interval, statistic=optimality_gap)


@pytest.mark.parametrize(
    ("aggregate", "scores", "point", "ends"),
    [
        (MEAN, X, 0.7304999999999999, (0.6059999999999999, 0.8525)),
        (MEDIAN, X, 0.7619999999999999, (0.5800000000000001, 0.8660000000000001)),
        (IQM, X, 0.696, (0.5690000000000001, 0.819)),
        (GAP, X, 0.35250000000000004, (0.2825, 0.4384999999999999)),
        (MEAN, Y, 0.6291666666666667, (0.5462499999999999, 0.7116666666666667)),
        (MEDIAN, Y, 0.7083333333333334, (0.5608125000000008, 0.7625)),
        (IQM, Y, 0.5958333333333333, (0.5116666666666666, 0.7083333333333334)),
        (GAP, Y, 0.40375000000000005, (0.34375, 0.4670833333333334)),
    ],
    ids=[f"{name}-{scores}" for scores in "XY" for name in ("mean", "median", "iqm", "gap")],
)
def test_aggregates_are_rliables(aggregate, scores, point, ends):
    assert aggregate(scores)[0] == pytest.approx(point, abs=1e-12)
    assert_ends_agree(lambda level: aggregate(scores, level=level), ends)


def test_improvement_is_rliables():
    assert probability_of_improvement(X, Y)[0] == pytest.approx(0.6583333333333333, abs=1e-12)
    assert_ends_agree(lambda level: probability_of_improvement(X, Y, level), (0.4875, 0.8208333333333333))


def test_profile_is_rliables():
    thresholds = np.array([0.0, 0.2, 0.35, 0.55, 0.9, 1.0, 1.21, 2.0])  # some of them are scores
    profile, _, _ = performance_profile(X, thresholds)
    np.testing.assert_allclose(profile, [1.0, 0.9, 0.75, 0.55, 0.4, 0.25, 0.1, 0.0], atol=1e-12)
    low = np.array([1.0, 0.75, 0.65, 0.4, 0.25, 0.1, 0.0, 0.0])
    high = np.array([1.0, 1.0, 0.85, 0.7, 0.5, 0.4, 0.25, 0.0])
    assert_ends_agree(lambda level: performance_profile(X, thresholds, level), (low, high))


# Bad input

GOOD = [np.array([1.0, 2.0]), np.array([3.0])]
EVERY = {
    "interval": lambda groups, **options: stratified_interval(groups, np.mean, **options),
    "x": lambda groups, **options: probability_of_improvement(groups, GOOD, **options),
    "y": lambda groups, **options: probability_of_improvement(GOOD, groups, **options),
    "profile": lambda groups, **options: performance_profile(groups, np.array([0.0]), **options),
}


@pytest.mark.parametrize("function", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "at least one task"),
        ([np.array([1.0]), np.array([])], r"task 1 in \w+ must hold at least one score"),
        ([np.array([1.0]), np.array([1.0, NAN])], r"task 1 in \w+ must be finite; 1 of 2 are"),
        ([np.array([-np.inf]), np.array([1.0])], r"task 0 in \w+ must be finite"),
        ([np.array([[1.0, 2.0]]), np.array([1.0])], r"one per seed, not of shape \(1, 2\)"),
        ([1.0, np.array([1.0])], r"one per seed, not of shape \(\)"),
        ([["a"], ["b"]], "array of numbers"),
    ],
)
def test_bad_scores_are_refused(function, groups, message):
    with pytest.raises(UsageError, match=message) as error:
        function(groups)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("function", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize(
    ("options", "message"),
    [({"level": level}, f"between 0 and 1, not {level}") for level in (0, 1, -0.5, 95, NAN)]
    + [({"resamples": 0}, "at least 1, not 0")],
    ids=str,
)
def test_bad_options_are_refused(function, options, message):
    with pytest.raises(UsageError, match=message):
        function(GOOD, **options)


@pytest.mark.parametrize("aggregate", [iqm, optimality_gap])
@pytest.mark.parametrize(
    ("scores", "message"),
    [([], "at least one score"), ([1.0, NAN], "must be finite; 1 of 2"), ([[1.0], [1.0, 2.0]], "array of numbers")],
)
def test_bad_scores_have_no_aggregate(aggregate, scores, message):
    with pytest.raises(UsageError, match=message):
        aggregate(scores)


def test_other_bad_input_is_refused():
    with pytest.raises(UsageError, match="x has 2 and y has 1"):
        probability_of_improvement(GOOD, GOOD[:1])
    with pytest.raises(UsageError, match="target must be a finite number, not nan"):
        optimality_gap([1.0], target=NAN)
    for thresholds in ([], [0.0, NAN], [[0.0]], 0.0):
        with pytest.raises(UsageError, match="thresholds must be one or more numbers"):
            performance_profile(GOOD, np.array(thresholds))
    with pytest.raises(UsageError, match=r"must reduce the last axis of \(1, 3\), but gave \(\)"):
        stratified_interval(GOOD, lambda scores, axis: np.mean(scores))
    with pytest.raises(UsageError, match="between 0 and 1"):
        mean_interval(np.array([1.0, 2.0]), level=95)
