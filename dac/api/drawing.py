"""How curves are drawn, here and in the paper's figures: a mean over seeds within one standard deviation."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dac.core.lines import COLOURS, DASHES, moments


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
