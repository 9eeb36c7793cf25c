"""One run in full: every setting that decides its outcome, and what follows from them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any

from dac.algorithms import ALGORITHMS, AbstractAlgorithm, AbstractOnPolicy, make_algorithm
from dac.config.schema import Training, fields_of, idle_settings, settings_of
from dac.config.text import to_toml
from dac.core.population import Member, grid, paired
from dac.core.schedule import Schedule
from dac.tasks import Task, find_task

UNCOUNTED = {
    "steps": 1,
    "checkpoint_every": 0,
    "on_nan": "freeze",
    "eval_every": 1,
    "eval_episodes": 1,
    "replay": "auto",
    "workers": 0,
    "devices": 0,
    "metrics": (),
    "log": (),
    "eval_limit": 10_000,
    "preset": "task",  # it counts by the settings that it leads to
}
"""Settings of the loop that tell no members apart, each with the value that stands for all in a fingerprint."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of a run."""

    algorithm: str
    task: str
    seeds: tuple[int, ...]
    hyper: Mapping[str, Any]
    training: Training

    def members(self) -> list[Member]:
        floats = set(self._floats())
        swept = {name: value for name, value in self.hyper.items() if name in floats}
        lists = {n: tuple(v) if isinstance(v, list | tuple) else (v,) for n, v in swept.items()}
        return (paired if self.training.combine == "zip" else grid)(self.seeds, lists)

    def alone(self, member: Member) -> RunConfig:
        """Return the run that holds this member and no other."""
        training = dataclasses.replace(self.training, combine="grid")
        return dataclasses.replace(self, seeds=(member.seed,), hyper={**self.hyper, **member.hyper}, training=training)

    def floats(self) -> dict[str, Any]:
        """Return the hyperparameters in which the members of one compiled program may differ."""
        return {name: self.hyper[name] for name in self._floats()}

    def program(self) -> str:
        """Return a text that is equal for runs that can share a compiled program and a schedule."""
        floats = self._floats()
        static = {name: value for name, value in self.hyper.items() if name not in floats}
        return repr((self.algorithm, self.task, sorted(static.items()), self.training))

    def work(self) -> str:
        """Return a text that is equal for runs whose steps cost the same, whatever their length and float settings."""
        floats, training = self._floats(), self.training
        static = {name: value for name, value in self.hyper.items() if name not in floats}
        loop = training.envs, training.update_ratio, training.bonus, training.frame_skip
        return repr((self.algorithm, self.task, sorted(static.items()), loop))

    def one_at_a_time(self) -> RunConfig:
        """Return the same run with one environment per member; runs that differ in that alone share a figure."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, envs=1))

    def covers(self, other: RunConfig) -> bool:
        """Tell whether this run holds the results of the other: the same settings, and at least as many steps."""
        return self.fingerprint() == other.fingerprint() and self.reaches(other)

    def reaches(self, other: RunConfig) -> bool:
        """Tell whether this run holds all steps of one with the same fingerprint."""
        mine, wanted = self.training.steps, other.training.steps
        return mine == wanted if self.follows_length() else mine >= wanted

    def follows_length(self) -> bool:
        """Tell whether a setting, such as the step size, depends on the number of steps.

        Then the first part of a run is not the same as a shorter run.
        """
        scheduled = self.hyper.get("schedule", "constant") != "constant" and not self.hyper["schedule_steps"]
        return scheduled or bool(self.followers())

    def varied(self) -> list[str]:
        """Return the hyperparameters that differ between members."""
        floats = self._floats()
        return [n for n, v in self.hyper.items() if n in floats and isinstance(v, list | tuple) and len(set(v)) > 1]

    def find_task(self) -> Task:
        """Return the task with the time limit and the frame skip of this run."""
        return find_task(self.task).at(self.training.pace)

    def make_algorithm(self) -> AbstractAlgorithm:
        """Return the algorithm with its static settings; the population adds those in which members differ."""
        floats = self._floats()
        values = {n: v for n, v in self.hyper.items() if n not in floats}
        schedule = self.schedule()
        steps = values.get("schedule_steps") or schedule.steps
        horizon = max(1, schedule.updates(steps // schedule.envs))
        return make_algorithm(
            self.algorithm, self.training.bonus, values, self.training.metrics, horizon, self.training.envs
        )

    def _floats(self) -> list[str]:
        settings, idle = settings_of(self.algorithm, self.training.bonus), idle_settings(self.hyper)
        return [n for n, (kind, _) in settings.items() if kind is float and n not in idle]

    def followers(self) -> list[str]:
        """Return the hyperparameters that take their value from the number of steps unless they are given."""
        settings = settings_of(self.algorithm, self.training.bonus)
        return [n for n, (_, field) in settings.items() if field.metadata.get("follows") == "steps"]

    def fingerprint(self) -> str:
        """Return a hash of what decides the outcome, but not of the length; a checkpoint has to have the same.

        A setting that came later (`since` in its metadata) counts only where it differs from its default, which is how
        runs were before there was such a setting: old checkpoints can be resumed.
        """
        neutral = _without_later(vars(self.training) | UNCOUNTED, fields_of(Training))
        followers = self.followers()
        hyper = _without_later(self.hyper, settings_of(self.algorithm, self.training.bonus))
        hyper = {n: v for n, v in hyper.items() if n not in followers}
        if self.hyper.get("temperature", "fixed") != "fixed":  # beside which the units used to be others
            hyper["value_units"] = self.hyper["value_units"]
        text = repr((self.algorithm, self.task, self.seeds, sorted(hyper.items()), sorted(neutral.items())))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def schedule(self) -> Schedule:
        t = self.training
        # a replay buffer larger than the run would hold nothing but zeros
        capacity = math.ceil(min(t.capacity, t.steps) / t.envs) * t.envs
        on_policy = issubclass(ALGORITHMS[self.algorithm].algorithm, AbstractOnPolicy)
        rollout = self.hyper["rollout"] if on_policy else 0
        ratio = 1 if on_policy else t.update_ratio
        share = 0.0 if t.init_replay == "none" else t.offline_share
        return Schedule(t.steps, t.envs, t.random_steps, t.update_after, ratio, capacity, t.eval_every, rollout, share)

    def with_dataset(self, name: str) -> RunConfig:
        """Return the same run with its dataset named in full, with its checksum."""
        return dataclasses.replace(self, training=dataclasses.replace(self.training, init_replay=name))

    def to_toml(self) -> str:
        lines = [
            f"algorithm = {to_toml(self.algorithm)}",
            f"task = {to_toml(self.task)}",
            f"seeds = {to_toml(self.seeds)}",
        ]
        lines += ["", "[training]"] + [f"{n} = {to_toml(v)}" for n, v in dataclasses.asdict(self.training).items()]
        lines += ["", "[hyper]"] + [f"{n} = {to_toml(v)}" for n, v in self.hyper.items()]
        return "\n".join(lines) + "\n"


def _without_later(values: Mapping[str, Any], fields: Mapping[str, tuple[Any, dataclasses.Field]]) -> dict[str, Any]:
    """The values without those of settings that came in a later version and have their default."""
    later = {n for n, (_, field) in fields.items() if field.metadata.get("since") and values[n] == field.default}
    return {name: value for name, value in values.items() if name not in later}
