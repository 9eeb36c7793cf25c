"""The line on which each key of a TOML file stands, which Python's own parser does not say.

A file is cut into its statements, each the fewest lines that are TOML by themselves, and every statement is read by
`tomllib`: so strings, comments, dotted keys and arrays over many lines are understood exactly as in the whole file.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value, with the number of the entry where there is a list: `("part", 1, "tasks", 0)`."""


def find_lines(text: str) -> dict[Place, int]:
    """Return the line, counted from 1, on which each value of a valid TOML file begins."""
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    """How many tables each array of tables has by now."""

    def full(names: Place, new: bool = False) -> Place:
        """Put the number of the latest table behind every name of an array of tables."""
        path: Place = ()
        for depth, name in enumerate(names):
            path = (*path, name)
            if new and depth == len(names) - 1:
                counts[path] = counts.get(path, 0) + 1
            if path in counts:
                found.setdefault((*path, counts[path] - 1), line)
                path = (*path, counts[path] - 1)
            else:
                found.setdefault(path, line)
        return path

    here: Place = ()
    for line, lines, statement in _statements(text):
        if lines[0].lstrip().startswith("["):
            header = lines[0].lstrip().startswith("[[")
            here = full(_names(statement), new=header)
            continue
        for path, at in _values(statement, line, lines):
            for depth in range(1, len(path)):
                found.setdefault((*here, *path[:depth]), at)
            found.setdefault((*here, *path), at)
    return found


def _statements(text: str) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    """The first line, the lines and the content of each statement."""
    start, lines = 0, text.replace("\r\n", "\n").split("\n")
    while start < len(lines):
        for end in range(start + 1, len(lines) + 1):
            with contextlib.suppress(tomllib.TOMLDecodeError):
                statement = tomllib.loads("\n".join(lines[start:end]))
                if statement:
                    yield start + 1, lines[start:end], statement
                break
        else:
            return  # the file is not TOML
        start = end


def _names(table: Any) -> Place:
    """The names in the head of a table."""
    names: list[str] = []
    while table:
        if isinstance(table, list):
            (table,) = table
        else:
            ((name, table),) = table.items()
            names.append(name)
    return tuple(names)


def _values(value: Any, line: int, lines: list[str], path: Place = ()) -> Iterator[tuple[Place, int]]:
    """Every value of a statement with its line; the entries of its list may stand on lines of their own."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield (*path, name), line
            yield from _values(inner, line, lines, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            at = line if len(lines) == 1 else line + _entry(lines, path, number)
            yield (*path, number), at
            yield from _values(inner, at, lines[:1], (*path, number))


def _entry(lines: list[str], path: Place, number: int) -> int:
    """How many lines below the first one an entry of a list stands: the list is closed after each, and counted."""
    for below in range(len(lines)):
        with contextlib.suppress(tomllib.TOMLDecodeError, KeyError, TypeError):
            part: Any = tomllib.loads("\n".join(lines[: below + 1]) + "\n]" * (below < len(lines) - 1))
            for key in path:
                part = part[key]
            if len(part) > number:
                return below
    return 0
