"""What to train when there is not time for everything.

The value of some populations is the number of panels (one task of a figure or of a table) that they complete, divided
by the time they are estimated to take. Panels that can be completed within the budget come first, the one of the
greatest value before the others; then what is left, in the same order. A population is begun only if its estimated time
fits into what is left of the budget; one that does not fit is passed over for a later one that does.
"""

from __future__ import annotations

import bisect
import heapq
import math
import time
from collections.abc import Callable, Iterable, Sequence

from dac.core.types import UsageError


class Budget:
    """The time that a command may spend on training, counted from when this is made."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic):
        if not 0 < minutes < math.inf:
            raise UsageError(f"budget must be above 0 minutes, not {minutes:g}")
        self.seconds = 60 * minutes
        self._clock, self._end = clock, clock() + self.seconds

    def left(self) -> float:
        """Seconds until it is used up."""
        return max(0.0, self._end - self._clock())


class Queue:
    """Populations, by number, that wait for their turn; with a budget, only one that fits into what is left gets it."""

    def __init__(self, count: int, seconds: Sequence[float] = (), budget: Budget | None = None):
        self._waiting, self._seconds, self.budget = list(range(count)), seconds, budget

    def take(self) -> int | None:
        """The next population to begin, or None if there is none that fits."""
        if self.used_up():
            return None
        left = math.inf if self.budget is None else self.budget.left()
        number = next((n for n in self._waiting if self.budget is None or self._seconds[n] <= left), None)
        if number is not None:
            self._waiting.remove(number)
        return number

    def put_back(self, number: int) -> None:
        """Let a population wait again, in its place in the order."""
        bisect.insort(self._waiting, number)

    def waiting(self) -> list[int]:
        """The populations that have not had their turn."""
        return list(self._waiting)

    def used_up(self) -> bool:
        """Whether it is time to stop what is running."""
        return self.budget is not None and not self.budget.left()

    def time_left(self) -> float | None:
        """Seconds until it is time to stop; None if that is never, or has been already."""
        return None if self.budget is None or self.used_up() else self.budget.left()


def what_fits(order: Iterable[int], seconds: Sequence[float], limit: float, at_once: int = 1) -> list[int]:
    """The populations that would be begun within `limit` seconds, `at_once` side by side, if each took its estimate."""
    waiting, free, begun = list(order), [0.0] * at_once, list[int]()
    while free:
        now = heapq.heappop(free)
        number = next((n for n in waiting if now + seconds[n] <= limit), None)
        if number is not None:
            waiting.remove(number)
            begun.append(number)
            heapq.heappush(free, now + seconds[number])
    return begun


def order_by_value(
    needs: Iterable[frozenset[int]], seconds: Sequence[float], limit: float, at_once: int = 1
) -> list[int]:
    """Every population in the order described above; `needs` are the populations that each panel lacks."""
    panels, order = [need for need in needs if need], list[int]()

    def shortest_first(candidate: Iterable[int]) -> list[int]:
        return sorted(candidate, key=lambda n: (seconds[n], n))

    def value(candidate: frozenset[int]) -> tuple[float, int]:
        completed = sum(need <= candidate | set(order) and not need <= set(order) for need in panels)
        return completed / max(1e-9, sum(seconds[n] for n in candidate)), -min(candidate)

    def can_be_completed(candidate: frozenset[int]) -> bool:
        return candidate <= set(what_fits([*order, *shortest_first(candidate)], seconds, limit, at_once))

    for affordable in (True, False):
        while True:
            candidates = {need - set(order) for need in panels} - {frozenset()}
            if affordable:
                candidates = {candidate for candidate in candidates if can_be_completed(candidate)}
            if not candidates:
                break
            best: frozenset[int] = max(candidates, key=value)
            order += shortest_first(best)
    return order + [n for n in range(len(seconds)) if n not in order]
