"""The function of most rewards against its definition, number by number."""

import math

import numpy as np
import pytest

from dac.envs.dmc.tolerance import SLOPES, tolerance


def fall(slope, distance, value):
    """Return the definition of Tassa et al. 2018 for one number: a curve through 1 at 0 and `value` at 1."""
    if slope == "gaussian":
        return math.exp(-(distance**2) / (2 * (1 / math.sqrt(-2 * math.log(value))) ** 2))
    if slope == "long_tail":
        return 1 / ((distance * math.sqrt(1 / value - 1)) ** 2 + 1)
    if slope == "reciprocal":
        return 1 / (distance * (1 / value - 1) + 1)
    if slope == "linear":
        return 1 - distance * (1 - value) if distance * (1 - value) < 1 else 0.0
    scaled = distance * math.sqrt(1 - value)
    return 1 - scaled**2 if scaled < 1 else 0.0


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize(
    ("low", "high", "margin", "value"), [(0, 0, 1, 0.1), (-1, 0.5, 2, 0.5), (0.9, math.inf, 0.3, 0.9)]
)
def test_every_number(slope, low, high, margin, value):
    points = [-50.0, -3.0, -1.0, 0.0, 0.5, 0.6, 0.9, 1.0, 2.5, 50.0]
    got = tolerance(np.array(points), low, high, margin=margin, slope=slope, value=value)
    for x, found in zip(points, got, strict=True):
        away = max(low - x, x - high, 0.0)
        np.testing.assert_allclose(found, fall(slope, away / margin, value), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("slope", SLOPES)
def test_the_value_at_the_margin(slope):
    np.testing.assert_allclose(tolerance(np.array([3.0, -1.0]), 0, 2, margin=1, slope=slope, value=0.4), 0.4)


def test_without_a_margin_it_is_one_or_zero():
    x = np.array([[-0.1, 0.0], [1.0, np.nextafter(1.0, 2.0)]])
    np.testing.assert_array_equal(tolerance(x, 0, 1), [[0, 1], [1, 0]])
    assert tolerance(np.array([np.nan]), 0, 1, margin=1)[0] != 1
