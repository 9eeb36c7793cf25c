"""The folder of a tuning study: its settings in tune.toml, and its populations, each a run directory.

Beside the files of a run, a population holds trials.json: its rung, the step at which the rung ends, its trials by
Optuna's numbers, and the populations of the rung below from which they were chosen. It appears whole, with its
configuration, and is never changed. So a folder and the storage are all that has to survive a process.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dac.cluster.tuning.ladder import Ladder, learning_begins, make_ladder
from dac.cluster.tuning.space import Space
from dac.config import RunConfig, read_toml
from dac.config.text import to_toml
from dac.core.population import Member
from dac.core.types import UsageError
from dac.experiments.stats import iqm
from dac.rundir.files import make_directory, write_atomically
from dac.rundir.lock import Lock
from dac.rundir.names import CONFIG
from dac.rundir.pooling import combined, pool
from dac.rundir.reading import RunDirectory

SETTINGS, TRIALS, POPULATIONS = "tune.toml", "trials.json", "populations"
NEW = ".new-"
"""Begins the names of populations that are being made."""
OBJECTIVES = ("return", "success", "visited")
"""Columns of metrics.csv that can be maximised."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Everything that decides the course of a study; its seeds are the members of one trial."""

    config: RunConfig
    """The run of one trial with the default settings."""
    space: Space
    trials: int
    at_once: int
    """Trials in one population."""
    eta: int = 3
    last: int = 3
    """Evaluations at the end of a rung that count, of agents that have learnt."""
    objective: str = "return"
    sampler: str = "tpe"
    sampler_seed: int = 0
    study: str = "dac"
    storage: str = ""
    """Where the trials are, without a password."""

    @functools.cached_property
    def ladder(self) -> Ladder:
        return make_ladder(self.config, self.trials, self.at_once, self.eta, self.last)

    def total(self) -> int:
        """How many trials there are: the last population of the lowest rung is as large as the others."""
        return self.ladder.counts[0] * self.at_once

    def defaults(self) -> dict[str, float] | None:
        """The default settings as a trial, or None where they are outside of the space."""
        values = {name: float(self.config.hyper[name]) for name in self.space}
        return values if all(self.space[name].holds(value) for name, value in values.items()) else None

    def members(self, params: Mapping[str, float]) -> list[Member]:
        """The members of one trial."""
        return [Member(seed, {**self.config.floats(), **params}) for seed in self.config.seeds]

    def with_params(self, params: Mapping[str, float]) -> RunConfig:
        """The run of one trial, on ten seeds that no trial was trained with."""
        first = max(self.config.seeds) + 1
        return dataclasses.replace(
            self.config, seeds=tuple(range(first, first + 10)), hyper={**self.config.hyper, **params}
        )

    def to_toml(self) -> str:
        plain = ("trials", "at_once", "eta", "last", "objective", "sampler", "sampler_seed", "study", "storage")
        lines = ["[tune]", *(f"{name} = {to_toml(getattr(self, name))}" for name in plain)]
        lines += ["", "[space]", *(f"{name} = {to_toml(str(span))}" for name, span in self.space.items())]
        lines += ["", "# the run of one trial with the default settings", "[run]"]
        return "\n".join(lines) + "\n" + self.config.to_toml().replace("\n[", "\n[run.")


@dataclasses.dataclass(frozen=True)
class Population:
    """Some trials that are trained together up to the end of a rung."""

    directory: Path
    rung: int
    number: int
    step: int
    trials: tuple[int, ...]
    chosen_from: tuple[str, ...]
    """The names of the populations that it was chosen from; none on the lowest rung."""

    @property
    def name(self) -> str:
        return self.directory.name

    def steps_made(self) -> int:
        """The step of its latest checkpoint."""
        return RunDirectory(self.directory).last_checkpoint()

    def values(self, tuning: Tuning) -> list[float]:
        """What each trial has come to: the interquartile mean over its seeds of their latest evaluations."""
        metrics = RunDirectory(self.directory).metrics
        if tuning.objective not in metrics:
            raise UsageError(f"{self.directory} has no column {tuning.objective!r} to maximise")
        steps = metrics["step"][:, 0]
        counts = (steps <= self.step) & ((steps > learning_begins(tuning.config)) | (steps == self.step))
        latest = metrics[tuning.objective][counts][-tuning.last :]
        seeds = latest.mean(axis=0).reshape(len(self.trials), -1)
        return [iqm(row) if np.isfinite(row).all() else float("nan") for row in seeds]


