"""Settings as text: what is written on a command line, and TOML."""

from __future__ import annotations

import math
import tomllib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dac.algorithms import BONUSES
from dac.config.schema import MAX_MEMBERS, MAX_SEED, Training, fields_of, settings_of
from dac.core.types import UsageError


def parse_seeds(seeds: Iterable[int] | int | str, *, repeats: bool = False) -> tuple[int, ...]:
    """Read seeds written as `7`, `0:30` (30 not included) or `1,5,9`; distinct, unless `repeats`, and not negative."""
    accepted = f"accepted: 7, 0:30 or 1,5,9; {'' if repeats else 'distinct '}whole numbers from 0 to {MAX_SEED}"
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
    if not values or not whole or (len(set(values)) != len(values) and not repeats):
        raise UsageError(f"bad seeds {seeds!r} ({accepted})")
    return values


def whole_number(text: str) -> int:
    """Read a whole number, also one such as 300_000 or 3e5."""
    try:
        return int(text.replace("_", ""))
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def parse_text(name: str, text: str, algorithm: str) -> Any:
    """Read a value given on the command line, by the type of the setting it is for."""
    known = fields_of(Training) | settings_of(algorithm)
    for bonus in BONUSES:
        known = known | settings_of(algorithm, bonus)
    kind = known.get(name, (str, None))[0]
    parts = text.split(",")
    try:
        if kind is float:
            return [float(part) for part in parts] if len(parts) > 1 else float(text)
        if kind is int:
            return whole_number(text)
        if kind is bool:
            return {"true": True, "false": False, "yes": True, "no": False}[text.lower()]
        if kind == tuple[str, ...]:
            return tuple(parts)
        if typing.get_origin(kind) is tuple:
            return tuple(int(part) for part in parts)
    except (ValueError, KeyError):
        return text  # the check names the setting and what it takes
    return text


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {str(error).splitlines()[0]}") from None


def to_toml(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(to_toml(v) for v in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return str(value)
