"""When what happens in a run."""

from __future__ import annotations

import dataclasses
import math

from dac.core.types import UsageError


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
    rollout: int = 0
    """For what learns on-policy: environment steps between updates, and the size of the ring. 0 for off-policy."""
    offline_share: float = 0.0
    """Share of every batch that comes from a dataset; 0 where there is none."""

    def __post_init__(self) -> None:
        if self.rollout:
            object.__setattr__(self, "capacity", self.rollout)
        updates = self.update_ratio * self.envs
        if not math.isfinite(updates) or updates < 1 or abs(updates - round(updates)) > 1e-9:
            raise UsageError(
                f"update_ratio {self.update_ratio:g} with {self.envs} environments per member is {updates:g} updates "
                "per iteration; it must be a whole number of at least 1"
            )
        for name in ("steps", "eval_every", "rollout" if self.rollout else "capacity"):
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
        """The first iteration that learns: `update_after` transitions, or a whole rollout, are in the ring by then."""
        return max(1, math.ceil((self.rollout or self.update_after) / self.envs))

    def learns(self, step: int) -> bool:
        """Whether iteration `step` begins with, or contains, an update."""
        if self.rollout:
            return step > 0 and step % (self.rollout // self.envs) == 0
        return step >= self.first_update

    @property
    def eval_iterations(self) -> int:
        return self.eval_every // self.envs

    @property
    def program(self) -> Schedule:
        """The schedule without what a compiled step does not depend on: runs that differ only in that share it."""
        return dataclasses.replace(self, steps=self.envs, eval_every=self.envs, update_after=1)

    @property
    def chunk(self) -> int:
        """Iterations per dispatch: a divisor of all boundaries where there is one, so that one length serves a run.

        At most 500, so that the progress bar moves and a signal is answered soon.
        """
        starts = 0 if self.rollout else self.first_update  # on-policy, one program serves from the first step on
        common = math.gcd(self.eval_iterations, self.iterations, starts)
        divisor = max(n for n in range(1, min(common, 500) + 1) if common % n == 0)
        return divisor if divisor >= 50 else min(500, self.eval_iterations)

    def updates(self, iterations: int) -> int:
        """Updates taken after so many iterations."""
        if self.rollout:
            return max(0, iterations - 1) * self.envs // self.rollout
        return max(0, iterations - self.first_update) * self.updates_per_iteration
