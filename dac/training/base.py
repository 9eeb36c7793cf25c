"""What a run may ask of a training loop."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm
from dac.population import Member
from dac.training.evaluate import Evaluation
from dac.training.member import metric_names, policies_of
from dac.training.schedule import Schedule
from dac.types import EnvSpec


class AbstractLoop(abc.ABC):
    """A population in training. `step` counts iterations."""

    members: Sequence[Member]
    schedule: Schedule
    spec: EnvSpec
    step: int
    _algorithms: AbstractAlgorithm
    """Stacked over members, as all that follows."""
    _keys: Key[Array, " member"]

    @abc.abstractmethod
    def advance(self, until: int) -> None:
        """Train up to iteration `until`."""

    @abc.abstractmethod
    def evaluate(self, episodes: int) -> Evaluation:
        """Run deterministic episodes; training is not touched."""

    @abc.abstractmethod
    def measure(self) -> dict[str, np.ndarray]:
        """The algorithm's own metrics now, one value per member."""

    @property
    @abc.abstractmethod
    def states(self) -> PyTree:
        """The algorithm's states, stacked over members."""

    def metric_names(self) -> list[str]:
        """The keys of `measure`, known before anything was measured."""
        return metric_names(self._algorithms, self.states, self._keys, self.spec)

    def policies(self) -> PyTree:
        """The policies, stacked over members."""
        return policies_of(self._algorithms, self.states)

    @abc.abstractmethod
    def visited(self) -> np.ndarray | None:
        """Number of distinct cells entered, per member, or None where the task has no grid."""

    @abc.abstractmethod
    def visits(self) -> np.ndarray | None:
        """How often each cell was entered, (member, cell), or None where that is not counted."""

    @abc.abstractmethod
    def first_visits(self) -> np.ndarray | None:
        """Environment step of the first entry into each cell, -1 for never, or None."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Return when all dispatched work is done."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release environments and memory."""
