"""Defaults that depend on the algorithm and the task, with the source of every number.

What a user gives comes first, then the most special preset here, then the task's own defaults (`tasks.py`), then those
of the algorithm's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dac.tasks import find_task

PRESETS: dict[tuple[str, str], Mapping[str, Any]] = {
    # the authors' code (github.com/sfujim/TD3): uniform actions, and nothing learnt, for 25000 steps
    ("td3", "*"): {"random_steps": 25_000, "update_after": 25_000},
    ("td3", "target"): {"random_steps": 1000, "update_after": 1000},  # the whole run has 3000 steps
    # tuned here: small networks and larger steps
    ("td3", "gym:Pendulum-v1"): {
        "steps": 20_000,
        "random_steps": 1000,
        "update_after": 1000,
        "learning_rate": 1e-3,
        "hidden": (64, 64),
        "batch_size": 128,
    },
}
"""By algorithm and task; "*" is every task."""


def preset(algorithm: str, task: str) -> dict[str, Any]:
    """Every default for a pair; some of them may be settings that this algorithm does not have."""
    found = find_task(task)
    general, special = PRESETS.get((algorithm, "*"), {}), PRESETS.get((algorithm, task), {})
    return {**found.training, **found.hyper, **general, **special}
