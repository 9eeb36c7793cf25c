"""The contract of an engine: it starts populations in processes of their own, and says what became of each.

A run directory is the truth about a population: its configuration, its checkpoints, its progress. An engine moves no
results and decides nothing; it has room for so many populations, begins one, and reports how it ended. What comes
next, which is tried again and what the study shows is up to the driver.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from dac.experiments.plan import Job


@dataclasses.dataclass(frozen=True)
class Ended:
    """The process of a population saved and ended by itself: finished, or stopped when asked to."""

    number: int


@dataclasses.dataclass(frozen=True)
class Failed:
    """A population that failed for a reason that a second try would meet again: its settings, its environment."""

    number: int
    why: str


@dataclasses.dataclass(frozen=True)
class Lost:
    """The process of a population is gone, with its worker or node: its last checkpoint can go on elsewhere."""

    number: int
    why: str


Event: TypeAlias = Ended | Failed | Lost


class AbstractEngine(abc.ABC):
    """A place where populations are trained. A number names a population, from its beginning to its event."""

    name: str
    """The word after `--engine`."""

    @abc.abstractmethod
    def room(self) -> int:
        """Return how many populations could begin now; more may be begun if the engine queues them itself."""

    @abc.abstractmethod
    def begin(self, number: int, job: Job) -> None:
        """Start `dac train`, or `dac resume` where the run directory has a configuration, and return at once."""

    @abc.abstractmethod
    def wait(self, seconds: float) -> Sequence[Event]:
        """Return what happened since the last call; wait at most this long for something to happen."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ask all populations to save and end; their events still come from `wait`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave nothing behind: end what still runs, give back what was taken."""
