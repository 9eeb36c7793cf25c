"""What an algorithm has to know of an environment. It lives apart so that worker processes do not load JAX."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The sizes of an environment's observations and actions."""

    obs_size: int
    """Entries of a flattened observation."""
    action_size: int
    """Entries of an action."""
