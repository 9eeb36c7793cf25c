"""A study file: tasks x algorithms x seeds x grids of settings, as TOML, checked before anything starts.

tasks = ["maze", "SparseHopper"]
algorithms = ["dac", "sac"]
seeds = "0:10"                  # as for `dac train --seeds`, or a list
members = 100                   # optional: the most members of one population

[settings]                      # settings of `dac train` for every algorithm; a list is a grid
steps = 300_000
beta = [0.02, 0.2]

[settings.dac]                  # settings of one algorithm
alpha = [0.5, 0.8, 1.0]

[[part]]                        # optional: each part has everything above, but for what it says itself
tasks = ["SparseAnt"]
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dac.algorithms import ALGORITHMS, off_policy
from dac.cluster.positions import Place, find_lines
from dac.config import Training, parse_seeds, resolve
from dac.config.run import UNCOUNTED
from dac.config.schema import MAX_MEMBERS, check, fields_of, owners_of, settings_of
from dac.core.errors import UsageError, did_you_mean
from dac.experiments.paper import Method
from dac.experiments.plan import Cell
from dac.tasks import find_task

KEYS = ("tasks", "algorithms", "seeds", "settings")
"""What each part of a study may say."""
WHOLE = (*KEYS, "members", "part")
"""What the study may say."""
MAX_STUDY = 200_000
"""Members of a study: a grid that is larger is a typing error, which should not keep the planner busy for hours."""


@dataclasses.dataclass(frozen=True)
class Study:
    """What a study file asks for."""

    path: Path
    text: str
    cells: tuple[Cell, ...]
    """Every combination of settings of every algorithm on every task, with all its seeds."""
    at_most: int | None
    """Members of one population at most, if the file says so."""


def read_study(path: Path) -> Study:
    """Read and check a study file; what is wrong in it is one line that says where."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; a study file is needed") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(_not_toml(path, text, error)) from None
    return _Reader(path, text).read(table)


def _not_toml(path: Path, text: str, error: Exception) -> str:
    """Say on which line a file is not TOML."""
    said = " ".join(str(error).split())
    place = re.search(r" \(at line (\d+), column \d+\)$| \(at end of document\)$", said)
    if place is None:
        return f"{path} is not valid TOML: {said}"
    line = int(place[1]) if place[1] else max(1, len(text.splitlines()))
    return f"{path}, line {line}: not valid TOML: {said[: place.start()]}"


@dataclasses.dataclass(frozen=True)
class _Value:
    """A setting as it is given, and where."""

    value: Any
    place: Place


