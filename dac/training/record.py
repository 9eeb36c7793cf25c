"""The run directory: what a run leaves behind, written as it goes.

config.toml           the complete configuration; `dac train --config` runs it again
metrics.csv           one row per member and evaluation
summary.json          per member: seed, hyperparameters, steps, updates, returns, visited cells; speed; versions
policy.safetensors    the policies of all members, stacked
checkpoint/           what `dac resume` continues from
visits.npz            visit counts at chosen steps and the step of each cell's first visit, where the task has a grid
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dac._version import __version__
from dac.config import RunConfig
from dac.population import Member
from dac.training.base import AbstractLoop
from dac.training.evaluate import Evaluation
from dac.types import UsageError
from dac.weights import save_tree, write_atomically

CONFIG, METRICS, SUMMARY, POLICY, VISITS = (
    "config.toml",
    "metrics.csv",
    "summary.json",
    "policy.safetensors",
    "visits.npz",
)
SNAPSHOTS = (5_000, 50_000, 300_000)  # the histograms of Fig. 1, Han & Sung 2021


def choose_directory(wanted: Path | None, task: str, algorithm: str) -> Path:
    """The directory for a new run: the one asked for, which must be empty or absent, or the next free number.

    It is created once everything else was found to be in order.
    """
    directory = _next_free(f"{task.replace(':', '-').replace('/', '-')}-{algorithm}") if wanted is None else wanted
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        more = f", or continue it with: dac resume {directory}" if (directory / CONFIG).is_file() else ""
        raise UsageError(f"{directory} exists already; give another --out, or remove it first{more}")
    return directory


def make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {directory}: {error.strerror}") from None


def _next_free(stem: str) -> Path:
    number = 1
    while (path := Path("runs") / f"{stem}-{number:03d}").exists():
        number += 1
    return path


class Note(NamedTuple):
    """The rows of an evaluation whose episodes are still to be run."""

    step: int
    """Environment steps per member."""
    rows: list[dict[str, Any]]


class Recorder:
    """Writes a run directory."""

    def __init__(self, directory: Path, config: RunConfig, members: list[Member]):
        self.directory, self.config, self.members = directory, config, members
        self.best = np.full(len(members), -np.inf)
        self.last = np.full(len(members), np.nan)
        self.seconds = 0.0
        """Wall-clock time of the parts of this run before this one."""
        self.warnings: dict[str, str] = {}
        """By member and metric, what looked wrong."""
        self._snapshots: dict[str, np.ndarray] = {}
        self._columns: list[str] | None = None
        self._size, self._digest = 0, hashlib.blake2b(digest_size=16)

    def write_config(self) -> None:
        """The configuration in full: from here on the directory holds a run."""
        header = f"# dac {__version__}; run it again with: dac train --config {CONFIG}\n"
        write_atomically(self.directory / CONFIG, (header + self.config.to_toml()).encode())

    def notes(self) -> dict[str, Any]:
        """What a checkpoint has to remember of the record; the rows so far are on the disk when this returns."""
        path = self.directory / METRICS
        if path.exists():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
        return {
            "metrics": {"bytes": self._size, "digest": self._digest.hexdigest()},
            "columns": self._columns,
            "best": [float(v) for v in self.best],
            "last": [float(v) for v in self.last],
            "warnings": self.warnings,
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """The part of it that is large."""
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
        """Continue from a checkpoint, or from the start: rows that came after it are dropped, to be made again."""
        path = self.directory / METRICS
        try:
            if path.exists():
                os.truncate(path, 0 if notes is None else notes["metrics"]["bytes"])
            (self.directory / SUMMARY).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        if notes is not None:
            self.best, self.last = np.array(notes["best"], float), np.array(notes["last"], float)
            self.seconds, self.warnings = notes["seconds"], dict(notes["warnings"])
            self._columns, self._snapshots = notes["columns"], dict(arrays)
            self._count(path.read_bytes() if path.exists() else b"")

    def warn(self, index: int, name: str, line: str) -> bool:
        """Take note of a warning; whether it is the first of its kind for this member."""
        return self.warnings.setdefault(f"{index} {name}", line) is line

    def note(self, loop: AbstractLoop, metrics: Mapping[str, np.ndarray]) -> Note:
        """What an evaluation at this step will say beside its returns."""
        step = loop.step * loop.schedule.envs
        visited, visits = loop.visited(), loop.visits()
        rows = []
        for index, member in enumerate(self.members):
            row: dict[str, Any] = {"member": index, "seed": member.seed}
            row |= {name: member.hyper[name] for name in self.config.varied()}
            row |= {"step": step, "updates": loop.schedule.updates(loop.step)}
            row |= dict.fromkeys(("return", "return_std", "length"))  # until the episodes are run
            row["frozen"] = int(index in loop.health.failures)
            if visited is not None:
                row["visited"] = int(visited[index])
            row |= {name: value[index] for name, value in metrics.items()}
            rows.append(row)
        if visits is not None and (step in SNAPSHOTS or step == loop.schedule.steps):
            self._snapshots[f"visits_{step}"] = visits.astype(np.uint32 if visits.max() > 65_535 else np.uint16)
        return Note(step, rows)

    def evaluation(self, note: Note, result: Evaluation) -> dict[str, Any]:
        """Append one row per member; returns means over members for the progress line."""
        self.last = result.returns.mean(axis=1)
        self.best = np.fmax(self.best, self.last)
        for index, row in enumerate(note.rows):
            row |= {"return": self.last[index], "return_std": result.returns[index].std()}
            row["length"] = result.lengths[index].mean()
        self._append(note.rows)
        line = {"return": float(self.last.mean())}
        if "visited" in note.rows[0]:
            line["visited"] = float(np.mean([row["visited"] for row in note.rows]))
        return line

    def finish(self, loop: AbstractLoop, seconds: float, agent_steps_per_second: float | None) -> dict[str, Any]:
        """Write the policies, the visit counts and the summary."""
        save_tree(self.directory / POLICY, loop.policies())
        visited, first = loop.visited(), loop.first_visits()
        if first is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, first_visit=first.astype(np.int32), **self._snapshots)  # type: ignore[arg-type]
            write_atomically(self.directory / VISITS, buffer.getvalue())
        members = []
        for index, member in enumerate(self.members):
            entry: dict[str, Any] = {
                "seed": member.seed,
                "hyper": dict(member.hyper),
                "steps": loop.step * loop.schedule.envs,
                "updates": loop.schedule.updates(loop.step),
                "frozen": loop.health.save().get(str(index)),
                "final_return": float(self.last[index]),
                "max_return": float(self.best[index]),
            }
            if visited is not None:
                entry["visited_cells"] = int(visited[index])
            members.append(entry)
        summary = {
            "algorithm": self.config.algorithm,
            "task": self.config.task,
            "members": members,
            "agent_steps_per_second": agent_steps_per_second,
            "seconds": self.seconds + seconds,
            "warnings": list(self.warnings.values()),
            "versions": versions(),
        }
        text = json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n"
        write_atomically(self.directory / SUMMARY, text.encode())
        return summary

    def _append(self, rows: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=self._columns or list(rows[0]), lineterminator="\n")
        if self._columns is None:
            self._columns = list(rows[0])
            writer.writeheader()
        writer.writerows({k: _cell(v) for k, v in row.items()} for row in rows)
        path, content = self.directory / METRICS, text.getvalue().encode()
        try:
            with open(path, "ab") as file:
                file.write(content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        self._count(content)

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
