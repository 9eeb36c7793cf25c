"""Writing a run directory while the run goes on."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import hashlib
import io
import itertools
import json
import math
import os
import platform
import shlex
import subprocess
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from dac._version import __version__
from dac.config import RunConfig
from dac.core.population import Member
from dac.core.types import UsageError
from dac.rundir.files import make_directory as make_directory
from dac.rundir.files import write_atomically
from dac.rundir.lock import check_held
from dac.rundir.names import CONFIG, METRICS, POLICY, SUMMARY, TRACEBACK, VISITS
from dac.rundir.weights import save_tree

SNAPSHOTS = (5_000, 50_000, 300_000)  # the histograms of Fig. 1, Han & Sung 2021


RUNS = Path("runs")
"""Where runs are put that were given no directory."""


def check_new(directory: Path | None) -> None:
    """Refuse a directory that was asked for, unless it is empty or absent; before anything costs time."""
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        more = f", or continue it with: {resume_command(directory)}" if (directory / CONFIG).is_file() else ""
        raise UsageError(f"{directory} exists already; give another `out=`, or remove it first{more}")


def take_next_free(task: str, algorithm: str) -> Path:
    """Create the directory of the next free number in `runs`; of several processes each gets its own."""
    make_directory(RUNS)
    stem = f"{task.replace(':', '-').replace('/', '-')}-{algorithm}"
    for number in itertools.count(1):
        directory = RUNS / f"{stem}-{number:03d}"
        try:
            directory.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot create {directory}: {error.strerror}") from None
        return directory
    raise AssertionError


def resume_command(directory: Path) -> str:
    """Return what continues a run, to be pasted into a shell."""
    return shlex.join(["dac", "resume", str(directory)])


def copy_rows(source: Path, directory: Path) -> None:
    """Copy metrics.csv, if there is one yet, from another run directory."""
    if source != directory and (source / METRICS).exists():
        try:
            write_atomically(directory / METRICS, (source / METRICS).read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read {source / METRICS}: {error.strerror}") from None


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run has come to, for its summary."""

    steps: int
    """Environment steps per member."""
    updates: int
    frozen: Mapping[str, Any]
    """Step and cause of each frozen member, by the member's number as text."""
    visited: np.ndarray | None
    """Distinct cells entered, per member, where the task has a grid."""
    first_visits: np.ndarray | None
    """Environment step of the first entry into each cell, (member, cell), where that is counted."""
    grid: tuple[int, ...] | None
    """Shape of the grid of cells, or None."""
    walls: np.ndarray | None
    """Mask of its cells that cannot be entered, where that is known."""
    seconds: float
    """Wall-clock time of this process's part."""
    agent_steps_per_second: float | None
    devices: int = 1
    """How many devices the members were spread over."""


