"""What the two training loops have in common: the schedule, and what a run may ask of a loop."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import PyTree

from dac.population import Member
from dac.training.evaluate import Evaluation
from dac.types import EnvSpec, UsageError


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When what happens. `step` everywhere else counts loop iterations; one iteration is `envs` environment steps."""

    steps: int
    """Environment steps per member."""
    envs: int
    """Parallel environments per member."""
    random_steps: int
    """Environment steps with uniform actions at the start."""
    update_after: int
    """Stored transitions before the first update."""
    update_ratio: float
    """Updates per environment step."""
    capacity: int
    """Transitions in the ring."""
    eval_every: int
    """Environment steps between evaluations."""

    def __post_init__(self) -> None:
        updates = self.update_ratio * self.envs
        if not math.isfinite(updates) or updates < 1 or abs(updates - round(updates)) > 1e-9:
            raise UsageError(
                f"update_ratio {self.update_ratio:g} with {self.envs} environments per member is {updates:g} updates "
                "per iteration; it must be a whole number of at least 1"
            )
        for name in ("steps", "eval_every", "capacity"):
            value = getattr(self, name)
            if value % self.envs:
                raise UsageError(f"{name} {value} is not a multiple of the {self.envs} environments per member")

    @property
    def iterations(self) -> int:
        return self.steps // self.envs

    @property
    def updates_per_iteration(self) -> int:
        return round(self.update_ratio * self.envs)

    @property
    def first_update(self) -> int:
        """The first iteration that learns: `update_after` transitions are in the ring by then."""
        return max(1, math.ceil(self.update_after / self.envs))

    @property
    def eval_iterations(self) -> int:
        return self.eval_every // self.envs

    @property
    def chunk(self) -> int:
        """Iterations per dispatch: a divisor of all boundaries where there is one, so that one length serves a run.

        At most 500, so that the progress bar moves and a signal is answered soon.
        """
        common = math.gcd(self.eval_iterations, self.iterations, self.first_update)
        divisor = max(n for n in range(1, min(common, 500) + 1) if common % n == 0)
        return divisor if divisor >= 50 else min(500, self.eval_iterations)

    def updates(self, iterations: int) -> int:
        """Gradient steps taken after so many iterations."""
        return max(0, iterations - self.first_update) * self.updates_per_iteration


class AbstractLoop(abc.ABC):
    """A population in training. `step` counts iterations."""

    members: Sequence[Member]
    schedule: Schedule
    spec: EnvSpec
    step: int

    @abc.abstractmethod
    def advance(self, until: int) -> None:
        """Train up to iteration `until`."""

    @abc.abstractmethod
    def evaluate(self, episodes: int) -> Evaluation:
        """Run deterministic episodes; training is not touched."""

    @abc.abstractmethod
    def measure(self) -> dict[str, np.ndarray]:
        """The algorithm's own metrics now, one value per member."""

    @abc.abstractmethod
    def metric_names(self) -> list[str]:
        """The keys of `measure`, known before anything was measured."""

    @abc.abstractmethod
    def policies(self) -> PyTree:
        """The policies, stacked over members."""

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
