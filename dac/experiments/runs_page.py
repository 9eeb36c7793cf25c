"""The page of one's own runs: a table of their states, and for every task one chart in which they lie over each other.

It is made from run directories alone, without JAX and without their environments. Members that differ in nothing but
their seeds share a curve, in whatever runs they were trained.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from dac.core.errors import UsageError
from dac.core.lines import LABELS, POINTS, Line, make_series
from dac.experiments.heat import heat_map
from dac.experiments.overview import Entry
from dac.experiments.parts import Made, Page, add_films, add_provenance
from dac.experiments.text import duration, short
from dac.rundir.glance import Glance, State, find_directories, glance, is_sweep
from dac.rundir.names import METRICS, VISITS
from dac.rundir.table import read_table
from dac.rundir.visits import read_visits

MEASURES = ("return", "success", "visited")
"""The columns of metrics.csv that are drawn, where they are there."""
CURVES = 21
"""Curves in a chart at most: seven colours with three patterns; of more, those with the highest end are drawn."""
PANELS = 9
"""Methods in a heat map at most."""
PICTURES = 4
"""How many tasks are in the small picture at the top."""
BOOKKEEPING = {
    "steps",
    "checkpoint_every",
    "on_nan",
    "eval_every",
    "eval_episodes",
    "replay",
    "workers",
    "devices",
    "metrics",
    "log",
    "combine",
}
"""Settings of the training loop that do not change how a member learns."""
ORDER: tuple[State, ...] = ("running", "broken", "stopped", "finished")
Found = TypeVar("Found")
WARNINGS = 20
"""Warnings that are shown of all runs together."""


@dataclasses.dataclass(frozen=True)
class Points:
    """The thinned curves of one run."""

    steps: np.ndarray
    values: Mapping[str, np.ndarray]
    """By measure, (time, member)."""


class Visits(NamedTuple):
    """The visit counts of one run, of a grid that can be drawn."""

    first: Int[np.ndarray, "member cell"]
    """Environment step of the first entry into each cell, -1 for never."""
    walls: Bool[np.ndarray, "x y"]
    """Which cells cannot be entered; its shape is the grid's."""


