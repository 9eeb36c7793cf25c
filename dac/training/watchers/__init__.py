"""Watchers see a run while it goes on: progress bars, the metrics file, loggers, callbacks, and whatever a user adds.

A run calls its watchers in order and gives each its own copy of plain values. A watcher can ask the run to stop; it can
change nothing else in training. One that raises an exception ends the run, with a checkpoint.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dac.config import RunConfig
from dac.core.population import Member
from dac.core.types import UsageError
from dac.training.evaluate import Moment


class CallbackError(UsageError):
    """A watcher raised an exception, which is the cause of this one; the run was saved."""


def _say_nothing(text: str, *, warning: bool = False) -> None:
    del text, warning


@dataclasses.dataclass(frozen=True)
class Start:
    """A run begins, or goes on."""

    config: RunConfig
    """Every setting of the run."""
    directory: Path
    """Where the run writes."""
    members: Sequence[Member]
    """The population, in the order of every row and array."""
    say: Callable[..., None] = _say_nothing
    """Shows a line to whoever looks on: `say(text)` or `say(text, warning=True)`."""
    devices: int = 1
    """How many devices the members are spread over."""


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run is."""

    step: int
    """Environment steps per member."""
    rate: float | None
    """Agent-steps per second while training, or None while the first programs compile."""
    shown: Mapping[str, float]
    """Means of the latest evaluation over the members that are not frozen."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of one evaluation: what is written to metrics.csv, one row per member."""

    step: int
    """Environment steps per member."""
    rows: Sequence[Mapping[str, Any]]
    """One row per member: column and value."""
    moment: Moment | None = None
    """The policies that were evaluated, stacked over members; JAX arrays cannot be written to."""

    def healthy(self) -> list[int]:
        """The numbers of the members that are not frozen; of all members where every one is."""
        return [index for index, row in enumerate(self.rows) if not row["frozen"]] or list(range(len(self.rows)))

    def mean(self, column: str) -> float:
        """Mean of a column over the members that are not frozen; of all members where every one is."""
        return float(np.mean([self.rows[index][column] for index in self.healthy()]))


@dataclasses.dataclass(frozen=True)
class Message:
    """A line for a person."""

    text: str
    """The line itself."""
    warning: bool = False
    """Whether something went wrong: a frozen member, a checkpoint that could not be written, a suspicious metric."""


class AbstractWatcher:
    """Sees one run from its start to its end; each method does nothing unless a watcher overrides it."""

    essential: ClassVar[bool] = False
    """Whether its exceptions are training's own: without the record of a run a checkpoint means nothing."""

    def on_start(self, start: Start) -> None:
        """Called once, before the first step."""

    def on_restore(self, step: int) -> None:
        """Called after `on_start` where a run goes on: what comes after this environment step is made again."""

    def on_message(self, message: Message) -> None:
        """Called with every line that a person should see."""

    def on_progress(self, position: Position) -> str | None:
        """Called after every chunk of steps. The run stops for the reason that is returned, if one is."""

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        """Called with the rows of every evaluation. The run stops for the reason that is returned, if one is."""

    def on_checkpoint(self, step: int) -> None:
        """Called when a checkpoint of that environment step has been handed to the disk."""

    def on_end(self, error: BaseException | None) -> None:
        """Called once, whatever happened; `error` is None where the run ended as it should."""


Watcher = AbstractWatcher | Callable[[Evaluation], str | None]
"""What `watchers=[...]` takes: a watcher, or a function that is called with every evaluation."""


class Function(AbstractWatcher):
    """A user's own function as a watcher."""

    def __init__(self, function: Callable[[Evaluation], str | None]):
        self.function = function

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        return self.function(evaluation)


def as_watcher(watcher: Watcher) -> AbstractWatcher:
    """Return a watcher for an object of a user, or say what is accepted."""
    if isinstance(watcher, AbstractWatcher):
        return watcher
    if isinstance(watcher, type):
        raise UsageError(f"watchers takes objects, not classes: {watcher.__name__}(...), not {watcher.__name__}")
    if not callable(watcher):
        raise UsageError(f"watchers must be callbacks or functions of an evaluation, not {watcher!r}")
    return Function(watcher)


def name_of(watcher: AbstractWatcher) -> str:
    """How an error names a watcher: by its class, or by the function it stands for."""
    if isinstance(watcher, Function):
        return getattr(watcher.function, "__qualname__", repr(watcher.function))
    return type(watcher).__name__


class Watchers(AbstractWatcher):
    """Several watchers as one, in order.

    The first exception of one that is not essential is kept as `failure` and is a reason to stop; the watcher is told
    nothing more but the end.
    """

    def __init__(self, watchers: Sequence[AbstractWatcher]):
        self._watchers = list(watchers)
        self._failed: list[AbstractWatcher] = []
        self.failure: CallbackError | None = None

    def say(self, text: str, *, warning: bool = False) -> None:
        """Tell every watcher a line."""
        self.on_message(Message(text, warning))

    def on_start(self, start: Start) -> None:
        for watcher in self._watchers:
            own = dataclasses.replace(start, config=copy.deepcopy(start.config), members=copy.deepcopy(start.members))
            with self._guarded(watcher, "on_start"):
                watcher.on_start(own)
        if self.failure is not None:  # nothing was trained yet
            raise self.failure

    def on_restore(self, step: int) -> None:
        for watcher in self._told():
            with self._guarded(watcher, "on_restore"):
                watcher.on_restore(step)

    def on_message(self, message: Message) -> None:
        for watcher in self._told():
            with self._guarded(watcher, "on_message"):
                watcher.on_message(message)

    def on_progress(self, position: Position) -> str | None:
        reasons = []
        for watcher in self._told():
            with self._guarded(watcher, "on_progress"):
                own = dataclasses.replace(position, shown=dict(position.shown))
                reasons.append(_checked(watcher.on_progress(own)))
        return self._reason(reasons)

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        reasons = []
        for watcher in self._told():
            with self._guarded(watcher, "on_evaluation"):
                own = dataclasses.replace(evaluation, rows=[dict(row) for row in evaluation.rows])
                reasons.append(_checked(watcher.on_evaluation(own)))
        return self._reason(reasons)

    def on_checkpoint(self, step: int) -> None:
        for watcher in self._told():
            with self._guarded(watcher, "on_checkpoint"):
                watcher.on_checkpoint(step)

    def on_end(self, error: BaseException | None) -> None:
        for watcher in self._watchers:
            with self._guarded(watcher, "on_end"):
                watcher.on_end(error)

    def _told(self) -> list[AbstractWatcher]:
        return [watcher for watcher in self._watchers if watcher not in self._failed]

    @contextlib.contextmanager
    def _guarded(self, watcher: AbstractWatcher, event: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if watcher.essential:
                raise
            self._failed.append(watcher)
            if self.failure is None:
                what = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
                self.failure = CallbackError(f"the callback {name_of(watcher)} failed in {event} ({what})")
                self.failure.__cause__ = error

    def _reason(self, reasons: Sequence[str | None]) -> str | None:
        if self.failure is not None:
            return str(self.failure)
        return next((reason for reason in reasons if reason is not None), None)


def _checked(reason: Any) -> str | None:
    """Refuse what is neither a reason nor None: in other libraries True means go on, and here it would stop a run."""
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"a callback returns the reason to stop as text, or None, not {reason!r}")
    return reason
