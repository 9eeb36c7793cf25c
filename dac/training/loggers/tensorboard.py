"""TensorBoard: one of its runs per member and per group, in `tensorboard/` of the run directory.

A group has its mean under the metric's own name, so that it lies over its members, and the ends of the 95% interval in
`interval/`; the tab Custom Scalars draws the band. `tensorboard --logdir runs` shows all runs below a folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dac.training.loggers.background import AbstractLogger
from dac.training.loggers.series import Group, Record, describe, plain
from dac.training.watchers import Start

FOLDER = "tensorboard"


class TensorBoard(AbstractLogger):
    """Writes event files: one event per member, or group, and evaluation."""

    def open(self, start: Start, groups: Sequence[Group]) -> None:
        import tensorboardX  # noqa: F401  here, so that it does not fail in the middle

        self._start, self._groups = start, groups
        folder, members = start.directory / FOLDER, start.members
        self._folders = {
            index: folder / _name(g.name) / f"seed-{members[index].seed}" for g in groups for index in g.members
        }
        self._group_folders = [folder / _name(group.name) for group in groups]
        self._writers: dict[Path, Any] = {}
        self._restored: int | None = None
        self._bands: dict[Path, set[str]] = {}

    def restore(self, step: int) -> None:
        self._restored = step

    def write(self, record: Record) -> None:
        from tensorboardX import summary

        settings = describe(self._start.config)
        for index, values in enumerate(record.members):
            folder = self._folders[index]
            if folder not in self._writers and self._restored is None:
                member = self._start.members[index]
                own = _plain(settings | {name: plain(v) for name, v in member.hyper.items()} | {"seed": member.seed})
                for part in summary.hparams(own, {"return": 0.0}):
                    self._put(folder, part, 0)
            self._put(folder, _scalars(values), record.step)
        for folder, spreads in zip(self._group_folders, record.groups, strict=True):
            bands = {name for name, spread in spreads.items() if spread.low is not None}
            if folder not in self._bands:
                self._put(folder, summary.text("settings", "```\n" + self._start.config.to_toml() + "```"), 0)
            if not bands <= self._bands.setdefault(folder, set()):  # before the first update there are few
                self._bands[folder] |= bands
                layout = {name: _band(name) for name in spreads if name in self._bands[folder]}
                self._put(folder, summary.custom_scalars({"mean and 95% interval": layout}), 0)
            values = {name: spread.mean for name, spread in spreads.items()}
            for name, spread in spreads.items():
                if spread.low is not None and spread.high is not None:
                    values |= {f"interval/{name}/low": spread.low, f"interval/{name}/high": spread.high}
            self._put(folder, _scalars(values), record.step)
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _put(self, folder: Path, content: Any, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event

        if folder not in self._writers:
            self._writers[folder] = self._make_writer(folder)
        self._writers[folder].write_event(Event(wall_time=time.time(), step=step, summary=content))

    def _make_writer(self, folder: Path) -> Any:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        writer = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        if self._restored is not None:
            # TensorBoard then forgets what earlier files have from this step on
            log = SessionLog(status=SessionLog.START)
            writer.write_event(Event(wall_time=time.time(), step=self._restored + 1, session_log=log))
        return writer


def _scalars(values: Mapping[str, float]) -> Any:
    from tensorboardX.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])


def _band(name: str) -> list[Any]:
    return ["Margin", [name, f"interval/{name}/low", f"interval/{name}/high"]]


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with lists as text, which is all that the tab HParams knows beside numbers."""
    return {n: v if isinstance(v, bool | int | float | str) else ",".join(map(str, v)) for n, v in settings.items()}


def _name(text: str) -> str:
    return text.replace(", ", "_").replace(" ", "-")