class Reader:
    """Looks at runs and reads their curves, again only where a file has changed since."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, int], Points | None]] = {}
        self._visits: dict[Path, tuple[tuple[int, int], Visits | None]] = {}

    def look(self, folders: Sequence[Path]) -> list[Glance]:
        """Look at every run in and under some folders."""
        return [glance(directory) for directory in find_directories(folders)]

    def points(self, run: Glance) -> Points | None:
        """Return the curves of a run; None where there are none yet, or where they are damaged."""
        return _once(self._read, run.directory / METRICS, lambda path: _read_points(path, run.members))

    def visits(self, run: Glance) -> Visits | None:
        """Return where the members of a finished run have been, if its grid has two sides and is small."""
        if run.state != "finished":  # those of a run that goes on are from its end before
            return None
        return _once(self._visits, run.directory / VISITS, lambda path: _read_visits(path, run.members))


def _once(
    known: dict[Path, tuple[tuple[int, int], Found | None]], path: Path, read: Callable[[Path], Found | None]
) -> Found | None:
    """Return what a file holds, read again only where it has changed; None where it is missing or damaged."""
    try:
        found = path.stat()
    except OSError:
        return None
    version = found.st_size, found.st_mtime_ns
    if path not in known or known[path][0] != version:
        try:
            known[path] = version, read(path)
        except UsageError:  # the table says what is wrong
            known[path] = version, None
    return known[path][1]


def _read_visits(path: Path, members: int) -> Visits | None:
    arrays = read_visits(path.parent)
    shape = tuple(arrays.get("grid", ()))  # an older version did not write it
    if len(shape) != 2 or arrays["first_visit"].shape != (members, math.prod(shape)):
        return None
    return Visits(arrays["first_visit"], arrays.get("walls", np.zeros(shape, np.bool_)))


def _read_points(path: Path, members: int) -> Points | None:
    """Read every so many evaluations, so that curves of runs that grow stay on one grid and few rows are parsed."""
    table = read_table(path, members)
    stride = 1
    while table.count > stride * POINTS:
        stride *= 2
    kept = range(stride - 1, table.count, stride)
    if not kept:
        return None
    steps = np.array([row[0] for row in table.column("step", kept)])
    names = [name for name in MEASURES if name in table.columns]
    return Points(steps, {name: np.array(table.column(name, kept)) for name in names})


@dataclasses.dataclass(frozen=True)
class Part:
    """The members of one run that have the same settings."""

    run: Glance
    members: tuple[int, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    """What decides how they learn, but for the seeds."""


@dataclasses.dataclass
class Method:
    """Members of one task that differ in nothing but their seeds, from one run or several."""

    parts: list[Part]
    name: str = ""

    @property
    def seeds(self) -> list[int]:
        return [seed for part in self.parts for seed in part.seeds]


def write_runs(
    folders: Sequence[Path], path: Path, command: str, reader: Reader | None = None, live: float | None = None
) -> list[Glance]:
    """Write a page over every run in some folders; one that is `live` loads itself anew so often."""
    reader = reader or Reader()
    runs = reader.look(folders)
    page, named = Page(path), ", ".join(map(str, folders))
    lead = [
        f'<p class="lead">{escape(describe(runs))}</p>'
        if runs
        else f'<p class="lead">No runs below {escape(named)}.</p>'
    ]
    if live is not None:
        now = time.strftime("%H:%M:%S")
        lead.append(f'<p class="soft">Written at {now}, and anew every {live:g} s while runs go on.</p>')
    if runs:
        add_runs(page, runs, folders, reader, level=2)
        add_made(page, runs, command, embed=live is None)
    page.write(f"Runs below {named}", lead, live)
    return runs


def watch(folders: Sequence[Path], path: Path, command: str, every: float) -> list[Glance]:
    """Write the page anew while runs go on, until they have ended or Ctrl-C; the last page stays as it is."""
    reader = Reader()
    try:
        while True:
            start = time.monotonic()
            runs = write_runs(folders, path, command, reader, every)
            if not any(run.state == "running" for run in runs):
                break
            time.sleep(max(0.05, every - (time.monotonic() - start)))
    except KeyboardInterrupt:
        pass
    return write_runs(folders, path, command, reader)


def describe(runs: Sequence[Glance]) -> str:
    """How many runs there are in each state, and when the last one will have ended."""
    counts = collections.Counter(run.state for run in runs)
    text = f"{len(runs)} run{'s' * (len(runs) > 1)}: " + ", ".join(f"{counts[s]} {s}" for s in ORDER if counts[s])
    left = [run.seconds_left for run in runs if run.state == "running" and run.seconds_left is not None]
    return f"{text}; about {duration(max(left))} left." if left else f"{text}."


def add_section(page: Page, runs: Sequence[Glance], folders: Sequence[Path], reader: Reader, command: str) -> None:
    """Add one's own runs to a page over other things, with a row in the table at its top."""
    page.heading("others", "Own runs")
    pictures = add_runs(page, runs, folders, reader, level=3)
    finished = sum(run.state == "finished" for run in runs)
    words = f"{len(runs)} run{'s' * (len(runs) > 1)}" + (f", {finished} finished" if finished < len(runs) else "")
    kinds = collections.Counter(_kind(run) for run in runs)
    named = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.items())
    page.entries.append(
        Entry(
            "others",
            "Own runs",
            "complete" if finished == len(runs) else "partial",
            words,
            [("", named)],
            pictures[:PICTURES],
        )
    )
    add_made(page, runs, command)


def add_made(page: Page, runs: Sequence[Glance], command: str, *, embed: bool = True) -> None:
    """Add the runs' films, and the commands and versions that they were made with."""
    made = [
        Made(run.directory, _kind(run), int(run.config["training"].get("envs", 1)), run.summary)
        for run in runs
        if run.state != "broken"
    ]
    add_films(page, made, embed=embed)
    add_provenance(page, made, [], command)


def add_runs(
    page: Page, runs: Sequence[Glance], folders: Sequence[Path], reader: Reader, *, level: int
) -> list[list[Line]]:
    """Add the table of runs, their warnings, and the charts of every task; returns the lines of its first chart."""
    names = {run.directory: short_name(run.directory, folders) for run in runs}
    page.add(_table(runs, names))
    _add_warnings(page, runs, names)
    pictures = []
    for number, (task, methods) in enumerate(find_methods(runs, reader).items()):
        anchor = f"task-{number}"
        if level == 2:
            page.heading(anchor, task)
        else:
            page.add(f'<h3 id="{anchor}">{escape(task)}</h3>')
        for measure in MEASURES:
            lines = _lines(methods, measure, reader)
            if not lines:
                continue
            if measure == MEASURES[0]:
                pictures.append([line for line, _ in lines[:CURVES]])
            page.chart(f"{anchor}-{measure}", _chart(task, measure, lines))
            if len(lines) > CURVES:
                page.add(f'<p class="soft">The {CURVES} with the highest end of {len(lines)} are drawn.</p>')
        _add_heat(page, anchor, methods, reader)
    return pictures