def name_of(rung: int, number: int) -> str:
    return f"rung-{rung}-{number:03d}"


def write_settings(directory: Path, tuning: Tuning) -> bool:
    """Write the settings of a new study, or refuse those that are not the study's; returns whether it is new."""
    path = directory / SETTINGS
    text = tuning.to_toml()
    if path.exists():
        if (difference := _difference(read_toml(path), text)) is not None:
            raise UsageError(f"{directory} holds a study with other settings: {difference}; give another `out=`")
        return False
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists already and is no study: it has no {SETTINGS}; give another `out=`")
    make_directory(directory)
    write_atomically(path, text.encode())
    return True


def read_populations(directory: Path) -> list[Population]:
    """Read every population of a study, the lowest rung first, each in the order in which they were begun."""
    found = []
    for path in sorted((directory / POPULATIONS).glob(f"rung-*/{TRIALS}")):
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            content |= {name: tuple(content[name]) for name in ("trials", "chosen_from")}
            found.append(Population(path.parent, **content))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged: {error}") from None
    return sorted(found, key=lambda population: (population.rung, population.number))


def make_population(
    directory: Path,
    tuning: Tuning,
    rung: int,
    number: int,
    trials: Mapping[int, Mapping[str, float]],
    below: Sequence[Population] = (),
    lock: Lock | None = None,
) -> Population:
    """Make a population of these trials, with the members as they stand in the populations below, if there are any."""
    parts = directory / POPULATIONS
    make_directory(parts)
    final = parts / name_of(rung, number)
    step, chosen_from = tuning.ladder.steps[rung], tuple(p.name for p in below)
    population = Population(final, rung, number, step, tuple(trials), chosen_from)
    with tempfile.TemporaryDirectory(prefix=NEW, dir=parts) as part:
        whole = Path(part) / "run"
        if below:
            count = len(tuning.config.seeds)
            places = {t: (p, k * count) for p in below for k, t in enumerate(p.trials)}
            runs = {p.name: RunDirectory(p.directory) for p in below}
            found = [places[trial] for trial in trials]
            pool([(runs[p.name], start + seed) for p, start in found for seed in range(count)], whole)
        else:
            whole.mkdir()
            config = combined([(tuning.config, m) for params in trials.values() for m in tuning.members(params)])
            write_atomically(whole / CONFIG, config.to_toml().encode())
        content = dataclasses.asdict(population)
        del content["directory"]
        write_atomically(whole / TRIALS, json.dumps(content).encode())
        if lock is not None:
            lock.check()
        whole.rename(final)
    return population


def tidy(directory: Path, populations: Sequence[Population]) -> None:
    """Remove what was being made when a process died, and checkpoints whose best members have gone on elsewhere."""
    for path in (directory / POPULATIONS).glob(f"{NEW}*"):
        shutil.rmtree(path, ignore_errors=True)
    for name in {name for population in populations for name in population.chosen_from}:
        shutil.rmtree(directory / POPULATIONS / name / "checkpoint", ignore_errors=True)


def _difference(found: Mapping[str, Any], text: str) -> str | None:
    """Name the first setting that differs from the study's."""
    one, other = _flat(found), _flat(tomllib.loads(text))
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            return f"{name.removeprefix('tune.')} is {one.get(name)!r} there, not {other.get(name)!r}"
    return None


def _flat(table: Mapping[str, Any], lead: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        flat |= _flat(value, f"{lead}{name}.") if isinstance(value, dict) else {f"{lead}{name}": value}
    return flat
