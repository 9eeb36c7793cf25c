"""Tables of settings and presets, from the fields of the algorithms and of the training loop."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from typing import Any

from dac.algorithms import ALGORITHMS, BONUSES, owners
from dac.config import Training, describe
from dac.config.schema import fields_of
from dac.config.text import to_toml
from dac.tasks.presets import PRESETS


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *[[cell.replace("|", "\\|") for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def settings() -> str:
    """Return a section for the training loop, one for every algorithm and one for every bonus."""
    sections = [section("Training loop", "The same for every algorithm.", [Training])]
    for name, entry in ALGORITHMS.items():
        own = owners(name) if entry.bonus == "none" else owners(name, entry.bonus)
        sections.append(section(f"Algorithm {name}", entry.summary, own))
    for name, bonus in BONUSES.items():
        summary = (bonus.__doc__ or "").splitlines()[0]
        sections.append(section(f"Bonus {name}", f"{summary} Asked for with `--bonus {name}`.", [bonus]))
    return "\n\n".join(sections)


def section(title: str, summary: str, classes: list[type]) -> str:
    """Return one table of settings under its heading."""
    rows = [row(owner, *described) for owner in classes for described in describe(owner)]
    return f"## {title}\n\n{summary}\n\n" + table(["setting", "type", "default", "accepted", "meaning"], rows)


def row(owner: type, name: str, default: Any, text: str, is_float: bool) -> list[str]:
    """Return one setting as a row."""
    kind, field = fields_of(owner)[name]
    follows = field.metadata.get("follows")
    shown = f"that of `{follows}`" if follows else f"`{plain(default)}`"
    swept = is_float and owner is not Training
    return [f"`{name}`", type_name(kind, field.metadata) + (" *" if swept else ""), shown, accepted(kind, field), text]


def plain(value: Any) -> str:
    """Write a value as it is written on the command line."""
    return to_toml(value).strip('[]"').replace(" ", "") or "none"


def type_name(kind: Any, metadata: Mapping[str, Any]) -> str:
    """Name the type of a setting in words."""
    if kind == tuple[str, ...]:
        return "names"
    if typing.get_origin(kind) is tuple:
        return "sizes"
    if metadata.get("choices") or typing.get_args(kind):
        return "name"
    return {float: "number", int: "whole number", bool: "yes or no"}.get(kind, "text")


def accepted(kind: Any, field: Any) -> str:
    """Say which values a setting takes."""
    choices = field.metadata.get("choices") or (typing.get_args(kind) if typing.get_origin(kind) is not tuple else ())
    if choices:
        return ", ".join(f"`{choice}`" for choice in (choices() if callable(choices) else choices))
    if typing.get_origin(kind) is tuple:
        return "1 to 65536 each"
    if kind not in (int, float):
        return ""
    low = field.metadata.get("low", 0.0 if kind is float else -math.inf)
    high = field.metadata.get("high", math.inf)
    if math.isinf(low) and math.isinf(high):
        return "any" if kind is float else ""
    return f"at least {low:g}" if math.isinf(high) else f"{low:g} to {high:,.10g}"


def values(given: Mapping[str, Any]) -> str:
    """Write settings with their values."""
    return ", ".join(f"`{name}` {plain(value)}" for name, value in given.items())


def presets() -> str:
    """Return the table of presets: which settings an algorithm has on a task, and where they come from."""
    rows = [
        [f"`{algorithm}`", "every task" if task == "*" else f"`{task}`", values(preset.settings), preset.source]
        for (algorithm, task), preset in PRESETS.items()
    ]
    return table(["algorithm", "task", "settings", "source"], rows)
