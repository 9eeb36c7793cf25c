"""What an experiment still needs: the members that no finished run holds, packed into populations.

A member is known by everything that decides its outcome, so a run made for one figure serves another, and a run found
in any folder counts.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from dac.config import RunConfig, resolve, with_steps
from dac.core.types import UsageError
from dac.experiments.paper import Experiment, Method
from dac.rundir.names import CONFIG
from dac.rundir.reading import RunDirectory
from dac.training.preparation import place_of

MINIMUM_STEPS = 2000
MINIMUM_SEEDS = 2  # one seed has no spread
SMALL, SMALL_SETTINGS = 0.1, {"hidden": (64, 64), "bonus_hidden": (64, 64), "batch_size": 64}
"""A try below this scale shows that everything works, not how well, so its networks are small as well."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method on one task, configured as a run of all its seeds."""

    task: str
    method: Method
    config: RunConfig

    def members(self) -> dict[str, RunConfig]:
        """The configuration of each seed alone, by its fingerprint."""
        singles = (self.config.alone(member) for member in self.config.members())
        return {single.fingerprint(): single for single in singles}


@dataclasses.dataclass(frozen=True)
class Job:
    """One population to train, from the start or from where it stopped."""

    config: RunConfig
    directory: Path
    methods: tuple[str, ...]
    """The names of its members' methods in the figures."""
    done: int = 0
    """Steps per member that need not be made again."""
    serves: frozenset[str] = frozenset()
    """Fingerprints of the wanted members that it completes."""

    @property
    def resume(self) -> bool:
        return (self.directory / CONFIG).exists()

    @property
    def agent_steps(self) -> int:
        return len(self.config.members()) * (self.config.training.steps - self.done)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The populations that are missing, and how many members are not."""

    jobs: tuple[Job, ...]
    found: int
    """Members that are finished."""
    wanted: int

    @property
    def agent_steps(self) -> int:
        return sum(job.agent_steps for job in self.jobs)


def cells_of(
    experiment: Experiment, scale: float = 1.0, envs: int | None = None, seeds: Sequence[int] | None = None
) -> list[Cell]:
    """Every method on every task of an experiment.

    `scale` is for a try, with this share of the steps and seeds; `envs` gives members more environments, and `seeds`
    takes the place of the experiment's own, whatever the scale.
    """
    if not 0 < scale <= 1:
        raise UsageError(f"scale must be above 0 and at most 1, not {scale:g}")
    cells = []
    for task, methods in experiment.panels:
        for method in methods:
            count = experiment.seeds if method.seeds is None else method.seeds
            own = range(min(count, max(MINIMUM_SEEDS, round(count * scale))))
            given = dict(method.settings)
            if experiment.steps is not None:
                given["steps"] = experiment.steps
            if envs is not None:
                given["envs"] = envs
            config = resolve(method.algorithm, task, own if seeds is None else seeds, given)
            cells.append(Cell(task, method, config if scale == 1 else _shrink(config, scale, given)))
    return cells


def _shrink(config: RunConfig, scale: float, given: dict[str, Any]) -> RunConfig:
    """Shorten a run so that its random start does not fill it and its curve keeps as many points."""
    whole = config.training

    def multiple(steps: float, of: int = whole.envs) -> int:
        return max(1, int(steps) // of) * of  # environments step together

    steps = min(whole.steps, max(MINIMUM_STEPS, multiple(round(whole.steps * scale))))
    small: dict[str, Any] = {
        "steps": multiple(steps),
        "random_steps": min(whole.random_steps, steps // 10),
        "update_after": min(whole.update_after, steps // 10),
        "eval_every": multiple(min(whole.eval_every, steps // 20)),
    }
    if scale < SMALL:
        small |= {name: value for name, value in SMALL_SETTINGS.items() if name in config.hyper}
    if rollout := config.schedule().rollout:
        # a rollout of the usual length would be all there is; minibatches, where there are any, must divide it
        part = math.lcm(whole.envs, 2 * config.hyper.get("minibatches", 1))
        small |= {"rollout": min(rollout, multiple(steps / 10, part))}
    return resolve(config.algorithm, config.task, config.seeds, given | small)


def find_runs(folders: Iterable[Path]) -> tuple[list[RunDirectory], list[str]]:
    """Every run directory in and under some folders, and a line for each that cannot be read."""
    runs, problems, seen = [], [], set()
    for folder in folders:
        for path in sorted(folder.rglob(CONFIG)):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                runs.append(RunDirectory(path.parent))
            except UsageError as error:
                problems.append(str(error))
    return runs, problems


def make_plan(
    cells: Sequence[Cell],
    store: Path,
    runs: Sequence[RunDirectory],
    *,
    left_out: Collection[str] = (),
    fit_memory: bool = True,
) -> Plan:
    """Everything wanted and not yet finished, as few populations as can share a program; unfinished ones continue.

    Members whose fingerprints are `left_out` are not trained. Unless the plan need not `fit_memory`, populations are
    halved until they do.
    """
    wanted: dict[str, RunConfig] = {}
    called: dict[str, str] = {}
    for cell in cells:
        for name, single in cell.members().items():
            called.setdefault(name, cell.method.name)
            if name not in wanted or wanted[name].training.steps < single.training.steps:
                wanted[name] = single
    kinds = {(single.algorithm, single.task) for single in wanted.values()}
    runs = [run for run in runs if (run.config.algorithm, run.config.task) in kinds]  # the others hold none of them
    open_members = {name: single for name, single in wanted.items() if name not in left_out}
    left = len(wanted) - len(open_members)
    for run in runs:
        if run.finished:
            for name in _serves(run.config, open_members):
                del open_members[name]

    def job(config: RunConfig, directory: Path, done: int = 0) -> Job:
        names = [config.alone(member).fingerprint() for member in config.members()]
        methods = tuple(dict.fromkeys(called[name] for name in names if name in called))
        return Job(config, directory, methods, done, frozenset(_serves(config, open_members)))

    found, jobs = len(wanted) - left - len(open_members), []
    for run in runs:
        if store / "runs" not in run.directory.parents:  # not made here: published results, say
            continue
        config = _continued(run, open_members)
        if config is not None:
            jobs.append(job(config, run.directory, run.last_checkpoint()))
            for name in jobs[-1].serves:
                del open_members[name]
    populations = _populations(list(open_members.values()))
    if fit_memory:
        populations = [part for whole in populations for part in _split(whole)]
    jobs += [job(config, store / _folder(config)) for config in populations]
    return Plan(tuple(jobs), found, len(wanted))


def _continued(run: RunDirectory, wanted: dict[str, RunConfig]) -> RunConfig | None:
    """The configuration with which a run that was begun goes on, to more steps if they are wanted now.

    None where a new run is needed, or is cheaper.
    """
    names = [run.config.alone(member).fingerprint() for member in run.members]
    steps = max((wanted[name].training.steps for name in names if name in wanted), default=0)
    config, done = run.config, run.last_checkpoint()
    if config.training.steps < steps:
        # what follows the length was already wrong in the steps made; without a checkpoint they would be made again,
        # over those of a run that may be finished
        if config.follows_length() or not done:
            return None
        config = with_steps(config, steps)
    served = _serves(config, wanted)
    rest = len(run.members) * (config.training.steps - done)
    return config if served and rest <= sum(wanted[name].training.steps for name in served) else None


def _serves(config: RunConfig, wanted: dict[str, RunConfig]) -> list[str]:
    """The wanted members that a run of this configuration holds, with all their steps."""
    names = []
    for member in config.members():
        single = config.alone(member)
        name = single.fingerprint()
        if name in wanted and single.covers(wanted[name]):
            names.append(name)
    return names


def _folder(config: RunConfig) -> str:
    return f"runs/{config.task}-{config.algorithm}-{config.fingerprint()[:8]}-{config.training.steps}"


def _populations(singles: Sequence[RunConfig]) -> list[RunConfig]:
    """Pack members that can share a compiled program into grids of seeds and one hyperparameter."""
    programs: dict[str, list[RunConfig]] = {}
    for single in singles:
        programs.setdefault(single.program(), []).append(single)
    populations = []
    for members in programs.values():
        by_values: dict[tuple, list[RunConfig]] = {}
        for single in members:
            by_values.setdefault(tuple(sorted(single.floats().items())), []).append(single)
        by_seeds: dict[tuple[int, ...], list[RunConfig]] = {}
        for group in by_values.values():
            by_seeds.setdefault(tuple(single.seeds[0] for single in group), []).append(group[0])
        for seeds, groups in by_seeds.items():
            for config in _grids(groups):
                populations.append(dataclasses.replace(config, seeds=seeds))
    return populations


def _grids(singles: Sequence[RunConfig]) -> list[RunConfig]:
    """Cover these values by as few configurations as possible, each with one swept hyperparameter at most."""
    names = sorted({n for a, b in itertools.pairwise(singles) for n, v in a.floats().items() if b.floats()[n] != v})

    def parts(name: str | None) -> list[list[RunConfig]]:
        found: dict[tuple, list[RunConfig]] = {}
        for single in singles:
            found.setdefault(tuple(v for n, v in single.floats().items() if n != name), []).append(single)
        return list(found.values())

    best = min([None, *names], key=lambda name: len(parts(name)))
    grids = []
    for part in parts(best):
        values = {} if best is None or len(part) == 1 else {best: tuple(single.floats()[best] for single in part)}
        grids.append(dataclasses.replace(part[0], hyper=dict(part[0].hyper) | values))
    return grids


def _split(config: RunConfig) -> list[RunConfig]:
    """Halve the seeds until the replay buffer of each population fits into memory."""
    try:
        place_of(config)
    except UsageError:
        if len(config.seeds) == 1:
            raise
        half = len(config.seeds) // 2
        parts = (config.seeds[:half], config.seeds[half:])
        return [small for seeds in parts for small in _split(dataclasses.replace(config, seeds=seeds))]
    return [config]
