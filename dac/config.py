"""A run in full: what a user gave, completed by the defaults of task and algorithm, checked before compute is spent.

One set of names serves the command line, TOML files and Python. Every float setting of an algorithm may be a list:
the run then holds every combination of every list with every seed.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import hashlib
import inspect
import math
import textwrap
import tomllib
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dac.algorithms import ALGORITHMS, BONUSES, AbstractAlgorithm, AbstractOnPolicy, make_algorithm, owners
from dac.population import Member, grid
from dac.presets import preset
from dac.tasks import find_task
from dac.training.schedule import Schedule
from dac.types import UsageError

MAX_SEED = 2**32 - 1
MAX_MEMBERS = 1_000_000  # a typing error in a range should not fill the memory
MAX_STEPS = 2**31 - 1  # step counters on the device are 32-bit


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of the loop, the same for every algorithm."""

    steps: int = 1_000_000
    """Environment steps per member."""
    envs: int = 1
    """Parallel environments per member."""
    random_steps: int = 1000
    """Environment steps with uniform actions at the start."""
    update_after: int = 1000
    """Stored transitions before the first update."""
    update_ratio: float = 1.0
    """Updates per environment step."""
    capacity: int = 1_000_000
    """Transitions in the replay ring."""
    eval_every: int = 1000
    """Environment steps between evaluations."""
    eval_episodes: int = 1
    """Episodes per evaluation, without exploration."""
    replay: Literal["auto", "device", "host"] = "auto"
    """Where the ring is kept: on the device, in host memory, or on the device if it fits."""
    bonus: Literal["none", "rnd", "maxent-state"] = "none"
    """Intrinsic reward added to the task's; goes with every off-policy algorithm."""
    checkpoint_every: int = 20_000
    """Environment steps between checkpoints, from which `dac resume` continues; 0 for none."""
    on_nan: Literal["freeze", "stop"] = "freeze"
    """A member that is no longer finite: freeze it at its last good state and go on with the others, or stop."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    algorithm: str
    task: str
    seeds: tuple[int, ...]
    hyper: Mapping[str, Any]
    training: Training

    def members(self) -> list[Member]:
        swept = {name: value for name, value in self.hyper.items() if name in self._floats()}
        lists = {n: tuple(v) if isinstance(v, list | tuple) else (v,) for n, v in swept.items()}
        return grid(self.seeds, lists)

    def alone(self, member: Member) -> RunConfig:
        """The run that holds this member and no other."""
        return dataclasses.replace(self, seeds=(member.seed,), hyper={**self.hyper, **member.hyper})

    def floats(self) -> dict[str, Any]:
        """The hyperparameters in which members of one program may differ."""
        return {name: self.hyper[name] for name in self._floats()}

    def program(self) -> str:
        """Tells runs that can share a compiled program and a schedule from others."""
        floats = self._floats()
        static = {name: value for name, value in self.hyper.items() if name not in floats}
        return repr((self.algorithm, self.task, sorted(static.items()), self.training))

    def work(self) -> str:
        """Tells runs whose steps cost the same from others: not the length counts, nor the values of floats."""
        floats, training = self._floats(), self.training
        static = {name: value for name, value in self.hyper.items() if name not in floats}
        loop = training.envs, training.update_ratio, training.bonus
        return repr((self.algorithm, self.task, sorted(static.items()), loop))

    def one_at_a_time(self) -> RunConfig:
        """The same with one environment per member: what differs in that alone is shown in one figure."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, envs=1))

    def covers(self, other: RunConfig) -> bool:
        """Whether this run holds what the other would give: the same, and at least as long."""
        if self.fingerprint() != other.fingerprint():
            return False
        mine, wanted = self.training.steps, other.training.steps
        return mine == wanted if self.follows_length() else mine >= wanted

    def follows_length(self) -> bool:
        """Whether something, such as the step size, depends on the number of steps: part of a run is no shorter run."""
        return bool(self._followers())

    def varied(self) -> list[str]:
        """The hyperparameters that differ between members."""
        floats = self._floats()
        return [n for n, v in self.hyper.items() if n in floats and isinstance(v, list | tuple) and len(v) > 1]

    def make_algorithm(self) -> AbstractAlgorithm:
        """The algorithm with its static settings; what members differ in is put in by the population."""
        floats = self._floats()
        values = {n: v for n, v in self.hyper.items() if n not in floats}
        return make_algorithm(self.algorithm, self.training.bonus, values)

    def _floats(self) -> list[str]:
        return [n for n, (kind, _) in settings_of(self.algorithm, self.training.bonus).items() if kind is float]

    def with_steps(self, steps: int) -> RunConfig:
        """The same run, longer or shorter; what follows the number of steps follows it."""
        before = self.training.steps
        given = dict(self.hyper) | dataclasses.asdict(self.training) | {"steps": steps}
        for name in self._followers():
            if given[name] == before:
                del given[name]
        return resolve(self.algorithm, self.task, self.seeds, given)

    def _followers(self) -> list[str]:
        settings = settings_of(self.algorithm, self.training.bonus)
        return [n for n, (_, field) in settings.items() if field.metadata.get("follows") == "steps"]

    def fingerprint(self) -> str:
        """Tells this run's checkpoints from those of others; a run that is only longer is the same."""
        neutral = dataclasses.asdict(self.training) | {"steps": 1, "checkpoint_every": 0, "on_nan": "freeze"}
        neutral |= {"eval_every": 1, "eval_episodes": 1, "replay": "auto"}
        followers = self._followers()
        hyper = {n: v for n, v in self.hyper.items() if n not in followers}
        text = repr((self.algorithm, self.task, self.seeds, sorted(hyper.items()), sorted(neutral.items())))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def schedule(self) -> Schedule:
        t = self.training
        # a ring larger than the run would hold nothing but zeros
        capacity = math.ceil(min(t.capacity, t.steps) / t.envs) * t.envs
        on_policy = issubclass(ALGORITHMS[self.algorithm].algorithm, AbstractOnPolicy)
        rollout = self.hyper["rollout"] if on_policy else 0
        ratio = 1 if on_policy else t.update_ratio
        return Schedule(t.steps, t.envs, t.random_steps, t.update_after, ratio, capacity, t.eval_every, rollout)

    def to_toml(self) -> str:
        lines = [f"algorithm = {_toml(self.algorithm)}", f"task = {_toml(self.task)}", f"seeds = {_toml(self.seeds)}"]
        lines += ["", "[training]"] + [f"{n} = {_toml(v)}" for n, v in dataclasses.asdict(self.training).items()]
        lines += ["", "[hyper]"] + [f"{n} = {_toml(v)}" for n, v in self.hyper.items()]
        return "\n".join(lines) + "\n"


