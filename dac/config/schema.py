"""What can be set: the settings of the training loop, and those of an algorithm with a bonus, with their types.

One set of names serves the command line, TOML files and Python.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import re
import textwrap
import typing
from collections.abc import Mapping
from typing import Any, Literal

from dac.algorithms import ALGORITHMS, BONUSES, METRICS, WithRewardNoise, WithTemperature, owners
from dac.core.types import UsageError
from dac.envs.pace import Pace

MAX_SEED = 2**32 - 1
MAX_MEMBERS = 1_000_000  # a typing error in a range should not fill the memory
MAX_STEPS = 2**31 - 1  # step counters on the device are 32-bit

LOGGERS = ("tensorboard", "wandb", "trackio")
"""Where evaluations can be logged beside metrics.csv; `dac/training/loggers/` has a file for each."""


def counter(default: int, low: int = 1) -> Any:
    """A whole number that a step counter can reach."""
    return dataclasses.field(default=default, metadata={"low": low, "high": MAX_STEPS})


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of the training loop, the same for every algorithm."""

    steps: int = counter(1_000_000)
    """Environment steps per member."""
    envs: int = counter(1)
    """Parallel environments per member."""
    random_steps: int = counter(1000, low=0)
    """Environment steps with uniform actions at the start."""
    update_after: int = counter(1000)
    """Stored transitions before the first update."""
    update_ratio: float = 1.0
    """Updates per environment step."""
    capacity: int = counter(1_000_000)
    """Transitions in the replay buffer."""
    eval_every: int = counter(1000)
    """Environment steps between evaluations."""
    eval_episodes: int = counter(1)
    """Episodes per evaluation, without exploration."""
    replay: Literal["auto", "device", "host"] = "auto"
    """Where the replay buffer is kept: on the device, in host memory, or (auto) on the device if it fits."""
    bonus: str = dataclasses.field(default="none", metadata={"choices": lambda: ("none", *BONUSES)})
    """Intrinsic reward added to the task's; goes with every off-policy algorithm."""
    checkpoint_every: int = counter(20_000, low=0)
    """Environment steps between checkpoints, from which `dac resume` continues; 0 for none."""
    on_nan: Literal["freeze", "stop"] = "freeze"
    """A member that is no longer finite: freeze it at its last good state and go on with the others, or stop."""
    metrics: tuple[str, ...] = dataclasses.field(default=(), metadata={"choices": METRICS, "since": "0.2"})
    """Metrics measured at evaluations beside the algorithm's own, with commas between them."""
    workers: int = dataclasses.field(default=0, metadata={"low": 0, "high": 1024, "since": "0.2"})
    """Processes that step the environments of a Gymnasium task; 0 steps them in this process."""
    eval_limit: int = dataclasses.field(default=10_000, metadata={"low": 1, "high": MAX_STEPS, "since": "0.2"})
    """Steps after which an evaluation cuts an episode whose environment has no shorter time limit."""
    time_limit: int = dataclasses.field(default=0, metadata={"low": 0, "high": MAX_STEPS, "since": "0.2"})
    """Steps after which a time-out ends an episode, in evaluations too; 0 for the task's own time limit alone."""
    frame_skip: int = dataclasses.field(default=1, metadata={"low": 1, "high": 1000, "since": "0.2"})
    """Steps of the environment for which an action is held; they count as one step, and their rewards are summed."""
    log: tuple[str, ...] = dataclasses.field(default=(), metadata={"choices": LOGGERS, "since": "0.2"})
    """Loggers beside metrics.csv, with commas between them: tensorboard, wandb, trackio."""
    init_replay: str = dataclasses.field(
        default="none", metadata={"form": r"none|minari:[\w/-]+-v\d+(@[0-9a-f]{16})?", "since": "0.2"}
    )
    """An offline dataset to learn from beside the run, as minari:ID; random_steps is 0 then, and update_after 1."""
    offline_share: float = dataclasses.field(default=0.5, metadata={"low": 0.01, "high": 1.0, "since": "0.2"})
    """Share of every batch that comes from the dataset of init_replay."""
    devices: int = dataclasses.field(default=0, metadata={"low": 0, "high": 4096, "since": "0.2"})
    """Devices over which the members are spread, GPUs or cores of a CPU; 0 for every GPU, and for the CPU as one."""
    combine: Literal["grid", "zip"] = dataclasses.field(default="grid", metadata={"since": "0.2"})
    """How seeds and lists of numbers make members: every combination (grid), or the first with the first (zip)."""
    preset: Literal["task", "paper"] = dataclasses.field(default="task", metadata={"since": "0.2"})
    """Defaults of this package for the task, or the paper's, on the paper's tasks."""

    @property
    def pace(self) -> Pace:
        """The time limit and the frame skip."""
        return Pace(self.time_limit, self.frame_skip)


@functools.cache
def settings_of(algorithm: str, bonus: str = "none") -> dict[str, tuple[Any, dataclasses.Field]]:
    """Return type and field of every setting of an algorithm with a bonus, by name."""
    return {name: field for owner in owners(algorithm, bonus) for name, field in fields_of(owner).items()}


