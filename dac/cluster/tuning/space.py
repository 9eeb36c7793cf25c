"""What is tuned: float settings of an algorithm, each within a range, on a linear or a logarithmic scale."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dac.config import RunConfig, read_toml
from dac.config.schema import idle_settings, settings_of
from dac.core.types import UsageError

FORM = "LOW:HIGH or log:LOW:HIGH"


@dataclasses.dataclass(frozen=True)
class Range:
    """The values from which a setting is chosen, both ends included."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{'log:' if self.log else ''}{self.low!r}:{self.high!r}"

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


DEFAULTS = {
    "alpha": Range(0.1, 1.0),
    "beta": Range(0.01, 10.0, log=True),
    "sigma": Range(0.05, 1.0, log=True),
    "noise": Range(0.05, 0.5, log=True),
    "lam": Range(0.8, 1.0),
    "clip": Range(0.1, 0.4),
    "step_size": Range(0.003, 0.3, log=True),
    "learning_rate": Range(1e-4, 1e-2, log=True),
    "gamma": Range(0.95, 0.999),
}
"""Ranges of the settings that matter most where an algorithm has them."""
OTHERWISE = {("dac", "clip"): None}
"""Settings that have the name of one above and another meaning: they are not tuned unless asked for."""

Space = Mapping[str, Range]


def default_space(config: RunConfig, given: Sequence[str] = ()) -> Space:
    """The settings of this algorithm that are tuned unless others are asked for; what a user fixed is not."""
    learnt = {"alpha"} if config.hyper.get("adapt") else set()
    learnt |= {"beta"} if config.hyper.get("temperature", "fixed") != "fixed" else set()
    names = [n for n in DEFAULTS if n in config.floats() and n not in given and n not in learnt]
    return {name: DEFAULTS[name] for name in names if (config.algorithm, name) not in OTHERWISE}


def read_space(texts: Sequence[str], config: RunConfig, given: Sequence[str] = ()) -> Space:
    """Read ranges written as `alpha=0.1:1` and `beta=log:0.001:1`, and files with a table [space] of such texts."""
    found: dict[str, Any] = {}
    for text in texts:
        if text.endswith(".toml"):
            new = _read_file(Path(text))
        elif "=" in text:
            name, _, span = text.partition("=")
            new = {name.strip().replace("-", "_"): span}
        else:
            raise UsageError(f"bad space {text!r} (accepted: NAME={FORM}, or a file FILE.toml with a table [space])")
        for name in new:
            if name in found:
                raise UsageError(f"{name} has two ranges in the space; give one")
        found |= new
    space = {name: _parse(name, span) for name, span in found.items()} if texts else default_space(config, given)
    if not space:
        raise UsageError(f"there is nothing to tune; give a range with `space=NAME={FORM}`")
    check_space(space, config, given)
    return space


def check_space(space: Space, config: RunConfig, given: Sequence[str] = ()) -> None:
    """Refuse a setting that is no float of the algorithm, and a range that its values cannot be in."""
    fields = settings_of(config.algorithm, config.training.bonus)
    for name, span in space.items():
        if name not in config.floats():
            reason = f"has no float setting {name!r}"
            if name in fields and fields[name][0] is not float:
                reason = f"has {name}, which is part of the program and not a float, so it cannot be tuned"
            elif name in idle_settings(config.hyper) and name in fields:
                reason = f"does not use {name} with these settings"
            raise UsageError(f"{config.algorithm} {reason} (accepted: {', '.join(config.floats())})")
        if name in given:
            raise UsageError(f"{name} is given a value and a range in the space; give one of them")
        metadata = fields[name][1].metadata
        low, high = metadata.get("low", 0.0), metadata.get("high", math.inf)
        if not low <= span.low or not span.high <= high:
            limit = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
            raise UsageError(f"the range {span} of {name} is not possible: {name} is {limit}")


def _read_file(path: Path) -> Mapping[str, Any]:
    table = read_toml(path)
    unknown = sorted(set(table) - {"space"})
    if unknown or not isinstance(table.get("space"), dict):
        what = f"unknown key {unknown[0]!r}" if unknown else "there is no table [space]"
        raise UsageError(f'{path}: {what} (accepted: a table [space] with lines such as alpha = "0.1:1")')
    return table["space"]


def _parse(name: str, text: Any) -> Range:
    refusal = UsageError(f"bad range {text!r} of {name} (accepted: {FORM}, with numbers and LOW below HIGH)")
    if not isinstance(text, str):
        raise refusal
    *scale, low, high = text.split(":") if text.count(":") in (1, 2) else ("?", "", "")
    try:
        span = Range(float(low), float(high), bool(scale))
    except ValueError:
        raise refusal from None
    if scale not in ([], ["log"]) or not span.low < span.high or not math.isfinite(span.high - span.low):
        raise refusal
    if span.log and not span.low > 0:
        raise UsageError(f"the range {text!r} of {name} is logarithmic, so it must begin above 0")
    return span
