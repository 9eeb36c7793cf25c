"""Counting visited cells on the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Int64

SMALL_GRID = 100_000
"""Grids of at most this many cells keep counts and first visits; larger ones only which cells were visited."""


class VisitCounter:
    """The cells each member has entered."""

    def __init__(self, members: int, cells: int):
        self.visited = np.zeros(members, np.int64)
        """Number of distinct cells, per member."""
        self.seen = np.zeros((members, cells), bool)
        small = cells <= SMALL_GRID
        self.counts = np.zeros((members, cells), np.uint32) if small else None
        self.first = np.full((members, cells), -1, np.int64) if small else None

    def state(self) -> dict[str, np.ndarray]:
        """Everything counted so far, as copies; which cells were seen takes a bit each."""
        saved: dict[str, np.ndarray] = {"visited": self.visited.copy(), "seen": np.packbits(self.seen, axis=1)}
        if self.counts is not None and self.first is not None:
            saved |= {"counts": self.counts.copy(), "first": self.first.copy()}
        return saved

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Continue from `state()`."""
        self.visited = saved["visited"]
        self.seen = np.unpackbits(saved["seen"], axis=1, count=self.seen.shape[1]).astype(bool)
        self.counts, self.first = saved.get("counts"), saved.get("first")

    def add(self, cells: Int64[np.ndarray, "member env"], env_step: int) -> None:
        """Enter one cell per environment; -1 is outside the grid."""
        for column in cells.T:  # one environment at a time, so that two that enter the same new cell count once
            member = np.flatnonzero(column >= 0)
            cell = column[member]
            new = ~self.seen[member, cell]
            self.visited[member] += new
            self.seen[member, cell] = True
            if self.counts is not None and self.first is not None:
                self.counts[member, cell] += 1
                self.first[member[new], cell[new]] = env_step
