"""Writes reports: one self-contained page with every curve, verdict and command, and the files of an experiment."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dac.core.lines import COLOURS, LABELS, Line, make_series, numbers, thin
from dac.core.types import UsageError
from dac.envs.maze import free_cells
from dac.experiments.collect import Curves, Shelf, far_room
from dac.experiments.figures import draw_curves, draw_histograms, save, visited_curve
from dac.experiments.heat import heat_map
from dac.experiments.overview import Entry, State
from dac.experiments.page import table
from dac.experiments.paper import EXPERIMENTS, Experiment, published
from dac.experiments.parts import Made, Page, add_films, add_provenance
from dac.experiments.plan import Cell, cells_of, find_runs
from dac.experiments.runs_page import Reader, add_section
from dac.experiments.stats import (
    iqm,
    mean_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    ratio_interval,
    stratified_interval,
)
from dac.rundir.files import write_atomically
from dac.rundir.reading import RunDirectory
from dac.rundir.writing import make_directory


def write_report(folders: Sequence[Path], path: Path, command: str) -> list[str]:
    """Write a page over every run in some folders, and what they say of the paper's experiments.

    Returns a line for each experiment that has something to show.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no such folder: {folder}")
    runs, _ = find_runs(folders)  # what cannot be read is shown with one's own runs
    shelf, page, lines = Shelf(runs), Page(path), list[str]()
    found = [(experiment, shelf.gather(cells_of(experiment))) for experiment in EXPERIMENTS.values()]
    there = [(experiment, curves) for experiment, curves in found if any(each.seeds for each in curves)]
    absent = [experiment.name for experiment, curves in found if not any(each.seeds for each in curves)]
    used = {run for _, curves in there for run in _runs_of(curves)}
    # also those whose environments are not installed here
    shown, reader = {run.directory.resolve() for run in used}, Reader()
    others = [run for run in reader.look(folders) if run.directory.resolve() not in shown]
    if others:  # people look for what they have trained themselves first
        add_section(page, others, folders, reader, command)
        lines.append(f"{len(others)} own run{'s' * (len(others) > 1)}")
    for experiment, curves in there:
        lines.append(add_experiment(page, experiment, curves, command))
    if absent:
        page.heading("absent", "Not run yet")
        page.add(f'<p class="missing">Nothing here of: {escape(", ".join(absent))}.</p>')
        page.add('<pre class="command">dac reproduce NAME --dry-run</pre>')
    if absent and page.entries:
        title = f"{len(absent)} more experiments"
        page.entries.append(Entry("absent", title, "missing", "not run", [("", ", ".join(absent))], []))
    for problem in shelf.problems:
        page.add(f'<p class="missing">Left out: {escape(problem)}</p>')
    nothing = '<p class="lead">No runs were found; below is what there could be.</p>'
    page.write("Diversity Actor-Critic: results", [] if page.entries else [nothing])
    return lines or ["no runs found: the page says what is missing"]