SWITCHES: dict[str, tuple[type, str, str]] = {
    "temperature": (WithTemperature, "fixed", "for a beta that adapts: give `temperature=adapt`"),
    "reward_noise": (
        WithRewardNoise,
        "none",
        "for noise on rewards: give `reward_noise=fresh` or `reward_noise=stored`",
    ),
}
"""Settings that switch a part on: the part, the value that leaves it out, and what its own settings are for."""


def idle_settings(hyper: Mapping[str, Any]) -> dict[str, str]:
    """Return the float settings that nothing reads, because their part is switched off, and what they are for."""
    return {
        name: purpose
        for switch, (part, off, purpose) in SWITCHES.items()
        if hyper.get(switch, off) == off
        for name, (kind, _) in fields_of(part).items()
        if kind is float
    }


def owners_of(setting: str) -> list[str]:
    """Return the algorithms that have a setting, or else the bonuses that have it."""
    algorithms = [name for name in ALGORITHMS if setting in settings_of(name)]
    return algorithms or [f"`bonus={name}`" for name, bonus in BONUSES.items() if setting in fields_of(bonus)]


def describe(owner: type) -> list[tuple[str, Any, str, bool]]:
    """Return name, default, explanation (the string under it) and whether it is a float, for each field of a class."""
    documents = _documents(owner)
    return [(n, f.default, documents.get(n, ""), kind is float) for n, (kind, f) in fields_of(owner).items()]


@functools.cache
def _documents(owner: type) -> dict[str, str]:
    """The string under each field of a class and of those it inherits from; the class's own come first."""
    found: dict[str, str] = {}
    for part in reversed(owner.__mro__):
        if not part.__module__.startswith("dac.") and part is not owner:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, following in zip(body.body, body.body[1:], strict=False):
            if not (isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr)):
                continue
            if isinstance(following.value, ast.Constant) and isinstance(node.target, ast.Name):
                found[node.target.id] = inspect.cleandoc(str(following.value.value))
    return found


@functools.cache
def fields_of(owner: type) -> dict[str, tuple[Any, dataclasses.Field]]:
    """Type and field of every setting of a class by name, its own before those it shares with other classes."""
    hints = typing.get_type_hints(owner)

    def shared(field: dataclasses.Field) -> bool:
        return inspect.isabstract(next(c for c in owner.__mro__ if field.name in inspect.get_annotations(c)))

    settings = [f for f in dataclasses.fields(owner) if f.default is not dataclasses.MISSING]
    return {f.name: (hints[f.name], f) for f in sorted(settings, key=shared)}


def check(name: str, value: Any, kind: Any, field: dataclasses.Field, sweep: bool, repeats: bool = False) -> Any:
    """Return the value in the setting's own type, or raise an error that says what is accepted.

    With `sweep` a float may be a list, which may hold a value twice with `repeats`.
    """
    if kind is float:
        if sweep and isinstance(value, list | tuple):
            if not value:
                raise UsageError(f"{name} is an empty list; give at least one number")
            values = tuple(check(name, v, float, field, sweep=False) for v in value)
            if len(set(values)) != len(values) and not repeats:
                raise UsageError(f"{name} holds the same value twice: {', '.join(f'{v:g}' for v in values)}")
            return values
        low, high = field.metadata.get("low", 0.0), field.metadata.get("high", math.inf)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or math.isnan(value) or not low <= value <= high:
            more = " or 'adapt'" if name == "alpha" else ""
            raise UsageError(f"{name} must be a number {_range(low, high)}{more}, not {value!r}")
        return float(value)
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be true or false, not {value!r}")
        return value
    if kind is int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{name} must be a whole number, not {value!r}")
        low, high = field.metadata.get("low", -math.inf), field.metadata.get("high", math.inf)
        if not low <= value <= high:
            raise UsageError(f"{name} must be from {low} to {high}, not {value}")
        return value
    if kind == tuple[str, ...]:
        names = tuple(value) if isinstance(value, list | tuple) else (value,)
        for chosen in names:
            if not isinstance(chosen, str) or chosen not in field.metadata["choices"]:
                accepted = ", ".join(field.metadata["choices"])
                raise UsageError(f"{name} must be some of {accepted}, not {chosen!r}")
        return tuple(dict.fromkeys(names))
    if typing.get_origin(kind) is tuple:
        sizes = tuple(value) if isinstance(value, list | tuple) else ()
        if not sizes or not all(isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 65536 for v in sizes):
            raise UsageError(f"{name} must be a list of layer sizes such as 256,256, not {value!r}")
        return sizes
    if "form" in field.metadata:
        if not isinstance(value, str) or not re.fullmatch(field.metadata["form"], value):
            raise UsageError(f"{name} must be none or minari:ID, with an ID such as D4RL/door/human-v2, not {value!r}")
        return value
    choices = field.metadata.get("choices") or typing.get_args(kind)
    choices = tuple(choices() if callable(choices) else choices)
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "of any size"
    return f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