class _Reader:
    """Reads one file; every method that refuses something names the line."""

    def __init__(self, path: Path, text: str):
        self._path, self._text = path, text
        self._lines: dict[Place, int] | None = None  # found where something is wrong

    def read(self, table: Mapping[str, Any]) -> Study:
        self._keys(table, (), WHOLE)
        at_most = table.get("members")
        if at_most is not None and (
            not isinstance(at_most, int) or isinstance(at_most, bool) or not 1 <= at_most <= MAX_MEMBERS
        ):
            self._refuse(("members",), f"members must be a whole number from 1 to {MAX_MEMBERS}, not {at_most!r}")
        checks = {"algorithms": self._algorithms, "tasks": self._tasks, "seeds": self._seeds}
        for name, checked in checks.items():  # also what every part says anew
            if name in table:
                checked(table[name], (name,))
        parts = table.get("part")
        if parts is not None and (
            not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts)
        ):
            self._refuse(("part",), "part must be tables, each begun by [[part]]")
        cells: list[Cell] = []
        for number, part in enumerate([None] if parts is None else parts):
            own: Place = () if part is None else ("part", number)
            if part is not None:
                self._keys(part, own, KEYS)
            cells += self._part(table, part or {}, own, sum(len(cell.config.seeds) for cell in cells))
        used = list(dict.fromkeys(cell.method.algorithm for cell in cells))
        for name, value in table.get("settings", {}).items():
            if isinstance(value, dict) and name not in used:
                self._refuse(("settings", name), f"{name} is not among the algorithms of this study", used)
        return Study(self._path, self._text, tuple(cells), at_most)

    def _part(self, table: Mapping[str, Any], part: Mapping[str, Any], own: Place, so_far: int) -> list[Cell]:
        """The cells of one part; what it does not say is as above it."""

        def given(name: str) -> tuple[Any, Place]:
            if name in part:
                return part[name], (*own, name)
            if name in table:
                return table[name], (name,)
            return None, own

        algorithms, tasks = self._algorithms(*given("algorithms")), self._tasks(*given("tasks"))
        chosen = self._seeds(*given("seeds"))
        settings = [self._settings(level, at, algorithms) for level, at in self._levels(table, part, own)]
        cells: list[Cell] = []
        for algorithm in algorithms:
            values: dict[str, _Value] = {}
            for level in settings:
                values |= level.get(None, {}) | level.get(algorithm, {})
            self._count(values, algorithm, len(chosen) * len(tasks), so_far + sum(len(c.config.seeds) for c in cells))
            for task in tasks:
                cells += self._cells(algorithm, task, chosen, values, own)
        return cells

    def _algorithms(self, value: Any, place: Place) -> list[str]:
        algorithms = self._names(value, place, "algorithms", "dac")
        for number, name in enumerate(algorithms):
            if name not in ALGORITHMS:
                self._refuse(
                    (*place, number), f"unknown algorithm {name!r}{did_you_mean(name, ALGORITHMS)}", ALGORITHMS
                )
        return algorithms

    def _tasks(self, value: Any, place: Place) -> list[str]:
        tasks = self._names(value, place, "tasks", "maze")
        for number, task in enumerate(tasks):
            with self._at((*place, number)):
                find_task(task)
        return tasks

    def _seeds(self, value: Any, place: Place) -> tuple[int, ...]:
        if isinstance(value, bool) or (value is not None and not isinstance(value, int | str | list)):
            self._refuse(place, f"bad seeds {value!r}", ["7", '"0:30"', "[1, 5, 9]"])
        with self._at(place):
            return parse_seeds(0 if value is None else value)

    def _levels(self, table: Mapping[str, Any], part: Mapping[str, Any], own: Place) -> list[tuple[Any, Place]]:
        """The tables of settings: the one above all parts, and that of the part."""
        found: list[tuple[Any, Place]] = [(table.get("settings", {}), ("settings",))]
        return [*found, (part["settings"], (*own, "settings"))] if "settings" in part else found

    def _settings(self, table: Any, place: Place, algorithms: Sequence[str]) -> dict[str | None, dict[str, _Value]]:
        """The settings of a table for all algorithms (None), and for each that has a table of its own."""
        if not isinstance(table, dict):
            self._refuse(place, "settings must be a table, begun by [settings]")
        everyone: dict[str, _Value] = {}
        found: dict[str | None, dict[str, _Value]] = {None: everyone}
        for name, value in table.items():
            if not isinstance(value, dict):
                everyone[name] = _Value(value, (*place, name))
                continue
            if name not in ALGORITHMS:
                self._refuse((*place, name), f"unknown algorithm {name!r}{did_you_mean(name, ALGORITHMS)}", ALGORITHMS)
            if name not in algorithms and place[0] == "part":
                self._refuse((*place, name), f"{name} is not among the algorithms of this part", algorithms)
            found[name] = {inner: _Value(v, (*place, name, inner)) for inner, v in value.items()}
        return found

    def _cells(
        self, algorithm: str, task: str, seeds: tuple[int, ...], values: Mapping[str, _Value], own: Place
    ) -> list[Cell]:
        """Every combination of settings of an algorithm on a task."""
        grid = self._grid(algorithm, values)
        floats = {n: found for n, (found, is_float) in grid.items() if is_float and len(found) > 1}
        cells, seen = list[Cell](), dict[str, str]()
        for combination in itertools.product(*(found for n, (found, _) in grid.items() if n not in floats)):
            static = dict(zip((n for n in grid if n not in floats), combination, strict=True))
            try:
                config = resolve(algorithm, task, seeds, static | {name: list(v) for name, v in floats.items()})
            except UsageError as error:
                self._refuse(self._culprit(str(error), values, own), f"{algorithm} on {task}: {error}")
            for numbers in itertools.product(*floats.values()):
                chosen = dict(zip(floats, numbers, strict=True))
                single = dataclasses.replace(config, hyper={**config.hyper, **{n: float(v) for n, v in chosen.items()}})
                name = self._name(algorithm, grid, static | chosen)
                if (before := seen.setdefault(single.fingerprint(), name)) != name:
                    self._refuse(
                        self._culprit(name, values, own), f"{name} and {before} on {task} are the same members"
                    )
                cells.append(Cell(task, Method(name, algorithm, static | chosen), single))
        return cells

    def _grid(self, algorithm: str, values: Mapping[str, _Value]) -> dict[str, tuple[tuple[Any, ...], bool]]:
        """The values that each setting takes, each checked by itself, and whether they are floats of one program."""
        loop = fields_of(Training)
        bonuses = self._bonuses(values.get("bonus"), algorithm)
        fields = {name: field for bonus in bonuses for name, field in settings_of(algorithm, bonus).items()}
        grid: dict[str, tuple[tuple[Any, ...], bool]] = {}
        for name, given in values.items():
            if name == "combine":
                self._refuse(given.place, "combine is not for a study, where lists are grids; a [[part]] is a list")
            if name not in fields and name not in loop:
                others, accepted = owners_of(name), [*loop, *fields]
                accepted.remove("combine")
                hint = f": it is a setting of {', '.join(others)}" if others else did_you_mean(name, accepted)
                where = f" (give it in [settings.{others[0]}])" if others and others[0] in ALGORITHMS else ""
                self._refuse(given.place, f"unknown setting {name!r} for {algorithm}{hint}{where}", accepted)
            kind, field = fields[name] if name in fields else loop[name]
            grid[name] = self._values(name, given, kind, field), kind is float and name in fields
            if name == "alpha" and "adapt" in grid[name][0]:
                grid[name] = grid[name][0], False
        return grid

    def _values(self, name: str, given: _Value, kind: Any, field: Any) -> tuple[Any, ...]:
        """The values of one setting: a list of them is a grid, for layer sizes a list of lists."""
        value, plural = given.value, typing.get_origin(kind) is tuple
        several = isinstance(value, list) and (not plural or any(isinstance(v, list) for v in value))
        if several and not value:
            self._refuse(given.place, f"{name} is an empty list; give at least one value")
        found = tuple(value) if several else (value,)
        if len(found) > 1 and name in UNCOUNTED:
            self._refuse(given.place, f"{name} tells no members apart, so it takes one value and no list")
        for number, one in enumerate(found):
            place = (*given.place, number) if several else given.place
            with self._at(place):
                if not (name == "alpha" and one == "adapt" and kind is float):
                    check(name, one, kind, field, sweep=False)
            if one in found[:number]:
                self._refuse(place, f"{name} holds the same value twice: {one!r}")
        return found

    def _bonuses(self, given: _Value | None, algorithm: str) -> list[str]:
        """The bonuses with which an algorithm is run."""
        if given is None:
            return [ALGORITHMS[algorithm].bonus]
        found = self._values("bonus", given, *fields_of(Training)["bonus"])
        if any(bonus != "none" for bonus in found) and algorithm not in off_policy():
            self._refuse(given.place, f"{algorithm} learns on-policy and takes no bonus", off_policy())
        return list(found)

    def _count(self, values: Mapping[str, _Value], algorithm: str, each: int, so_far: int) -> None:
        """Refuse a grid of more members than anybody trains."""
        sizes = {name: len(found) for name, (found, _) in self._grid(algorithm, values).items()}
        if so_far + each * math.prod(sizes.values()) > MAX_STUDY:
            place = values[max(sizes, key=lambda name: sizes[name])].place if sizes else ()
            self._refuse(place, f"the study has more than {MAX_STUDY:,} members")

    def _name(self, algorithm: str, grid: Mapping[str, tuple[tuple[Any, ...], bool]], chosen: Mapping[str, Any]) -> str:
        """Name a combination by its algorithm and what varies: `dac alpha 0.5`."""
        varied = [f"{name} {_text(value)}" for name, value in chosen.items() if len(grid[name][0]) > 1]
        return " ".join([algorithm, *varied])

    def _culprit(self, error: str, values: Mapping[str, _Value], own: Place) -> Place:
        """The place of the setting that an error of a whole run speaks of first; else that of the part."""
        words = re.findall(r"\w+", error)
        named = [name for name in sorted(values, key=len, reverse=True) if name in words]
        return values[min(named, key=words.index)].place if named else (*own, "algorithms")

    def _names(self, value: Any, place: Place, name: str, example: str) -> list[str]:
        """A list of names, none of them twice."""
        if value is None:
            self._refuse(place, f'{name} are missing; give a list of names, such as {name} = ["{example}"]')
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            self._refuse(place, f'{name} must be a list of names, such as ["{example}"], not {value!r}')
        if not value:
            self._refuse(place, f"{name} is an empty list; give at least one name")
        for number, word in enumerate(value):
            if word in value[:number]:
                self._refuse((*place, number), f"{word} is named twice in {name}")
        return value

    def _keys(self, table: Mapping[str, Any], place: Place, accepted: Sequence[str]) -> None:
        for name in table:
            if name not in accepted:
                hint = did_you_mean(name, accepted)
                if not hint and (name in fields_of(Training) or owners_of(name)):
                    hint = "; settings stand in the table [settings]"
                self._refuse((*place, name), f"unknown key {name!r}{hint}", accepted)

    @contextlib.contextmanager
    def _at(self, place: Place) -> Iterator[None]:
        """Say where something stands that is refused inside of this."""
        try:
            yield
        except UsageError as error:
            self._refuse(place, str(error))

    def _refuse(self, place: Place, message: str, accepted: Iterable[str] = ()) -> NoReturn:
        names = ", ".join(accepted)
        raise UsageError(f"{self._path}, line {self._line(place)}: {message}{f' (accepted: {names})' if names else ''}")

    def _line(self, place: Place) -> int:
        """The line of a value, or of the nearest table around it that has one."""
        if self._lines is None:
            self._lines = find_lines(self._text)
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