class Recorder:
    """Writes a run directory."""

    def __init__(self, directory: Path, config: RunConfig, members: list[Member]):
        self.directory, self.config, self.members = directory, config, members
        self.best = np.full(len(members), -np.inf)
        self.last = np.full(len(members), np.nan)
        self.success = np.full(len(members), np.nan)
        """Success rates of the latest evaluation."""
        self.last_step = 0
        """Environment step of the latest evaluation in metrics.csv."""
        self.seconds = 0.0
        """Wall-clock time of the parts of this run before this one."""
        self.warnings: dict[str, str] = {}
        """By member and metric, what looked wrong."""
        self._snapshots: dict[str, np.ndarray] = {}
        self._columns: list[str] | None = None
        self._size, self._digest = 0, hashlib.blake2b(digest_size=16)

    def write_config(self) -> None:
        """Write the complete configuration; from here on the directory holds a run."""
        header = f"# dac {__version__}; run it again with: dac train --config {CONFIG}\n"
        write_atomically(self.directory / CONFIG, (header + self.config.to_toml()).encode())

    def notes(self) -> dict[str, Any]:
        """Return what a checkpoint has to remember of the record; the rows so far are on the disk by then."""
        path = self.directory / METRICS
        if path.exists():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        return {
            "metrics": {"bytes": self._size, "digest": self._digest.hexdigest()},
            "columns": self._columns,
            "best": [float(v) for v in self.best],
            "last": [float(v) for v in self.last],
            "success": [float(v) for v in self.success],
            "warnings": self.warnings,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the large part of what a checkpoint has to remember: visit counts."""
        return dict(self._snapshots)

    def check(self, notes: Mapping[str, Any]) -> None:
        """Refuse notes that do not fit the rows on the disk."""
        path, metrics = self.directory / METRICS, notes["metrics"]
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        if len(content) < metrics["bytes"]:
            raise UsageError(f"{path} is damaged: it has {len(content)} bytes of {metrics['bytes']}")
        if hashlib.blake2b(content[: metrics["bytes"]], digest_size=16).hexdigest() != metrics["digest"]:
            raise UsageError(f"{path} is damaged: its checksum differs")

    def restore(self, notes: Mapping[str, Any] | None, arrays: Mapping[str, np.ndarray]) -> None:
        """Continue from a checkpoint, or from the start: rows that came after it are dropped, to be made again.

        The rows that are kept become another file: a process that had this one open and was fenced cannot reach it.
        """
        path = self.directory / METRICS
        try:
            if path.exists():
                write_atomically(path, path.read_bytes()[: 0 if notes is None else notes["metrics"]["bytes"]])
            self._remove_end()
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        if notes is not None:
            self.best, self.last = np.array(notes["best"], float), np.array(notes["last"], float)
            self.success = np.array(notes.get("success", self.success), float)  # an older version had none
            self.seconds, self.warnings = notes["seconds"], dict(notes["warnings"])
            self._columns, self._snapshots = notes["columns"], dict(arrays)
            content = path.read_bytes() if path.exists() else b""
            self._count(content)
            if self._columns is not None:
                latest = content.decode().splitlines()[-1].split(",")
                self.last_step = int(latest[self._columns.index("step")])

    def go_on(self) -> None:
        """Open a complete record again: more rows will follow those that this recorder has written."""
        path = self.directory / METRICS
        if (path.stat().st_size if path.exists() else 0) != self._size:
            raise UsageError(f"{path} was changed by another process; load the run again to go on from there")
        self._remove_end()

    def _remove_end(self) -> None:
        """Remove what says how the run ended, since it goes on."""
        check_held(self.directory / SUMMARY)
        for name in (SUMMARY, TRACEBACK):
            (self.directory / name).unlink(missing_ok=True)

    def copy_to(self, directory: Path) -> Recorder:
        """Write the rows so far into another directory, and return the recorder that goes on there."""
        copy_rows(self.directory, directory)
        twin = Recorder(directory, self.config, self.members)
        twin.restore(self.notes() | {"seconds": self.seconds}, self.arrays())
        return twin

    def warn(self, index: int, name: str, line: str) -> bool:
        """Record a warning, and return whether it is the first of its kind for this member."""
        return self.warnings.setdefault(f"{index} {name}", line) is line

    def lacking(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row that metrics.csv was begun without."""
        return [name for name in row if self._columns is not None and name not in self._columns]

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append the rows of an evaluation to metrics.csv, one per member."""
        text, columns = io.StringIO(), self._columns or list(rows[0])
        # an environment may speak of success in some episodes only, and an older version had fewer columns
        writer = csv.DictWriter(text, columns, restval=math.nan, extrasaction="ignore", lineterminator="\n")
        if self._columns is None:
            writer.writeheader()
        writer.writerows({k: _cell(v) for k, v in row.items()} for row in rows)
        path, content = self.directory / METRICS, text.getvalue().encode()
        try:
            with open(path, "ab", buffering=0) as file:
                check_held(path)  # this very file is not the run's any more if another process takes over from here on
                try:
                    if file.write(content) != len(content):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    with contextlib.suppress(OSError):  # a part of it may have been written
                        file.truncate(self._size)
                    raise
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        self._count(content)
        self._columns, self.last_step = columns, int(rows[0]["step"])
        self.last = np.array([row["return"] for row in rows], float)
        self.best = np.fmax(self.best, self.last)
        self.success = np.array([row.get("success", math.nan) for row in rows], float)

    def keep_visits(self, step: int, visits: np.ndarray) -> None:
        """Keep the visit counts of chosen steps, and of the last one, for visits.npz."""
        if step in SNAPSHOTS or step == self.config.training.steps:
            self._snapshots[f"visits_{step}"] = visits.astype(np.uint32 if visits.max() > 65_535 else np.uint16)

    def write_policies(self, policies: PyTree) -> None:
        """Write the policies of all members."""
        save_tree(self.directory / POLICY, policies)

    def write_traceback(self, error: BaseException) -> Path:
        """Write where an exception came from, for whoever wrote the environment, and return the file."""
        path = self.directory / TRACEBACK
        write_atomically(path, "".join(traceback.format_exception(error)).encode())
        return path

    def finish(self, result: Result) -> None:
        """Write the visit counts and the summary, with which the run is complete."""
        if result.first_visits is not None:
            buffer = io.BytesIO()
            arrays = {"first_visit": result.first_visits.astype(np.int32), "grid": np.array(result.grid)}
            arrays |= {} if result.walls is None else {"walls": result.walls}
            np.savez_compressed(buffer, **arrays, **self._snapshots)  # type: ignore[arg-type]
            write_atomically(self.directory / VISITS, buffer.getvalue())
        members = []
        for index, member in enumerate(self.members):
            entry: dict[str, Any] = {
                "seed": member.seed,
                "hyper": dict(member.hyper),
                "steps": result.steps,
                "updates": result.updates,
                "frozen": result.frozen.get(str(index)),
                "final_return": float(self.last[index]),
                "max_return": float(self.best[index]),
            }
            if math.isfinite(self.success[index]):
                entry["final_success"] = float(self.success[index])
            if result.visited is not None:
                entry["visited_cells"] = int(result.visited[index])
            members.append(entry)
        summary = {
            "algorithm": self.config.algorithm,
            "task": self.config.task,
            "members": members,
            "agent_steps_per_second": result.agent_steps_per_second,
            "seconds": self.seconds + result.seconds,
            "devices": result.devices,
            "warnings": list(self.warnings.values()),
            "versions": versions(),
        }
        text = json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n"
        write_atomically(self.directory / SUMMARY, text.encode())

    def _count(self, content: bytes) -> None:
        self._size += len(content)
        self._digest.update(content)


def versions() -> dict[str, Any]:
    """What a reader needs to repeat a number: versions, the commit of the sources, the machine's kind."""
    import jax

    found: dict[str, Any] = {"python": platform.python_version(), "dac": __version__}
    for package in ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco"):
        found[package] = _optional_version(package)
    device = jax.devices()[0]
    return found | {"commit": _commit(), "device": device.device_kind, "platform": device.platform}


def _optional_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the sources, marked `+` if they were changed since; None outside a checkout."""
    if given := os.environ.get("DAC_COMMIT"):  # for copies of a checkout without its history
        return given
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "dac")
        return git("rev-parse", "HEAD").strip() + ("+" if changed.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _cell(value: Any) -> Any:
    """Floats in the shortest form that reads back exactly at their own precision: a float32 needs 9 digits, not 17."""
    return str(value) if isinstance(value, np.floating) else value


def _plain(value: Any) -> Any:
    """JSON has no inf and no nan: they become strings and null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value
