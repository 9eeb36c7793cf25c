"""Models: one agent with the habits of Stable-Baselines3.

model = dac.DAC("gym:Pendulum-v1", alpha=0.5, seed=0).learn(20_000)
action, _ = model.predict(obs)
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from dac.algorithms import ALGORITHMS
from dac.api.agents import Agents
from dac.api.environments import Environment
from dac.config import RunConfig, Training
from dac.config.schema import fields_of, settings_of
from dac.core.types import UsageError
from dac.training.evaluate import Evaluation
from dac.training.watchers import Watcher

if TYPE_CHECKING:
    import gymnasium as gym

Setting: TypeAlias = float | int | bool | str | Sequence[int] | Sequence[str]
"""What a setting of an algorithm or of training may be; `dac train ALGORITHM --help` names them all."""


class Episodes(NamedTuple):
    """Returns and lengths of some episodes, and which of them were successes."""

    returns: np.ndarray
    """Return of every episode."""
    lengths: np.ndarray
    """Length of every episode, in environment steps."""
    successes: np.ndarray | None = None
    """Whether the task was done at any step of the episode; None where the environment does not say."""

    @property
    def mean(self) -> float:
        """Mean of the returns."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    @property
    def success_rate(self) -> float | None:
        """Share of the episodes that were successes."""
        return None if self.successes is None else float(self.successes.mean())

    def __repr__(self) -> str:
        success = "" if self.successes is None else f", success {self.success_rate:.0%}"
        return (
            f"<{len(self.returns)} episodes: return {self.mean:.4g} ± {self.std:.3g}, "
            f"length {self.lengths.mean():.4g}{success}>"
        )

    @classmethod
    def of(cls, found: Evaluation, index: int) -> Self:
        """Return the episodes of one member."""
        successes = None if found.successes is None else found.successes[index]
        return cls(found.returns[index], found.lengths[index], successes)


