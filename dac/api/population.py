"""Populations: many agents, seeds and hyperparameters, in one compiled program.

population = dac.Population(dac.DAC, "gym:Pendulum-v1", seeds=range(10), alpha=[0.5, 0.8, 1.0]).learn(20_000)
population.best().predict(obs)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

import numpy as np

from dac.api.agents import Agents
from dac.api.drawing import draw_line
from dac.api.environments import Environment
from dac.api.model import Episodes, Model, Setting, check_member, class_of
from dac.config import RunConfig
from dac.core.lines import LABELS
from dac.core.population import Member
from dac.core.types import UsageError
from dac.training.watchers import Watcher

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Settings: TypeAlias = Setting | Sequence[float]
"""As for a model, or a list of numbers: the population then holds every combination with every seed."""
WHOLE = ("member", "seed", "step", "updates", "frozen")
"""Columns of metrics.csv that hold whole numbers."""
LAST = 10
"""Evaluations over which `best` takes the mean."""


class Population(Sequence[Model]):
    """Several agents that learn together: a sequence of models."""

    _agents: Agents

    def __init__(
        self,
        algorithm: type[Model] | str,
        env: Environment,
        *,
        seeds: Iterable[int] | int | str = 0,
        out: Path | str | None = None,
        **settings: Settings,
    ):
        """Describe a population; nothing is made or compiled before it is asked for something.

        A list for a float setting makes every combination with every seed, the seed varying fastest. All else is as for
        a model, `out` too.
        """
        name = algorithm if isinstance(algorithm, str) else getattr(algorithm, "algorithm", None)
        if not name:
            raise UsageError(
                f"a population is of an algorithm's class, such as dac.DAC, or its name, not {algorithm!r}"
            )
        if "seed" in settings:
            raise UsageError("a population has seeds: give seeds=range(10)")
        self._agents = Agents.new(name, env, seeds, out, dict(settings))

    @classmethod
    def load(cls, path: Path | str, env: Environment | None = None) -> Self:
        """Read a run directory; `learn` goes on from its latest checkpoint, and leaves the directory alone."""
        population = cls.__new__(cls)
        population._agents = Agents.load(path, env)
        return population

    def learn(
        self, steps: int | None = None, *, watchers: Sequence[Watcher] = (), progress: bool | None = None
    ) -> Self:
        """Train every member for `steps` more environment steps, as `Model.learn` does, and return the population."""
        self._agents.learn(steps, watchers, progress)
        return self

    def save(self, path: Path | str) -> None:
        """Write a run directory with all members and a checkpoint, as `Model.save` does."""
        self._agents.save(Path(path))

    def evaluate(self, env: Environment | None = None, episodes: int = 10) -> list[Episodes]:
        """Run fresh episodes of every member without exploration, all together; one result per member."""
        found = self._agents.evaluate(env, episodes)
        return [Episodes.of(found, index) for index in range(len(self))]

    def best(self, by: str = "return", last: int = LAST) -> Model:
        """Return the member whose mean over its `last` evaluations is highest, of those that are not frozen.

        Where there is no reward, as in the maze, choose `by="visited"`. Evaluations of training are few and noisy: to
        compare members, `evaluate` them.
        """
        if isinstance(last, bool) or not isinstance(last, int) or last < 1:
            raise UsageError(f"last must be a whole number of at least 1, not {last!r}")
        scores = self._column(by)[-last:].mean(axis=0)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        failures = self._agents.failures
        members = [index for index in range(len(self)) if index not in failures] or list(range(len(self)))
        return self._model(max(members, key=lambda index: scores[index]))

    @property
    def members(self) -> Sequence[Member]:
        """Seed and hyperparameters of every member."""
        return self._agents.members

    @property
    def config(self) -> RunConfig:
        """Every setting."""
        return self._agents.config

    @property
    def num_timesteps(self) -> int:
        """Environment steps that each member has learnt from."""
        return self._agents.steps

    @property
    def directory(self) -> Path | None:
        """The run directory, once there is one: `out`, or a temporary one."""
        return self._agents.directory

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every column of metrics.csv, (evaluation, member)."""
        return self._agents.metrics

    def to_dataframe(self) -> Any:
        """Return one row per member and evaluation, as in metrics.csv.

        It is a DataFrame of pandas, or else of Polars, or else a dictionary of arrays, whichever is installed.
        """
        table = {n: c.ravel().astype(np.int64) if n in WHOLE else c.ravel() for n, c in self._evaluated().items()}
        try:
            import pandas
        except ImportError:
            try:
                import polars
            except ImportError:
                return table
            return polars.DataFrame(table)
        return pandas.DataFrame(table)

    def plot(self, x: str = "step", y: str = "return", ax: Axes | None = None) -> Axes:
        """Draw a metric over another, a line per combination of hyperparameters.

        A line is the mean over seeds within one standard deviation; frozen members are left out. Returns matplotlib's
        axes, `ax` if that is given.
        """
        import matplotlib.pyplot as plt

        horizontal, values, varied = self._column(x), self._column(y), self.config.varied()
        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        groups: dict[str, list[int]] = {}
        for index, member in enumerate(self.members):
            label = ", ".join(f"{name} {member.hyper[name]:g}" for name in varied) or self.config.algorithm
            groups.setdefault(label, []).append(index)
        failures = self._agents.failures
        for style, (label, indices) in enumerate(groups.items()):
            healthy = [index for index in indices if index not in failures] or indices
            draw_line(ax, horizontal[:, healthy].mean(axis=1), values[:, healthy], style, label)
        ax.set_xlabel("environment steps" if x == "step" else LABELS.get(x, x))
        ax.set_ylabel(LABELS.get(y, y))
        ax.set_title(f"{self.config.algorithm} on {self.config.task}")
        ax.margins(x=0)
        if len(groups) > 1:
            ax.legend(frameon=False)
        return ax

    def __len__(self) -> int:
        return len(self._agents.members)

    @overload
    def __getitem__(self, index: int) -> Model: ...

    @overload
    def __getitem__(self, index: slice) -> list[Model]: ...

    def __getitem__(self, index: int | slice) -> Model | list[Model]:
        if isinstance(index, slice):
            return [self._model(k) for k in range(*index.indices(len(self)))]
        if isinstance(index, int) and not -len(self) <= index < len(self):
            raise IndexError(f"member must be from 0 to {len(self) - 1}, not {index}")
        return self._model(check_member(index, len(self)))

    def __iter__(self) -> Iterator[Model]:
        return (self._model(index) for index in range(len(self)))

    def __repr__(self) -> str:
        config, count = self.config, len(self)
        varied = "".join(f", {name} {_values(config.hyper[name])}" for name in config.varied())
        return (
            f"<Population of {count} {class_of(config.algorithm).__name__} on {config.task}, "
            f"seeds {_values(config.seeds)}{varied}: {self._agents.steps:,} steps each>"
        )

    def _model(self, index: int) -> Model:
        return class_of(self.config.algorithm)._of(self._agents, index)

    def _evaluated(self) -> dict[str, np.ndarray]:
        found = self._agents.metrics
        if not found:
            raise UsageError("there are no evaluations yet; call learn first")
        return found

    def _column(self, name: str) -> np.ndarray:
        found = self._evaluated()
        if name not in found:
            raise UsageError(f"unknown metric {name!r} (accepted: {', '.join(found)})")
        return found[name]


def _values(values: Sequence[float]) -> str:
    """Format some numbers, all of them only where they are few."""
    texts = [f"{value:g}" for value in values]
    return ", ".join(texts if len(texts) <= 5 else [*texts[:3], "...", texts[-1]])
