"""One run from its start, or from its last checkpoint, to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dac.config import RunConfig, elsewhere, with_steps
from dac.core.types import UsageError
from dac.rundir.reading import RunDirectory
from dac.training.loggers import make_loggers
from dac.training.session import Session
from dac.training.watchers import AbstractWatcher, Watcher, as_watcher


def continue_run(
    directory: Path,
    steps: int | None,
    watchers: Sequence[Watcher],
    log: Sequence[str] | None = None,
    devices: int | None = None,
) -> RunDirectory:
    """Continue a run where its last checkpoint left it, to `steps` environment steps per member if given.

    These may be fewer than were asked for at first, but not fewer than the run has. The run keeps its loggers and
    its number of devices, unless others are given.
    """
    found = RunDirectory(directory)
    before, last = found.config.training.steps, found.last_checkpoint()
    config = elsewhere(found.config, log, devices)
    config = config if steps is None else with_steps(config, steps)
    if found.finished and config.training.steps <= before:
        raise UsageError(f"{directory} is finished, at {before} steps; give more with `steps=`")
    if config.training.steps < last:
        raise UsageError(f"{directory} is at step {last} already, its last checkpoint; `steps=` cannot be {steps}")
    return run(config, directory, watchers, resuming=True)


def run(config: RunConfig, wanted: Path | None, watchers: Sequence[Watcher], *, resuming: bool = False) -> RunDirectory:
    """Train to the end, evaluating, recording and saving on the way.

    A new run is put into the directory that is wanted, or into the next free one of `runs`.
    """
    everyone = all_watchers(config, watchers)
    with contextlib.closing(Session(config, wanted)) as session:
        return session.train(everyone, resume_from=wanted if resuming else None)


def all_watchers(config: RunConfig, watchers: Sequence[Watcher]) -> list[AbstractWatcher]:
    """The loggers of a configuration and a user's watchers; refuses what is no watcher and a logger that is missing."""
    return [*make_loggers(config.training.log), *(as_watcher(watcher) for watcher in watchers)]
