"""What an experiment still needs: the members that no finished run holds, packed into populations.

A member is known by everything that decides its outcome, so a run made for one figure serves another, and a run found
in any folder counts.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from dac.config import RunConfig, resolve, with_steps
from dac.core.population import Member
from dac.core.types import UsageError
from dac.experiments.paper import Experiment, Method
from dac.rundir.names import CONFIG
from dac.rundir.pooling import combined
from dac.rundir.reading import RunDirectory
from dac.training.memory import SHARE, replay_bytes
from dac.training.preparation import place_of

Fits: TypeAlias = Callable[[RunConfig], object]
"""Raises a `UsageError` for a population that is too large."""
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
    fits: Fits | None = place_of,
    at_most: int | None = None,
) -> Plan:
    """Everything wanted and not yet finished, as few populations as can share a program; unfinished ones continue.

    Members whose fingerprints are `left_out` are not trained. A population has `at_most` so many members, and is halved
    until `fits` does not refuse it: by default, until it fits into this machine's memory.
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
        serves = _serves(config, open_members)
        methods = tuple(dict.fromkeys(called[name] for name in serves))
        return Job(config, directory, methods, done, frozenset(serves))

    found, jobs = len(wanted) - left - len(open_members), []
    for run in runs:
        if store / "runs" not in run.directory.parents:  # not made here: published results, say
            continue
        config = _continued(run, open_members)
        if config is not None:
            jobs.append(job(config, run.directory, run.last_checkpoint()))
            for name in jobs[-1].serves:
                del open_members[name]
    populations = _populations(list(open_members.values()), fits, at_most)
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
        if name in wanted and single.reaches(wanted[name]):
            names.append(name)
    return names


def _folder(config: RunConfig) -> str:
    return f"runs/{config.task}-{config.algorithm}-{config.fingerprint()[:8]}-{config.training.steps}"


def _populations(singles: Sequence[RunConfig], fits: Fits | None, at_most: int | None) -> list[RunConfig]:
    """Pack all members that can share a compiled program into one population, or as few as there have to be."""
    programs: dict[str, list[RunConfig]] = {}
    for single in singles:
        programs.setdefault(single.program(), []).append(single)
    populations = []
    for members in programs.values():
        parts = 1 if at_most is None else math.ceil(len(members) / at_most)
        bounds = [len(members) * part // parts for part in range(parts + 1)]
        for start, end in itertools.pairwise(bounds):
            populations += _split(members[start:end], fits)
    return populations


def pack(singles: Sequence[RunConfig]) -> RunConfig:
    """One configuration of exactly these members: a grid where they make one, else lists that go together."""
    first = singles[0]
    floats = [single.floats() for single in singles]
    values = {name: tuple(dict.fromkeys(own[name] for own in floats)) for name in first.floats()}
    varied = {name: found for name, found in values.items() if len(found) > 1}
    seeds = tuple(dict.fromkeys(single.seeds[0] for single in singles))
    if len(seeds) * math.prod(map(len, varied.values())) == len(singles):  # no two members are the same
        return dataclasses.replace(first, seeds=seeds, hyper={**first.hyper, **varied})
    return combined([(single, Member(single.seeds[0], own)) for single, own in zip(singles, floats, strict=True)])


def _split(singles: Sequence[RunConfig], fits: Fits | None) -> list[RunConfig]:
    """Halve the seeds, and then the values, until the replay buffer of each population fits into memory."""
    config = pack(singles)
    try:
        if fits is not None:
            fits(config)
    except UsageError:
        if len(singles) == 1:
            raise
        seeds = list(dict.fromkeys(single.seeds[0] for single in singles))
        first = set(seeds[: len(seeds) // 2] if len(seeds) > 1 else seeds)
        halves = [s for s in singles if s.seeds[0] in first], [s for s in singles if s.seeds[0] not in first]
        if not halves[1]:
            halves = list(singles[: len(singles) // 2]), list(singles[len(singles) // 2 :])
        return [part for half in halves for part in _split(half, fits)]
    return [config]


def fits_into(bytes_of_a_device: int) -> Fits:
    """Return what refuses a population whose replay buffer does not fit into devices that are elsewhere."""

    def fits(config: RunConfig) -> None:
        spec, members = config.find_task().spec(), len(config.members())
        need = replay_bytes(members, config.schedule(), spec)
        if need > SHARE * bytes_of_a_device:
            raise UsageError(
                f"the replay of {members} members x {config.schedule().capacity} transitions needs "
                f"{need / 2**30:.2f} GiB, and a device has {bytes_of_a_device / 2**30:.2f} GiB; "
                "lower `capacity=` or `steps=`"
            )

    return fits
