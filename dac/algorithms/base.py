"""The contract between an algorithm and everything else.

An algorithm is a module whose float fields are pytree leaves: hyperparameters that may differ per member of a
population without compiling anew. What changes a shape or a Python branch is a static field. It is written for one
member; it never sees the member axis, an environment or the ring.
"""

from __future__ import annotations

import abc
import math
from typing import Any, Generic, TypeVar

import equinox as eqx

from dac.networks import AbstractPolicy
from dac.types import EnvSpec, Metrics, PRNGKey, Transition

State = TypeVar("State", bound=eqx.Module)


class AbstractAlgorithm(eqx.Module, Generic[State]):
    """init, policy, update: all an algorithm has to say."""

    batch_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        """Fresh networks and optimisers."""

    @abc.abstractmethod
    def policy(self, state: State) -> AbstractPolicy:
        """The part of the state that acts."""

    @abc.abstractmethod
    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """One gradient step on a batch, and what it measured on the way."""


def static(default: Any) -> Any:
    """A field that is part of the program, not of the data: another value is another compilation."""
    return eqx.field(default=default, static=True)


def number(default: float, low: float = -math.inf, high: float = math.inf) -> Any:
    """A hyperparameter in [low, high]: a leaf, so it may differ per member of one compiled program."""
    return eqx.field(default=default, metadata={"low": low, "high": high})