def write_artefacts(
    experiment: Experiment, cells: Sequence[Cell], runs: Sequence[RunDirectory], folder: Path, command: str
) -> Path:
    """Write the figures (PNG and PDF), the table (CSV and Markdown) and the report of one experiment."""
    make_directory(folder)
    shelf = Shelf(runs)
    curves = shelf.gather(cells)
    page = Page(folder / "report.html")
    add_experiment(page, experiment, curves, command)
    page.contents.clear()  # one section needs none
    _draw(experiment, curves, folder)
    header, rows = result_table(experiment, curves)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    write_atomically(folder / "table.csv", buffer.getvalue().encode())
    markdown = ["| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]]
    write_atomically(folder / "table.md", ("\n".join(markdown) + "\n").encode())
    return page.write(f"Reproduction of Han & Sung 2021: {experiment.name}")


def add_experiment(page: Page, experiment: Experiment, curves: Sequence[Curves], command: str) -> str:
    """Add a section for an experiment and its row in the table at the top; returns them in a line of text."""
    page.heading(experiment.name, experiment.title)
    page.add(f"<p><strong>The paper:</strong> {escape(experiment.claim)}</p>")
    if experiment.note:
        page.add(f'<p class="soft">{escape(experiment.note)}</p>')
    missing = _missing(experiment, curves)
    if missing:
        items = "".join(f"<li>{escape(line)}</li>" for line in missing)
        page.add(f'<details class="missing" open><summary>Not complete</summary><ul>{items}</ul></details>')
    for task, methods in _by_task(experiment, curves):
        if line := _other_envs(task, methods):
            page.add(f'<p class="soft">{escape(line)}</p>')
    for found in curves:
        if line := found.frozen():
            page.add(f'<p class="missing">{escape(line)}</p>')
    judged = []
    for task, methods in _by_task(experiment, curves):
        judged += [(task, *verdict) for verdict in verdicts(methods, experiment.measures_on(task)[0])]
    for task, kind, text in judged:
        page.add(f'<p class="verdict {kind}">{escape(task)}: {escape(text)}</p>')
    header, rows = result_table(experiment, curves)
    if rows:
        page.add(table(header, rows, sortable=True))
        page.add(f'<p class="soft">{escape(_legend(experiment))}</p>')
    for task, methods in _by_task(experiment, curves):
        for measure in experiment.measures_on(task):
            shown = [found for found in methods if found.has(measure)]
            if shown:
                page.chart(f"{experiment.name}-{task}-{measure}", _chart(experiment, task, shown, measure))
        if task == "maze" and any(found.first_visit is not None for found in methods):
            page.heat(f"{experiment.name}-{task}", _heat(methods))
    _add_aggregate(page, experiment, curves)
    add_films(page, _made(curves))
    add_provenance(page, _made(curves), [f"dac reproduce {experiment.name}"], command)
    complete = "complete" if not missing else f"{sum(not c.missing() for c in curves)} of {len(curves)} complete"
    first = {task: (kind, text) for task, kind, text in reversed(judged)}  # of each task
    said = [(kind, f"{task}: {text}" if len(experiment.panels) > 1 else text) for task, (kind, text) in first.items()]
    said.reverse()
    page.entries.append(_entry(experiment, curves, complete, said))
    return "; ".join([f"{experiment.name}: {complete}", *(text for _, text in said)])


def _entry(experiment: Experiment, curves: Sequence[Curves], words: str, said: Sequence[tuple[str, str]]) -> Entry:
    """The row of an experiment in the table at the top: its verdicts without what is not complete."""
    style, panels = _style_of(experiment), []
    for task, methods in _by_task(experiment, curves):
        measure = experiment.measures_on(task)[0]
        shown = [found for found in methods if found.has(measure)]
        if shown:
            panels.append([Line(found.name, style[found.name], *_points(found, measure)) for found in shown])
    state: State = "complete"
    if any(found.missing() for found in curves):
        state = "partial" if panels else "missing"
    short = [(kind, text.partition("; ")[0].replace("probability of improvement", "P")) for kind, text in said]
    return Entry(experiment.name, experiment.title, state, words, short, panels)


def _missing(experiment: Experiment, curves: Sequence[Curves]) -> list[str]:
    """Name what is not there yet, with a single line for a task of which there is nothing."""
    lines = []
    for task, methods in _by_task(experiment, curves):
        if not any(found.seeds for found in methods):
            lines.append(f"{task}: nothing yet")
        else:
            lines += [line for found in methods if (line := found.missing())]
    return lines


def _other_envs(task: str, methods: Sequence[Curves]) -> str | None:
    """Name the methods trained with another number of environments than asked for, which changes how they learn."""
    named: dict[str, list[str]] = {}
    for found in methods:
        asked = found.cell.config.training.envs
        if found.seeds and found.envs != (asked,):
            numbers = " or ".join(map(str, found.envs))
            noun = "environment" if found.envs == (1,) else "environments"
            named.setdefault(f"with {numbers} {noun} per member, not {asked}", []).append(found.name)
    parts = [f"{', '.join(names)} {how}" for how, names in named.items()]
    return f"{task}: {'; '.join(parts)}" if parts else None


def result_table(experiment: Experiment, curves: Sequence[Curves]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of the table: per task and method the seeds, our number, the paper's, its interval."""
    judged = {experiment.measures_on(task)[0] for task, _ in experiment.panels}
    returns = judged == {"return"}
    first = "max average return" if returns else "at the end" if judged != {"return", "visited"} else "score"
    header = ["task", "method", "seeds", first]
    header += ["paper"] if "return" in judged else []
    header += ["95% interval", "IQM"]
    header += ["last tenth"] if "return" in judged else []
    header += ["reached the far room"] if any(found.first_visit is not None for found in curves) else []
    header += ["P(first is better)"]
    rows = []
    for task, methods in _by_task(experiment, curves):
        measure = experiment.measures_on(task)[0]
        subject = methods[0] if methods and methods[0].has(measure) else None
        for found in methods:
            if not found.has(measure):
                continue
            scores = found.scores(measure)
            mean, low, high = mean_interval(scores)
            digits = 0 if abs(mean) >= 1000 or measure == "visited" else 1 if abs(mean) >= 100 else 2
            row = [task, found.name, str(len(scores)), f"{mean:.{digits}f} ± {scores.std():.{digits}f}"]
            if "return" in judged:
                number = _published(experiment, task, found.name) if measure == "return" else None
                row += ["-" if number is None else f"{number[0]:.{digits}f} ± {number[1]:.{digits}f}"]
            row += [f"[{low:.{digits}f}, {high:.{digits}f}]", f"{iqm(scores):.{digits}f}"]
            if "return" in judged:
                last = found.last(measure)
                row += [f"{last.mean():.{digits}f} ± {last.std():.{digits}f}"]
            if "reached the far room" in header:
                entered = None if found.first_visit is None else far_room(found.first_visit) >= 0
                row.append("-" if entered is None else f"{entered.sum()} of {len(entered)}")
            both = None if subject is None or found is subject else _scores_of_both(subject, found, measure)
            row.append("-" if both is None else _interval(*probability_of_improvement(*both)))
            rows.append(row)
    return header, rows


def _published(experiment: Experiment, task: str, method: str) -> tuple[float, float] | None:
    """The paper's number, where the experiment has the paper's length."""
    return published(task, method) if experiment.steps is None else None


def verdicts(methods: Sequence[Curves], measure: str) -> list[tuple[str, str]]:
    """Compare the first method with each other one: a kind (good, bad, unsure) and a sentence for each."""
    if not methods or not methods[0].has(measure):
        return []
    subject, lines = methods[0], []
    for other in methods[1:]:
        both = _scores_of_both(subject, other, measure) if other.has(measure) else None
        if both is None or min(map(len, both)) < 2:
            continue
        ours, theirs = both
        p, low, high = probability_of_improvement(ours, theirs)
        interval = f"probability of improvement {_interval(p, low, high)}"
        if measure == "visited":
            interval += f"; {_interval(*ratio_interval(ours, theirs))} times as many cells"
        # what is not complete may still get better
        interval += "".join(f"; {found.name} so far: {line}" for found in (subject, other) if (line := found.so_far()))
        if not _can_differ(len(ours), len(theirs)):
            lines.append(("unsure", f"too few seeds to tell {subject.name} and {other.name} apart: {interval}"))
        elif low > 0.5:
            lines.append(("good", f"{subject.name} beats {other.name}: {interval}"))
        elif high < 0.5:
            lines.append(("bad", f"{other.name} beats {subject.name}: {interval}"))
        else:
            lines.append(("unsure", f"{subject.name} and {other.name} cannot be told apart: {interval}"))
    return lines


def _scores_of_both(subject: Curves, other: Curves, measure: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The scores by which two methods are compared: over the steps that both have made, with as many evaluations each.

    More evaluations would be more chances for a maximum. None where one has no evaluation by then.
    """
    common = min(subject.steps[-1], other.steps[-1])
    ours, theirs = (found.until(common).seen(measure) for found in (subject, other))
    theirs = theirs.near(ours.steps)
    ours = ours.near(theirs.steps)
    theirs = theirs.near(ours.steps)  # where grids are uneven, the first time left some without a partner
    return (ours.scores(measure), theirs.scores(measure)) if ours.has(measure) and theirs.has(measure) else None


def _can_differ(ours: int, theirs: int) -> bool:
    """Whether so many seeds could show a difference at the level of 5%.

    By chance alone, all of one group lie above all of the other in 2 of (ours + theirs choose ours) orders, and then
    every resample says so too.
    """
    return 2 / math.comb(ours + theirs, ours) <= 0.05


def _legend(experiment: Experiment) -> str:
    if "return" not in {experiment.measures_on(task)[0] for task, _ in experiment.panels}:
        return "Mean ± standard deviation over seeds of the last value; intervals: 95% bootstrap over seeds."
    return (
        "Max average return: the largest mean over seeds of one deterministic episode, ± the standard deviation over "
        "seeds at that time, as in the paper. Last tenth: each seed's mean over the last tenth of its evaluations. "
        "Intervals: 95% bootstrap over seeds. P(first is better): a random seed of the first method "
        "against a random seed of this one, over the steps that both have made and with as many evaluations each."
    )


def _by_task(experiment: Experiment, curves: Sequence[Curves]) -> list[tuple[str, list[Curves]]]:
    return [(task, [found for found in curves if found.cell.task == task]) for task, _ in experiment.panels]


def _style_of(experiment: Experiment) -> dict[str, int]:
    """A colour for every method, the same in all panels."""
    names = dict.fromkeys(method.name for _, methods in experiment.panels for method in methods)
    return {name: index for index, name in enumerate(names)}


def _labels(shown: Sequence[Curves]) -> dict[str, str]:
    """What a legend calls each method: with its number of seeds where methods differ in that."""
    counts: dict[str, set[int]] = {}
    for found in shown:
        counts.setdefault(found.name, set()).add(len(found.seeds))
    if len(set.union(*counts.values())) == 1:
        return {name: name for name in counts}
    ranges = {name: " to ".join(map(str, sorted({min(c), max(c)}))) for name, c in counts.items()}
    return {name: f"{name} ({numbers} seeds)" for name, numbers in ranges.items()}


def _points(found: Curves, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values (time, seed); visits of a small grid are known at every step."""
    if measure == "visited" and found.first_visit is not None:
        steps = np.linspace(0, found.cell.config.training.steps, 61)
        return steps, visited_curve(found.first_visit, steps).T.astype(float)
    keep = thin(len(found.steps))
    return found.steps[keep].astype(float), found.values[measure][keep]


def _chart(experiment: Experiment, task: str, methods: Sequence[Curves], measure: str) -> dict[str, Any]:
    style, labels, series, references = _style_of(experiment), _labels(methods), [], []
    for found in methods:
        steps, values = _points(found, measure)
        line = make_series(found.name, style[found.name], steps, values, found.seeds)
        series.append(line | {"label": labels[found.name]})
        number = _published(experiment, task, found.name) if measure == "return" else None
        if number is not None:
            label = f"paper: {found.name} {number[0]:,.0f}"
            references.append({"label": label, "value": number[0], "series": found.name})
    label = LABELS.get(measure, measure)
    title = f"{task}: {label}, mean and one standard deviation over seeds"
    return {"title": title, "x": "environment steps", "y": label, "reference": references, "series": series}


def _heat(methods: Sequence[Curves]) -> dict[str, Any]:
    """The heat map of the maze."""
    shown = [found for found in methods if found.first_visit is not None]
    length = max(found.cell.config.training.steps for found in shown)
    return heat_map(~free_cells(), {found.name: np.asarray(found.first_visit) for found in shown}, length)


def _add_aggregate(page: Page, experiment: Experiment, curves: Sequence[Curves]) -> None:
    """Add statistics over all tasks, of returns divided by the paper's number for the first method: 1 is its DAC."""
    scores: dict[str, dict[str, np.ndarray]] = {}
    for task, methods in _by_task(experiment, curves):
        number = published(task, methods[0].name) if methods else None
        if number is None or experiment.measures_on(task)[0] != "return":
            continue
        for found in methods:
            if found.has("return"):
                # one column for a subject whose alpha differs from task to task
                name = "DAC" if found is methods[0] else found.name
                scores.setdefault(name, {})[task] = found.scores("return") / number[0]
    tasks = sorted(set.intersection(*(set(found) for found in scores.values()))) if scores else []
    if len(tasks) < 2 or len(scores) < 2:
        return
    groups = {name: [found[task] for task in tasks] for name, found in scores.items()}
    subject = next(iter(groups))
    rows = []
    for name, group in groups.items():
        cells = [name]
        for statistic in (iqm, optimality_gap):
            cells.append(_interval(*stratified_interval(group, statistic)))
        if name != subject:
            cells.append(_interval(*probability_of_improvement(groups[subject], group)))
        else:
            cells.append("-")
        rows.append(cells)
    page.add(f"<h3>Over {len(tasks)} tasks</h3>")
    page.add(table(["method", "IQM", "optimality gap", f"P({subject} is better)"], rows, sortable=True))
    page.add(
        f'<p class="soft">Scores are returns divided by the paper\'s {escape(subject)} on that task '
        f"({escape(', '.join(tasks))}); intervals: stratified bootstrap.</p>"
    )
    thresholds = np.linspace(0, max(1.2, max(float(np.max(g)) for group in groups.values() for g in group)), 61)
    series = []
    for index, (name, group) in enumerate(groups.items()):
        share, lowest, highest = performance_profile(group, thresholds)
        colour = COLOURS[index % len(COLOURS)]
        band = {"low": numbers(lowest), "high": numbers(highest)}
        line = {"name": name, "colour": colour, "x": numbers(thresholds), "mean": numbers(share), "seeds": {}}
        series.append(line | band)
    page.chart(
        f"{experiment.name}-profile",
        {
            "title": "Performance profile: share of runs above a score",
            "note": "Averaged over tasks, with a 95% stratified bootstrap band.",
            "x": "normalised score",
            "y": "share of runs",
            "reference": [],
            "series": series,
        },
    )


def _draw(experiment: Experiment, curves: Sequence[Curves], folder: Path) -> None:
    """Draw every measure as a figure, and the histograms of the maze."""
    style = _style_of(experiment)
    measures = dict.fromkeys(m for task, _ in experiment.panels for m in experiment.measures_on(task))
    for measure in measures:
        shown: dict[str, list[Curves]] = {}
        for task, methods in _by_task(experiment, curves):
            there = [found for found in methods if found.has(measure) and measure in experiment.measures_on(task)]
            shown |= {task: there} if there else {}
        if shown:
            labels = _labels([found for methods in shown.values() for found in methods])
            panels = {
                task: [Line(labels[found.name], style[found.name], *_points(found, measure)) for found in methods]
                for task, methods in shown.items()
            }
            save(draw_curves(panels, measure), folder / f"{measure}.png")
    histograms = {found.name: found.snapshots for found in curves if found.cell.task == "maze" and found.snapshots}
    if histograms:
        common = set.intersection(*(set(snapshots) for snapshots in histograms.values()))
        same = {name: {step: found[step] for step in common} for name, found in histograms.items()}
        if common:
            save(draw_histograms(same), folder / "visits.png")


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _made(curves: Sequence[Curves]) -> list[Made]:
    found = []
    for run in _runs_of(curves):
        try:
            summary = run.summary
        except UsageError:
            summary = None
        caption = f"{run.config.algorithm} on {run.config.task}"
        found.append(Made(run.directory, caption, run.config.training.envs, summary))
    return found


def _runs_of(curves: Sequence[Curves]) -> list[RunDirectory]:
    return list(dict.fromkeys(run for found in curves for run in found.runs))