def _add_heat(page: Page, anchor: str, methods: Sequence[Method], reader: Reader) -> None:
    """Add where the members of each method have been, as far as their runs are finished and have one grid."""
    found: dict[str, list[np.ndarray]] = {}
    walls = None
    length = 0
    for method in methods:
        for part in method.parts:
            visits = reader.visits(part.run)
            if visits is None or (walls is not None and visits.walls.shape != walls.shape):
                continue
            walls, length = visits.walls, max(length, part.run.steps)
            found.setdefault(method.name, []).append(visits.first[list(part.members)])
    if walls is None:
        return
    shown = dict(list(found.items())[:PANELS])
    first = {name: np.concatenate(parts) for name, parts in shown.items()}
    page.heat(f"{anchor}-cells", heat_map(walls, first, length))
    if len(found) > PANELS:
        page.add(f'<p class="soft">The first {PANELS} of {len(found)} are drawn.</p>')


def _chart(task: str, measure: str, lines: Sequence[tuple[Line, Sequence[int]]]) -> dict[str, Any]:
    counts = {len(seeds) for _, seeds in lines}
    series = []
    for line, seeds in lines[:CURVES]:
        label = line.label if len(counts) == 1 else f"{line.label} ({len(seeds)} seed{'s' * (len(seeds) > 1)})"
        series.append(make_series(line.label, line.style, line.steps, line.values, seeds) | {"label": label})
    label = LABELS.get(measure, measure)
    title = f"{task}: {label}, mean and one standard deviation over seeds"
    return {"title": title, "x": "environment steps", "y": label, "reference": [], "series": series}


def _lines(methods: Sequence[Method], measure: str, reader: Reader) -> list[tuple[Line, Sequence[int]]]:
    """The curve of each method that has one, and its seeds; those with the highest end first if they are too many."""
    found = []
    for method in methods:
        parts = [(part, points) for part in method.parts if (points := reader.points(part.run)) is not None]
        parts = [(part, points) for part, points in parts if measure in points.values]
        if parts:
            steps, values = _join([(points.steps, points.values[measure][:, part.members]) for part, points in parts])
            found.append((method.name, steps, values, [seed for part, _ in parts for seed in part.seeds]))
    if len(found) > CURVES:
        found.sort(key=lambda each: _last(each[2]), reverse=True)
    return [(Line(name, style, steps, values), seeds) for style, (name, steps, values, seeds) in enumerate(found)]


def _last(values: np.ndarray) -> float:
    ends = values[-1][np.isfinite(values[-1])]
    return float(ends.mean()) if len(ends) else -math.inf


