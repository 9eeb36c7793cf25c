"""How curves are drawn, here and in the paper's figures: a mean over seeds within one standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
"""The palette of Okabe and Ito, which colour-blind people can tell apart."""

DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
"""The pattern of each line, for print without colour."""

LABELS = {
    "return": "return",
    "visited": "visited cells",
    "js_divergence": "divergence from the ring, D_JS",
    "alpha_mean": "alpha",
    "policy_entropy": "policy entropy",
}


def moments(values: Float[np.ndarray, "time seed"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the seeds that have a value; NaN where none has."""
    there = np.isfinite(values)
    count = np.where(there.any(axis=1), there.sum(axis=1), np.nan)
    mean = np.where(there, values, 0).sum(axis=1) / count
    return mean, np.sqrt(np.where(there, (values - mean[:, None]) ** 2, 0).sum(axis=1) / count)


def draw_line(
    axis: Any,
    x: Float[np.ndarray, " time"],
    values: Float[np.ndarray, "time seed"],
    style: int,
    label: str | None = None,
) -> Any:
    """Draw the mean over seeds and the band of one standard deviation; `style` numbers colour and pattern."""
    colour, dash = COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)]
    mean, deviation = moments(values)
    (drawn,) = axis.plot(x, mean, color=colour, linestyle=dash, linewidth=1.4, label=label)
    axis.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0)
    return drawn