def resolve(
    algorithm: str | None = None,
    task: str | None = None,
    seeds: Iterable[int] | int | str | None = None,
    settings: Mapping[str, Any] | None = None,
    file: Path | None = None,
) -> RunConfig:
    """Complete and check a run. What is given here comes before the file, the file before the task, the task before
    the algorithm's own defaults."""
    given: dict[str, Any] = {}
    if file is not None:
        table = read_toml(file)
        algorithm = algorithm or table.get("algorithm")
        task = task or table.get("task")
        seeds = table.get("seeds") if seeds is None else seeds
        for section in ("training", "hyper"):
            part = table.pop(section, {})
            if not isinstance(part, dict):
                raise UsageError(f"{file}: {section} must be a table")
            given |= part
        unknown = sorted(set(table) - {"algorithm", "task", "seeds"})
        if unknown:
            raise UsageError(
                f"{file}: unknown key {unknown[0]!r} (accepted: algorithm, task, seeds, [training], [hyper])"
            )
    given |= settings or {}
    if algorithm is None or task is None:
        raise UsageError("an algorithm and a task are needed, for example: dac train dac maze")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise UsageError(
            f"unknown algorithm {algorithm!r}{_close(algorithm, ALGORITHMS)} (accepted: {', '.join(ALGORITHMS)})"
        )
    if not isinstance(task, str):
        raise UsageError(f"task must be a name, not {task!r}")
    find_task(task)
    if given.get("alpha") == "adapt":  # the paper's name for the state-dependent alpha
        del given["alpha"]
        given["adapt"] = True
    defaults = preset(algorithm, task)
    values = {"bonus": ALGORITHMS[algorithm].bonus} | defaults | given
    loop_fields = _fields(Training)
    bonus = _check("bonus", values["bonus"], *loop_fields["bonus"], sweep=False)
    fields = settings_of(algorithm, bonus)
    for name in given:
        if name not in fields and name not in loop_fields:
            accepted = [*loop_fields, *fields]
            raise UsageError(
                f"unknown setting {name!r} for {algorithm}{_close(name, accepted)} (accepted: {', '.join(accepted)})"
            )
    loop = {n: _check(n, values.get(n, f.default), kind, f, sweep=False) for n, (kind, f) in loop_fields.items()}
    hyper = {}
    for name, (kind, field) in fields.items():
        follows = field.metadata.get("follows")
        default = field.default if follows is None else loop[follows]
        hyper[name] = _check(name, values.get(name, default), kind, field, sweep=kind is float)
    for name in ("steps", "envs", "update_after", "capacity", "eval_every", "eval_episodes"):
        if not 1 <= loop[name] <= MAX_STEPS:
            raise UsageError(f"{name} must be from 1 to {MAX_STEPS}, not {loop[name]}")
    for name in ("random_steps", "checkpoint_every"):
        if not 0 <= loop[name] <= MAX_STEPS:
            raise UsageError(f"{name} must be from 0 to {MAX_STEPS}, not {loop[name]}")
    training = Training(**loop)
    config = RunConfig(algorithm, task, parse_seeds(0 if seeds is None else seeds), hyper, training)
    if config.schedule().rollout and training.random_steps:  # the schedule checks that the parts fit together
        raise UsageError(f"random_steps must be 0 for {algorithm}, which learns from what its own policy did")
    config.make_algorithm()
    return config


