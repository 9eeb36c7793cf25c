"""From what a user gave to a complete run, checked before compute is spent.

What a user gives comes first, then the preset of the algorithm and the task, then the task, then the algorithm's own
defaults. Every float setting of an algorithm may be a list: the run then holds every combination with every seed,
or, with `combine=zip`, the first of every list together with the first seed, the second with the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dac.algorithms import ALGORITHMS, off_policy
from dac.config.run import RunConfig
from dac.config.schema import Training, check, fields_of, idle_settings, owners_of, settings_of
from dac.config.text import parse_seeds, read_toml
from dac.core.errors import UsageError, did_you_mean
from dac.tasks import find_task, paper, preset

ARGUMENTS = ("seeds", "out", "config")
"""What `dac.train` takes beside settings, for someone who writes `seed=3`."""
WITH_DATASET = {"random_steps": 0, "update_after": 1}
"""Defaults of a run with `init_replay`: what random actions are for, something to learn from, is there already."""


def resolve(
    algorithm: str | None = None,
    task: str | None = None,
    seeds: Iterable[int] | int | str | None = None,
    settings: Mapping[str, Any] | None = None,
    file: Path | None = None,
) -> RunConfig:
    """Complete and check a run.

    What is given here comes before the file, the file before the preset and the task, the task before the algorithm's
    own defaults.
    """
    given: dict[str, Any] = {}
    if file is not None:
        table = read_toml(file)
        algorithm = algorithm or table.get("algorithm")
        task = task or table.get("task")
        seeds = table.get("seeds") if seeds is None else seeds
        for section in ("training", "hyper"):
            part = table.pop(section, {})
            if not isinstance(part, dict):
                raise UsageError(f"{file}: {section} must be a table")
            given |= part
        unknown = sorted(set(table) - {"algorithm", "task", "seeds"})
        if unknown:
            raise UsageError(
                f"{file}: unknown key {unknown[0]!r} (accepted: algorithm, task, seeds, [training], [hyper])"
            )
    given |= settings or {}
    if algorithm is None or task is None:
        raise UsageError("an algorithm and a task are needed, for example: dac train dac maze")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise UsageError(
            f"unknown algorithm {algorithm!r}{did_you_mean(algorithm, ALGORITHMS)} (accepted: {', '.join(ALGORITHMS)})"
        )
    if not isinstance(task, str):
        raise UsageError(f"task must be a name or a function that makes an environment, not {task!r}")
    find_task(task)
    if given.get("alpha") == "adapt":  # the paper's name for the state-dependent alpha
        del given["alpha"]
        given["adapt"] = True
    defaults = preset(algorithm, task)
    if given.get("preset") == "paper":
        defaults |= paper(algorithm, task)
    if given.get("init_replay", "none") != "none":
        defaults = {**defaults, **WITH_DATASET}
    values = {"bonus": ALGORITHMS[algorithm].bonus} | defaults | given
    loop_fields = fields_of(Training)
    bonus = check("bonus", values["bonus"], *loop_fields["bonus"], sweep=False)
    fields = settings_of(algorithm, bonus)
    for name in given:
        if name not in fields and name not in loop_fields:
            accepted, others = [*loop_fields, *fields], owners_of(name)
            hint = (
                f": it is a setting of {', '.join(others)}" if others else did_you_mean(name, [*accepted, *ARGUMENTS])
            )
            raise UsageError(f"unknown setting {name!r} for {algorithm}{hint} (accepted: {', '.join(accepted)})")
    loop = {n: check(n, values.get(n, f.default), kind, f, sweep=False) for n, (kind, f) in loop_fields.items()}
    paired = loop["combine"] == "zip"
    hyper = {}
    for name, (kind, field) in fields.items():
        follows = field.metadata.get("follows")
        default = field.default if follows is None else loop[follows]
        hyper[name] = check(name, values.get(name, default), kind, field, sweep=kind is float, repeats=paired)
    for name, purpose in idle_settings(hyper).items():
        if name in hyper and hyper[name] != fields[name][1].default:
            raise UsageError(f"{name} is {purpose}, or leave it out")
    find_task(task).check_workers(loop["workers"])
    training = Training(**loop)
    chosen = parse_seeds(0 if seeds is None else seeds, repeats=paired)
    if paired:
        _check_lengths(chosen, {name: hyper[name] for name, (kind, _) in fields.items() if kind is float})
    config = RunConfig(algorithm, task, chosen, hyper, training)
    if config.schedule().rollout and training.random_steps:  # the schedule checks that the parts fit together
        raise UsageError(f"random_steps must be 0 for {algorithm}, which learns from what its own policy did")
    config.make_algorithm()
    if training.init_replay != "none" and config.schedule().rollout:
        raise UsageError(f"{algorithm} learns on-policy and takes no init_replay (accepted: {', '.join(off_policy())})")
    watched = [name for name in ("normalise_obs", "normalise_reward") if hyper.get(name)]
    if training.init_replay != "none" and watched:
        raise UsageError(f"{watched[0]} counts what a run sees and not what a dataset holds: it takes no init_replay")
    if training.init_replay == "none" and training.offline_share != loop_fields["offline_share"][1].default:
        raise UsageError("offline_share is the share of a dataset: give init_replay, or leave it out")
    return config


def _check_lengths(seeds: Sequence[int], hyper: Mapping[str, Any]) -> None:
    """Refuse lists that cannot be gone through together: each has one entry, or as many as the longest."""
    sizes = {"seeds": len(seeds)} | {n: len(v) for n, v in hyper.items() if isinstance(v, tuple)}
    longest = max(sizes, key=lambda name: sizes[name])
    for name, size in sizes.items():
        if size not in (1, sizes[longest]):
            raise UsageError(
                f"`combine=zip` takes the first of every list together, so they must be equally long; "
                f"{name} has {size} and {longest} has {sizes[longest]}"
            )


def with_steps(config: RunConfig, steps: int) -> RunConfig:
    """Return the same run with another number of steps, and adapt the settings that follow that number."""
    before = config.training.steps
    given = dict(config.hyper) | dataclasses.asdict(config.training) | {"steps": steps}
    for name in config.followers():
        if given[name] == before:
            del given[name]
    return resolve(config.algorithm, config.task, config.seeds, given)


def elsewhere(config: RunConfig, log: Sequence[str] | None = None, devices: int | None = None) -> RunConfig:
    """Return the same run with other loggers, or on another number of devices; what is None stays as it is."""
    given = {name: value for name, value in (("log", log), ("devices", devices)) if value is not None}
    changed = {name: check(name, value, *fields_of(Training)[name], sweep=False) for name, value in given.items()}
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **changed))