def _join(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Curves (time, seed) of several runs on the grid of all their steps; nothing is said beyond a curve's own ends."""
    first = parts[0][0]
    if all(len(steps) == len(first) and (steps == first).all() for steps, _ in parts):
        return first, np.concatenate([values for _, values in parts], axis=1)
    grid = np.unique(np.concatenate([steps for steps, _ in parts]))
    columns = [
        np.interp(grid, steps, column, left=np.nan, right=np.nan) for steps, values in parts for column in values.T
    ]
    return grid, np.stack(columns, axis=1)


def find_methods(runs: Sequence[Glance], reader: Reader) -> dict[str, list[Method]]:
    """Return the methods on each task, named by what tells them apart there."""
    found: dict[str, dict[str, list[Method]]] = {}
    for run in runs:
        if reader.points(run) is None:
            continue
        for part in _parts(run):
            there = found.setdefault(run.task, {}).setdefault(repr((run.algorithm, sorted(part.settings.items()))), [])
            # a seed that was trained twice is two curves, not one of two seeds
            method = next((m for m in there if not set(m.seeds) & set(part.seeds)), None)
            if method is None:
                there.append(Method([part]))
            else:
                method.parts.append(part)
    tasks = {task: [method for same in groups.values() for method in same] for task, groups in found.items()}
    for methods in tasks.values():
        _name(methods)
    return tasks


def _parts(run: Glance) -> Iterator[Part]:
    """The members of a run by their settings, in the order in which they stand in metrics.csv."""
    hyper, training, seeds = run.config["hyper"], run.config["training"], tuple(run.config["seeds"])
    fixed = {name: value for name, value in training.items() if name not in BOOKKEEPING}
    # a setting that follows the length, such as the steps of a schedule, does not tell methods apart
    fixed |= {name: value for name, value in hyper.items() if not is_sweep(value)}
    swept = {name: value for name, value in hyper.items() if is_sweep(value)}
    if training.get("combine") == "zip":  # the first of every list together; one entry stands for all
        groups: dict[tuple[float, ...], list[int]] = {}
        for member in range(run.members):
            groups.setdefault(tuple(value[member % len(value)] for value in swept.values()), []).append(member)
        for values, among in groups.items():
            own = tuple(seeds[member % len(seeds)] for member in among)
            yield Part(run, tuple(among), own, fixed | dict(zip(swept, values, strict=True)))
        return
    for number, values in enumerate(itertools.product(*swept.values())):
        members = tuple(range(number * len(seeds), (number + 1) * len(seeds)))
        if members[-1] < run.members:
            yield Part(run, members, seeds, fixed | dict(zip(swept, values, strict=True)))


def _name(methods: Sequence[Method]) -> None:
    """Name methods by their algorithm and the settings that differ; by their runs where that is not enough, or long."""
    for _, group in itertools.groupby(sorted(methods, key=_algorithm), key=_algorithm):
        same = list(group)
        settings = [method.parts[0].settings for method in same]
        names = dict.fromkeys(name for each in settings for name in each)
        # a setting that an older version did not have is no difference
        differ = [name for name in names if len({repr(each[name]) for each in settings if name in each}) > 1]
        for method, own in zip(same, settings, strict=True):
            words = [f"{name} {_value(own[name])}" for name in differ if name in own]
            if len(words) > 3:  # say what varies within the run, beside its name
                hyper = method.parts[0].run.config["hyper"]
                words = [word for word in words if len(_sweep(hyper.get(word.split()[0]))) > 1]
                words.insert(0, ", ".join(dict.fromkeys(part.run.directory.name for part in method.parts)))
            method.name = ", ".join([_algorithm(method), *words])
    counts = collections.Counter(method.name for method in methods)
    for method in methods:
        if counts[method.name] > 1:
            method.name += f" ({', '.join(dict.fromkeys(str(part.run.directory) for part in method.parts))})"


def _sweep(value: Any) -> list[float]:
    return value if is_sweep(value) else []


def _algorithm(method: Method) -> str:
    return method.parts[0].run.algorithm


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _table(runs: Sequence[Glance], names: Mapping[Path, str]) -> str:
    """The table of `dac status`, what is not finished first."""
    words = ("run", "state", "algorithm", "task")
    columns = ("run", "state", "steps", "left", "return", "steps/s", "algorithm", "task", "members")
    head = "".join(f"<th{' class=text' if name in words else ''}>{name}</th>" for name in columns)
    ordered = sorted(runs, key=lambda run: ORDER.index(run.state))
    body = "".join(_row(run, names[run.directory]) for run in ordered)
    return (
        '<div class="scroll tall" tabindex="0" role="group" aria-label="Runs"><table class="sortable runs">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(run: Glance, name: str) -> str:
    frozen = f' <span class="badge broken">{len(run.frozen)} frozen</span>' if run.frozen else ""
    detail = f'<br><span class="soft">{escape(run.detail)}</span>' if run.detail else ""

    def number(value: float | None, text: str) -> str:
        return f'<td data-value="{value:g}">{text}</td>' if value is not None else "<td>-</td>"

    return (
        f'<tr><td class="text">{escape(name)}</td>'
        f'<td class="text" data-value="{run.state}">'
        f'<span class="badge {run.state}">{run.state}</span>{frozen}{detail}</td>'
        + number(run.step if run.steps else None, f'{run.step:,} <span class="soft">of {short(run.steps)}</span>')
        + number(run.seconds_left, duration(run.seconds_left or 0))
        + number(run.mean_return, f"{run.mean_return or 0:,.1f}")
        + number(run.rate, f"{run.rate or 0:,.0f}")
        + f'<td class="text">{escape(run.algorithm)}</td><td class="text">{escape(run.task)}</td>'
        f'<td data-value="{run.members}">{run.members or "-"}</td></tr>'
    )


def _add_warnings(page: Page, runs: Sequence[Glance], names: Mapping[Path, str]) -> None:
    """Add what went wrong: frozen members, and what each run has warned of."""
    lines = []
    for run in runs:
        # a warning of a run that goes on names its frozen members, and the cause
        said = " ".join(run.warnings)
        silent = [index for index in run.frozen if f"member {index} " not in said]
        if silent:
            numbers = ", ".join(map(str, silent))
            lines.append(f"{names[run.directory]}: frozen, member{'s' * (len(silent) > 1)} {numbers}")
        lines += [f"{names[run.directory]}: {warning}" for warning in run.warnings]
    if lines:
        more = [f"and {len(lines) - WARNINGS} more"] if len(lines) > WARNINGS else []
        items = "".join(f"<li>{escape(line)}</li>" for line in [*lines[:WARNINGS], *more])
        page.add(f'<details class="missing" open><summary>Warnings</summary><ul>{items}</ul></details>')


def short_name(directory: Path, folders: Sequence[Path]) -> str:
    """A run's place below the folder, where there is one folder."""
    inside = len(folders) == 1 and directory != folders[0]
    return str(directory.relative_to(folders[0]) if inside else directory)


def _kind(run: Glance) -> str:
    return f"{run.algorithm} on {run.task}"
