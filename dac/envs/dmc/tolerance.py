"""The function from which most rewards of the suite are made: 1 inside an interval, falling to 0 outside of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64


def _gaussian(distance: np.ndarray, value: float) -> np.ndarray:
    return np.exp(np.log(value) * distance**2)


def _long_tail(distance: np.ndarray, value: float) -> np.ndarray:
    return 1 / (1 + (1 / value - 1) * distance**2)


def _reciprocal(distance: np.ndarray, value: float) -> np.ndarray:
    return 1 / (1 + (1 / value - 1) * distance)


def _linear(distance: np.ndarray, value: float) -> np.ndarray:
    return np.maximum(1 - (1 - value) * distance, 0.0)


def _quadratic(distance: np.ndarray, value: float) -> np.ndarray:
    return np.maximum(1 - (1 - value) * distance**2, 0.0)


SLOPES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "gaussian": _gaussian,
    "long_tail": _long_tail,
    "reciprocal": _reciprocal,
    "linear": _linear,
    "quadratic": _quadratic,
}
"""How a reward falls with the distance from its interval: 1 at distance 0, `value` at distance 1."""


def tolerance(
    x: Float64[np.ndarray, "*rows"],
    low: float = 0.0,
    high: float = 0.0,
    *,
    margin: float = 0.0,
    slope: str = "gaussian",
    value: float = 0.1,
) -> Float64[np.ndarray, "*rows"]:
    """Return 1 where low <= x <= high; outside it falls to `value` at a distance of `margin`, or is 0 without one."""
    inside = (low <= x) & (x <= high)
    if margin == 0:
        return np.where(inside, 1.0, 0.0)
    distance = np.where(x < low, low - x, x - high) / margin
    return np.where(inside, 1.0, SLOPES[slope](np.where(inside, 0.0, distance), value))
