"""The contract between an algorithm and everything else.

An algorithm is a module whose float fields are pytree leaves: hyperparameters that may differ per member of a
population without compiling anew. What changes a shape or a Python branch is a static field. It is written for one
member; it never sees the member axis, an environment or the ring.

There are two kinds. `AbstractOffPolicy` learns from batches drawn out of the ring at every step; `AbstractOnPolicy`
from all transitions of the latest stretch of time, in order, whenever one is complete.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, Generic, Self, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Int

from dac.networks import AbstractPolicy
from dac.types import EnvSpec, Metrics, PRNGKey, Transition

State = TypeVar("State", bound=eqx.Module)


class AbstractAlgorithm(eqx.Module, Generic[State]):
    """What both kinds have in common."""

    @abc.abstractmethod
    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        """Fresh networks and optimisers."""

    @abc.abstractmethod
    def policy(self, state: State) -> AbstractPolicy:
        """The part of the state that acts."""

    def replace(self, **values: float) -> Self:
        """The algorithm with other values for some of its numbers."""
        return dataclasses.replace(self, **values)


class Recent(eqx.Module):
    """A batch of the latest transitions only."""

    batch: Transition
    whole: Bool[Array, ""]
    """Whether the window still holds everything the ring does, so that a recent batch is like any other."""


class AbstractOffPolicy(AbstractAlgorithm[State]):
    """Learns from batches of the ring, one gradient step each."""

    batch_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def update(
        self, state: State, batch: Transition, key: PRNGKey, recent: Recent | None = None
    ) -> tuple[State, Metrics]:
        """One gradient step on a batch, and what it measured on the way. `recent` is None unless it is asked for."""

    @property
    def recent(self) -> int:
        """How many of the latest transitions a second batch is drawn from; 0 for no second batch."""
        return 0

    @property
    def refresh_every(self) -> int:
        """Environment steps between calls of `refresh`; 0 for none."""
        return 0

    @property
    def refresh_window(self) -> int:
        """How many of the latest transitions `refresh` is to see."""
        return 0

    def refresh(self, state: State, latest: Transition, count: Int[Array, ""]) -> State:
        """Look at the latest transitions as a whole, newest first; of the rows given, `count` hold something."""
        del latest, count
        return state


class AbstractOnPolicy(AbstractAlgorithm[State]):
    """Learns from what its present policy did."""

    rollout: eqx.AbstractVar[int]
    """Environment steps between two updates, over all parallel environments of the member."""

    @abc.abstractmethod
    def update(self, state: State, rollout: Transition, key: PRNGKey) -> State:
        """Learn from a whole rollout, its axes (time, env)."""

    @abc.abstractmethod
    def metrics(self, state: State) -> Metrics:
        """What the last update measured."""


def static(default: Any) -> Any:
    """A field that is part of the program, not of the data: another value is another compilation."""
    return eqx.field(default=default, static=True)


def count(default: int, low: int = 1, high: int = 1_000_000) -> Any:
    """A static whole number in [low, high]."""
    return eqx.field(default=default, static=True, metadata={"low": low, "high": high})


def number(default: float, low: float = -math.inf, high: float = math.inf, *, follows: str | None = None) -> Any:
    """A hyperparameter in [low, high]: a leaf, so it may differ per member of one compiled program.

    With `follows`, it is the value of that training setting unless it is given.
    """
    return eqx.field(default=default, metadata={"low": low, "high": high, "follows": follows})