def parse_seeds(seeds: Iterable[int] | int | str) -> tuple[int, ...]:
    """`7`, `0:30` (30 not included) or `1,5,9`; distinct and not negative."""
    accepted = f"accepted: 7, 0:30 or 1,5,9; distinct whole numbers from 0 to {MAX_SEED}"
    try:
        if isinstance(seeds, str):
            if ":" in seeds:
                start, stop = (int(part) for part in seeds.split(":"))
                values = tuple(range(start, stop)) if stop <= MAX_SEED and stop - start <= MAX_MEMBERS else ()
            else:
                values = tuple(int(part) for part in seeds.split(","))
        elif isinstance(seeds, int):
            values = (seeds,)
        else:
            values = tuple(seeds)
    except (ValueError, TypeError):
        values = ()
    whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= MAX_SEED for v in values)
    if not values or not whole or len(set(values)) != len(values):
        raise UsageError(f"bad seeds {seeds!r} ({accepted})")
    return values


def parse_text(name: str, text: str, algorithm: str) -> Any:
    """A value given on the command line, by the type of the setting it is for."""
    known = _fields(Training) | settings_of(algorithm)
    for bonus in BONUSES:
        known = known | settings_of(algorithm, bonus)
    kind = known.get(name, (str, None))[0]
    parts = text.split(",")
    try:
        if kind is float:
            return [float(part) for part in parts] if len(parts) > 1 else float(text)
        if kind is int:
            return int(text.replace("_", ""))
        if kind is bool:
            return {"true": True, "false": False, "yes": True, "no": False}[text.lower()]
        if typing.get_origin(kind) is tuple:
            return tuple(int(part) for part in parts)
    except (ValueError, KeyError):
        return text  # the check names the setting and what it takes
    return text


def settings_of(algorithm: str, bonus: str = "none") -> dict[str, tuple[Any, dataclasses.Field]]:
    """Type and field of every setting of an algorithm with a bonus, by name."""
    return {name: field for owner in owners(algorithm, bonus) for name, field in _fields(owner).items()}


def describe(owner: type) -> list[tuple[str, str, str, bool]]:
    """Name, default and explanation (the string under the field) of every setting, and whether it is a float."""
    documents: dict[str, str] = {}
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    for node, following in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr)):
            continue
        if isinstance(following.value, ast.Constant) and isinstance(node.target, ast.Name):
            documents[node.target.id] = inspect.cleandoc(str(following.value.value))
    return [(n, _toml(f.default), documents.get(n, ""), kind is float) for n, (kind, f) in _fields(owner).items()]


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {str(error).splitlines()[0]}") from None


@functools.cache
def _fields(owner: type) -> dict[str, tuple[Any, dataclasses.Field]]:
    hints = typing.get_type_hints(owner)
    return {f.name: (hints[f.name], f) for f in dataclasses.fields(owner)}


def _check(name: str, value: Any, kind: Any, field: dataclasses.Field, sweep: bool) -> Any:
    """The value in the setting's own type, or an error that says what is accepted."""
    if kind is float:
        if sweep and isinstance(value, list | tuple):
            if not value:
                raise UsageError(f"{name} is an empty list; give at least one number")
            values = tuple(_check(name, v, float, field, sweep=False) for v in value)
            if len(set(values)) != len(values):
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
    if typing.get_origin(kind) is tuple:
        sizes = tuple(value) if isinstance(value, list | tuple) else ()
        if not sizes or not all(isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 65536 for v in sizes):
            raise UsageError(f"{name} must be a list of layer sizes such as 256,256, not {value!r}")
        return sizes
    choices = typing.get_args(kind)
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return "of any size"
    return f"of at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"


def _close(name: Any, accepted: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(accepted), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
