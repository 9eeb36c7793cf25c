"""Metrics on top of any off-policy algorithm, as a bonus is a reward on top of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
from jaxtyping import Array, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch
from dac.core.keys import METRIC, side_key
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition

Metric: TypeAlias = Callable[[AbstractPolicy, Transition, PRNGKey], Scalar]
"""A number computed from the policy, a batch of the replay buffer and a key."""


class WithMetrics(AbstractAround[Any]):
    """An algorithm that measures more than its own metrics; its state and its updates are the algorithm's own."""

    algorithm: AbstractOffPolicy
    """What learns."""
    metrics: tuple[tuple[str, Metric], ...] = eqx.field(static=True)
    """Name and function of every metric that is measured besides."""

    @classmethod
    def around(cls, algorithm: AbstractOffPolicy, metrics: Mapping[str, Metric]) -> WithMetrics:
        """Return the algorithm with these metrics beside its own."""
        return cls(algorithm, tuple(metrics.items()))

    def replace(self, **values: Any) -> WithMetrics:
        return type(self)(self.algorithm.replace(**values), self.metrics)

    def init(self, key: PRNGKey, spec: EnvSpec) -> Any:
        return self.algorithm.init(key, spec)

    def policy(self, state: Any) -> AbstractPolicy:
        return self.algorithm.policy(state)

    def update(self, state: Any, batch: Batch, key: PRNGKey) -> tuple[Any, Metrics]:
        new_state, measured = self.algorithm.update(state, batch, key)
        policy, metric_key = self.algorithm.policy(state), side_key(key, METRIC)
        return new_state, measured | {name: metric(policy, batch, metric_key) for name, metric in self.metrics}

    def refresh(self, state: Any, latest: Transition, count: Int[Array, ""]) -> Any:
        return self.algorithm.refresh(state, latest, count)
