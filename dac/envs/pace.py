"""How an agent's steps relate to those of its environment. What makes it so is elsewhere, and slow to load."""

from __future__ import annotations

import dataclasses
import math

from dac.core.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Pace:
    """A time limit and a frame skip. What counts as a step everywhere else is one action of the agent."""

    limit: int = 0
    """Actions after which a time-out ends an episode; 0 for the task's own time limit alone."""
    skip: int = 1
    """Steps of the environment for which an action is held."""

    def horizon(self, own: int) -> int:
        """Return the actions after which a time-out ends an episode whose environment ends it after `own` steps."""
        actions = math.ceil(own / self.skip)
        if self.limit > actions:
            of = f" of {self.skip} frames" if self.skip > 1 else ""
            raise UsageError(
                f"time_limit must not be beyond the task's own, which ends an episode after {actions} steps{of}; "
                f"got {self.limit}"
            )
        return self.limit or actions
