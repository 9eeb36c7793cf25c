"""What a study has found: the best settings, the table of trials, and two pictures."""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")  # files only, no window

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from dac.cluster.tuning.folder import Population, Tuning
from dac.core.lines import COLOURS
from dac.experiments.figures import STYLE
from dac.rundir.files import write_atomically

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST, TABLE, HISTORY, IMPORTANCE = "best.toml", "trials.csv", "history", "importance"


def ranked(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that reached the end, the best first."""
    complete = [trial for trial in trials if trial.state.name == "COMPLETE" and trial.value is not None]
    return sorted(complete, key=lambda trial: (-(trial.value or 0.0), trial.number))


def write_results(
    directory: Path, tuning: Tuning, trials: Sequence[FrozenTrial], populations: Sequence[Population]
) -> list[Path]:
    """Write everything that the trials so far can tell; returns the files."""
    files = [directory / TABLE]
    write_atomically(files[0], table_of(tuning, trials, populations).encode())
    best = ranked(trials)
    if best:
        files.append(directory / BEST)
        write_atomically(files[-1], describe_best(tuning, best[0]).encode())
    files += _save(draw_history(tuning, trials), directory / HISTORY)
    importances = find_importances(tuning, trials)
    if importances:
        files += _save(draw_importance(importances, tuning.ladder.steps[0]), directory / IMPORTANCE)
    return files


def describe_best(tuning: Tuning, trial: FrozenTrial) -> str:
    """The best trial's configuration, on seeds that no trial was trained with; `dac train --config` takes it."""
    count = len(tuning.config.seeds)
    head = (
        f"# trial {trial.number} of the study {tuning.study!r}: {tuning.objective} {trial.value:.6g}, the "
        f"interquartile mean over {count} seed{'s' if count > 1 else ''}\n"
        f"# chosen as the best of {tuning.total()}, so expect a little less of other seeds: these are new ones\n"
    )
    return head + tuning.with_params(trial.params).to_toml()


def table_of(tuning: Tuning, trials: Sequence[FrozenTrial], populations: Sequence[Population]) -> str:
    """One row per trial: how it ended, its settings, and its value at the end of every rung that it reached."""
    steps = tuning.ladder.steps
    where = {trial: population.name for population in populations for trial in population.trials}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["trial", "state", "population", *tuning.space, *(f"{tuning.objective}_{step}" for step in steps)])
    for trial in sorted(trials, key=lambda trial: trial.number):
        values = [trial.intermediate_values.get(step, "") for step in steps]
        params = [trial.params.get(name, "") for name in tuning.space]
        writer.writerow([trial.number, trial.state.name.lower(), where.get(trial.number, ""), *params, *values])
    return file.getvalue()


def find_importances(tuning: Tuning, trials: Sequence[FrozenTrial]) -> Mapping[str, float]:
    """How much of the difference between trials each setting explains (PED-ANOVA), by the values of the first rung.

    All trials were measured there, at the same step; those that went on alone would tell of the best ones only.
    """
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    first = tuning.ladder.steps[0]
    measured = [trial for trial in trials if math.isfinite(trial.intermediate_values.get(first, math.nan))]
    if len(measured) < 2 or len({t.intermediate_values[first] for t in measured}) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        [
            create_trial(value=t.intermediate_values[first], params=t.params, distributions=t.distributions)
            for t in measured
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few trials, and that the evaluator may change
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def draw_history(tuning: Tuning, trials: Sequence[FrozenTrial]) -> Figure:
    """Draw the value of every trial at each rung it reached, in the order of the trials, and the best one so far."""
    steps = tuning.ladder.steps
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
        for trial in trials:
            values = [trial.intermediate_values[step] for step in steps if step in trial.intermediate_values]
            axis.plot([trial.number] * len(values), values, color="0.85", linewidth=1, zorder=1)
        for rung, step in enumerate(steps):
            points = [(t.number, t.intermediate_values[step]) for t in trials if step in t.intermediate_values]
            if points:
                size, colour = 14 + 10 * rung, COLOURS[rung % len(COLOURS)]
                label = f"after {step:,} steps ({len(points)})"
                numbers, heights = zip(*points, strict=True)
                axis.scatter(numbers, heights, s=size, color=colour, label=label, zorder=2 + rung)
        complete = sorted(ranked(trials), key=lambda trial: trial.number)
        if complete:
            best = np.maximum.accumulate([float(trial.value or 0.0) for trial in complete])
            last = max(trial.number for trial in trials) + 0.5
            ends = [*(trial.number for trial in complete), last]
            axis.step(ends, [*best, best[-1]], where="post", color="0.3", linewidth=1, label="best so far", zorder=1)
        axis.set(xlabel="trial", ylabel=tuning.objective)
        axis.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        if axis.get_legend_handles_labels()[0]:
            figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def draw_importance(importances: Mapping[str, float], step: int) -> Figure:
    """Draw a bar for each setting, the most important one at the top."""
    names = sorted(importances, key=lambda name: importances[name])
    values = [importances[name] for name in names]
    with plt.rc_context(STYLE):
        size = (5.2, 0.8 + 0.34 * len(names))
        figure, axis = plt.subplots(figsize=size, layout="constrained")
        bars = axis.barh(names, values, color=COLOURS[0], height=0.6)
        axis.bar_label(bars, labels=[f"{value:.0%}" for value in values], padding=3, fontsize=9)
        axis.set(xlim=(0, max(1e-9, *values) * 1.15), xlabel=f"importance (after {step:,} steps)", xticks=[])
        axis.spines["bottom"].set_visible(False)
    return figure


def _save(figure: Figure, stem: Path) -> list[Path]:
    """Write a picture as PNG and as PDF, without the time, so that the same trials give the same files."""
    files = []
    for ending in ("png", "pdf"):
        buffer = io.BytesIO()
        metadata: dict[str, Any] = {"CreationDate": None} if ending == "pdf" else {}
        figure.savefig(buffer, format=ending, dpi=150, metadata=metadata)
        files.append(stem.with_suffix(f".{ending}"))
        write_atomically(files[-1], buffer.getvalue())
    plt.close(figure)
    return files