class Model:
    """One agent that learns an environment. Use a class of an algorithm, such as `dac.DAC`."""

    algorithm: ClassVar[str] = ""
    """The algorithm's name on the command line."""
    _agents: Agents
    _index: int = 0
    _alone: bool = True
    """Whether this is all of its run, and not one member of a population."""

    def __init__(self, env: Environment, *, seed: int = 0, out: Path | str | None = None, **settings: Setting):
        """Describe a model; nothing is made or compiled before it is asked for something.

        `env` is a task of `dac list tasks`, an id of Gymnasium, an environment (of which copies are used), or a
        function that makes one. `settings` are those of `dac train ALGORITHM --help`. The run is kept in the new
        directory `out`, with checkpoints; without one, in a temporary directory that lives as long as the model.
        """
        if not self.algorithm:
            raise UsageError(
                f"use the class of an algorithm: {', '.join(f'dac.{c.__name__}' for c in _CLASSES.values())}"
            )
        if "seeds" in settings:
            raise UsageError("a model has one seed: give seed=0, or use dac.Population for several")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise UsageError(f"seed must be a whole number, not {seed!r}; dac.Population trains several")
        self._agents = Agents.new(self.algorithm, env, [int(seed)], out, dict(settings))
        if len(self._agents.members) > 1:
            name = self._agents.config.varied()[0]
            raise UsageError(
                f"a model has one {name}; dac.Population({type(self).__name__}, env, {name}=[...]) has several"
            )

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.algorithm:
            _CLASSES[cls.algorithm] = cls
            cls.__signature__ = signature_of(cls.algorithm)  # type: ignore[attr-defined]

    def learn(
        self, steps: int | None = None, *, watchers: Sequence[Watcher] = (), progress: bool | None = None
    ) -> Self:
        """Train for `steps` more environment steps, and return the model.

        Without `steps` the first call trains for as many as the task has by default. Training in parts is the same as
        at once, to the bit, also where the environment's state cannot be saved. The exceptions are settings that follow
        the number of steps (PPO's `total_steps`, a learning rate with a schedule) and MaxEntState, whose estimates
        depend on the size of the replay buffer. `progress` shows a bar; by default there is one in terminals and
        notebooks.
        """
        self._needs_all("learn")
        self._agents.learn(steps, watchers, progress)
        return self

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """Return the action for one observation, or the actions for a batch, and None.

        Observations are as the environment gives them, actions as it takes them. Without `deterministic` the policy
        explores, with random numbers of its own. `state` and `episode_start` are for recurrent policies, which this is
        not; they are there because Stable-Baselines3 passes them.
        """
        del state, episode_start
        return self._agents.predict(self._index, observation, deterministic), None

    def evaluate(self, env: Environment | None = None, episodes: int = 10) -> Episodes:
        """Run fresh episodes without exploration, on the environment of training or another."""
        found = self._agents.evaluate(env, episodes, self._index)
        return Episodes.of(found, 0)

    def save(self, path: Path | str) -> None:
        """Write a run directory: configuration, curves, policy, and a checkpoint with the replay buffer.

        A run of the same algorithm there is written over; anything else is refused. `dac resume`, `dac report` and the
        other commands work on it.
        """
        self._agents.save(Path(path), None if self._alone else self._index)

    @classmethod
    def load(cls, path: Path | str, env: Environment | None = None, *, member: int | None = None) -> Self:
        """Read a model of a run directory; `learn` goes on from its latest checkpoint, and leaves the directory alone.

        `env` stands for the environment where it cannot be made again from its name. Of a population one `member` can
        be loaded, which can act but not learn.
        """
        agents = Agents.load(path, env)
        name = agents.config.algorithm
        if cls.algorithm not in ("", name):
            raise UsageError(
                f"{path} holds a run of {name}, not of {cls.algorithm}: load it with dac.{class_of(name).__name__}"
            )
        if member is None and len(agents.members) > 1:
            raise UsageError(
                f"{path} holds {len(agents.members)} members: load them with dac.Population.load, or one with member=0"
            )
        found = class_of(name)._of(agents, check_member(member or 0, len(agents.members)))
        return found  # type: ignore[return-value]

    @classmethod
    def _of(cls, agents: Agents, index: int) -> Self:
        """Return the model that is one member of a run."""
        model = cls.__new__(cls)
        model._agents, model._index, model._alone = agents, index, len(agents.members) == 1
        return model

    def _needs_all(self, what: str) -> None:
        if not self._alone:
            raise UsageError(
                f"this model is a member of a population, which learns as a whole: {what} with the population"
            )

    @property
    def config(self) -> RunConfig:
        """Every setting."""
        return self._agents.config if self._alone else self._agents.config.alone(self._agents.members[self._index])

    @property
    def num_timesteps(self) -> int:
        """Environment steps it has learnt from."""
        return self._agents.steps

    @property
    def directory(self) -> Path | None:
        """The run directory, once there is one: `out`, or a temporary one."""
        return self._agents.directory

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every column of metrics.csv, one value per evaluation."""
        return {name: column[:, self._index] for name, column in self._agents.metrics.items()}

    @property
    def observation_space(self) -> gym.Space[Any]:
        """What `predict` takes."""
        return self._agents.spaces.observation

    @property
    def action_space(self) -> gym.spaces.Box:
        """What `predict` returns."""
        return self._agents.spaces.action

    def __repr__(self) -> str:
        member = self._agents.members[self._index]
        what = "" if self._alone else f" (member {self._index} of {len(self._agents.members)})"
        return (
            f"<{type(self).__name__} on {self._agents.config.task}, {member.label()}: "
            f"{self._agents.steps:,} steps{what}>"
        )


_CLASSES: dict[str, type[Model]] = {}


def class_of(name: str) -> type[Model]:
    """Return the class of an algorithm; one is made for an algorithm that was registered from outside."""
    if name not in _CLASSES:
        type(name.upper().replace("-", ""), (Model,), {"algorithm": name})
    return _CLASSES[name]


def check_member(index: Any, count: int) -> int:
    """Return the index of a member, counted from the end if it is negative."""
    if isinstance(index, bool) or not isinstance(index, int | np.integer) or not -count <= index < count:
        raise UsageError(f"member must be from 0 to {count - 1}, not {index!r}")
    return int(index) % count


def signature_of(algorithm: str) -> inspect.Signature:
    """Return the constructor's signature with every setting by name, for `help` and for completion."""
    own = [p for p in inspect.signature(Model.__init__).parameters.values() if p.name not in ("self", "settings")]
    fields = fields_of(Training) | settings_of(algorithm, ALGORITHMS[algorithm].bonus)
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kind)
        for name, (kind, field) in fields.items()
        if name != "steps"
    ]
    return inspect.Signature([*own, *named])


def evaluate(model: Model, env: Environment | None = None, episodes: int = 10) -> Episodes:
    """Run fresh episodes of a model without exploration, on the environment of training or another."""
    return model.evaluate(env, episodes)
