"""The heat map of a page: where the members of each method have been by which step."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

FRAMES = 30
"""Positions of the slider."""
SEEDS = 255
"""Seeds of a method that are drawn at most: the page counts in bytes."""


def heat_map(
    walls: Bool[np.ndarray, "x y"], first_visits: Mapping[str, Int[np.ndarray, "seed cell"]], length: int
) -> dict[str, Any]:
    """Return the data of a heat map: how many seeds enter each cell for the first time between one step and the next.

    `first_visits` are the steps of a method's members, -1 for never; `length` is the last step of the slider.
    """
    steps = np.linspace(0, length, FRAMES + 1)[1:].round().astype(int)
    panels = []
    for name, found in first_visits.items():
        first = found[:SEEDS]
        before, frames = np.zeros(first.shape[1], int), []
        for step in steps:
            now = ((first >= 0) & (first <= step)).sum(axis=0)
            frames.append((now - before).astype(np.uint8))
            before = now
        panels.append({"name": name, "max": len(first), "frames": pack(np.stack(frames))})
    width, height = walls.shape
    return {
        "title": "Share of the seeds that have been in each cell",
        "width": width,
        "height": height,
        "steps": [int(step) for step in steps],
        "walls": pack(walls.astype(np.uint8)),
        "panels": panels,
    }


def pack(array: np.ndarray) -> str:
    """Return bytes as text, as the page's script reads them."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
