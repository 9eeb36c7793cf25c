"""How fast a run trains."""

from __future__ import annotations

import time
from collections.abc import Callable

from dac.training.loop import AbstractLoop


class Speedometer:
    """Agent-steps per second of training alone: no evaluation, no compilation."""

    def __init__(self, steps_per_iteration: int):
        self.steps_per_iteration = steps_per_iteration
        self.rate: float | None = None
        self.seconds, self.stepping = 0.0, 0.0
        """Time without compilation, and what of it went into stepping environments."""
        self._seen: set[tuple[int, bool, bool]] = set()
        self._steps = 0

    def forget_programs(self) -> None:
        """Expect that what comes next has to be compiled."""
        self._seen.clear()

    def measure(self, loop: AbstractLoop, advance: Callable[[], None]) -> None:
        before, learning = loop.step, loop.step >= loop.schedule.first_update
        stepping = loop.seconds_stepping
        start = time.perf_counter()
        advance()
        loop.wait()
        seconds = time.perf_counter() - start
        program = (loop.step - before, learning, loop.health.mask is None)
        if program in self._seen and learning:  # the first call of each program compiles it
            self._steps += loop.step - before
            self.seconds += seconds
            self.stepping += loop.seconds_stepping - stepping
            self.rate = self._steps * self.steps_per_iteration / self.seconds
        self._seen.add(program)
