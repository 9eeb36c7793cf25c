"""Defaults that depend on the algorithm and the task, with the source of every number.

What a user gives comes first, then the most special preset here, then the task's own defaults (`registry.py`), then
those of the algorithm's fields.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping
from typing import Any

from dac.core.errors import UsageError
from dac.tasks.registry import find_task


@dataclasses.dataclass(frozen=True)
class Preset:
    """Defaults for a pair of algorithm and task."""

    settings: Mapping[str, Any]
    """The settings by name, each with its value."""
    source: str
    """Where the numbers come from."""


_PENDULUM = "tuned here: a small task needs small networks and larger steps"
PRESETS: dict[tuple[str, str], Preset] = {
    ("td3", "*"): Preset(
        {"random_steps": 25_000, "update_after": 25_000},
        "the authors' code (github.com/sfujim/TD3): uniform actions, and nothing learnt, for 25000 steps",
    ),
    ("td3", "target"): Preset(
        {"random_steps": 1000, "update_after": 1000},
        "the whole run has 3000 steps, fewer than those of the authors' start",
    ),
    ("td3", "gym:Pendulum-v1"): Preset(
        {
            "steps": 20_000,
            "random_steps": 1000,
            "update_after": 1000,
            "learning_rate": 1e-3,
            "hidden": (64, 64),
            "batch_size": 128,
        },
        _PENDULUM,
    ),
    ("sql", "gym:Pendulum-v1"): Preset(
        {
            "steps": 20_000,
            "beta": 1.0,
            "learning_rate": 1e-3,
            "target_every": 200,
            "hidden": (64, 64),
            "batch_size": 64,
        },
        f"{_PENDULUM}; beta 0.1 learns more slowly, and copies 1000 updates apart would be 19 in the run",
    ),
    ("sac-div", "gym:Pendulum-v1"): Preset(
        {
            "steps": 20_000,
            "eval_episodes": 5,
            "hidden": (64, 64),
            "batch_size": 128,
            "learning_rate": 1e-3,
        },
        "as for DAC and SAC there (results/pendulum/): a small task needs small networks and larger steps",
    ),
    ("ppo", "*"): Preset({"random_steps": 0}, "on-policy: a uniform action is not the policy's"),
    ("ppo", "gym:Pendulum-v1"): Preset(
        {
            "steps": 200_000,
            "envs": 4,
            "minibatches": 8,
            "gamma": 0.98,
            "value_clip": float("inf"),
        },
        "environments as in RL Zoo's ppo.yml, which explores with gSDE; its gamma of 0.9 and rate of 1e-3 leave one "
        "seed in five stuck without. Found on 4 seeds: gamma 0.95 and 0.98 with minibatches of 256 do not, and no "
        "value clip (the default of Stable-Baselines3) is faster",
    ),
    ("acktr", "*"): Preset(
        {"random_steps": 0, "envs": 10},
        "uniform actions are not the policy's; ten environments give a rollout in 250 steps of the loop",
    ),
    ("acktr", "target"): Preset(
        {
            "steps": 40_000,
            "eval_every": 5000,
            "rollout": 500,
            "target_kl": 0.02,
            "policy_clip": 0.1,
            "step_size": 0.3,
            "hidden": (16, 16),
        },
        "one-step episodes: shorter rollouts and longer steps do, and the task's 3000 steps would be a single update",
    ),
}
"""By algorithm and task; "*" is every task."""

for _robot, _scale in {"Hopper": 30, "HalfCheetah": 30, "Walker2d": 10, "Ant": 300}.items():
    for _task in (_robot, f"Delayed{_robot}"):
        PRESETS["sql", _task] = Preset(
            {"beta": 1 / _scale},
            f"the authors' code (github.com/haarnoja/softqlearning) multiplies rewards by {_scale}; "
            "sparse tasks keep the task's",
        )

PAPER_ALGORITHMS = ("dac", "sac", "sac-div", "rnd", "maxent-state")
"""What the paper compares."""
PAPER: dict[str, Preset] = {
    "maze": Preset({"clip": 1.0}, "Eq. C.1, Han & Sung 2021; the default here is none, which visits more cells"),
    **{
        name: Preset({}, "the defaults are the paper's")
        for name in (
            *(
                f"{kind}{robot}"
                for kind in ("Sparse", "Delayed")
                for robot in ("HalfCheetah", "Hopper", "Walker2d", "Ant")
            ),
            "HumanoidStandup",
        )
    },
}
"""The paper's tasks, each with what it has otherwise than the defaults here: `preset=paper`."""


def paper(algorithm: str, task: str) -> dict[str, Any]:
    """Return the defaults that the paper has and the presets here have not."""
    if algorithm not in PAPER_ALGORITHMS:
        raise UsageError(f"preset=paper is for {', '.join(PAPER_ALGORITHMS)}, not for {algorithm}")
    if task not in PAPER:
        raise UsageError(f"preset=paper is for the paper's tasks ({', '.join(PAPER)}), not for {task}")
    return dict(PAPER[task].settings)


def preset(algorithm: str, task: str) -> dict[str, Any]:
    """Return every default for an algorithm on a task; the algorithm may not have all of these settings."""
    found = find_task(task)
    special = [PRESETS[key].settings for key in ((algorithm, "*"), (algorithm, task)) if key in PRESETS]
    return functools.reduce(operator.or_, map(dict, special), {**found.training, **found.hyper})
