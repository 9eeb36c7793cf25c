"""The state of a run from its directory alone, read quickly and without JAX: nothing is resolved or imported for it.

Whatever is damaged is said in `problem`; a glance never fails. A run of an environment that is not installed here is
one like any other.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import socket
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dac.core.errors import UsageError
from dac.rundir.lock import Holder, find_holder
from dac.rundir.names import CONFIG, METRICS, PROGRESS, SUMMARY
from dac.rundir.table import read_tail

State = Literal["running", "finished", "stopped", "broken"]
SILENCE = 3600.0
"""Seconds without a sign after which a process of another machine, which cannot be asked, is taken for dead."""
CHECKPOINTS = "checkpoint"
NO_RUNS = {CHECKPOINTS, "tensorboard", "wandb", "trackio", "policies"}
"""Folders of a run directory in which no run can be."""


@dataclasses.dataclass(frozen=True)
class Glance:
    """What can be seen of a run at once."""

    directory: Path
    state: State
    detail: str = ""
    """What there is to know of the state: where it runs, or what is broken."""
    algorithm: str = "?"
    task: str = "?"
    members: int = 0
    frozen: tuple[int, ...] = ()
    """The numbers of the members that are frozen."""
    step: int = 0
    """Environment steps per member that are done."""
    steps: int = 0
    """Environment steps per member that there are to be."""
    mean_return: float | None = None
    """Of the last evaluation, over the members that are not frozen; over all where every one is."""
    rate: float | None = None
    """Agent-steps per second in training."""
    devices: int = 1
    """How many devices the members are, or were, spread over."""
    seconds_left: float | None = None
    pid: int | None = None
    host: str | None = None
    heard: float | None = None
    """When the run last wrote how far it is, in seconds since 1970."""
    warnings: tuple[str, ...] = ()
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """config.toml as it stands."""
    summary: Mapping[str, Any] | None = None
    """summary.json, of a finished run."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values with names that say their units."""
        return {
            "run": str(self.directory),
            "algorithm": self.algorithm,
            "task": self.task,
            "members": self.members,
            "frozen": list(self.frozen),
            "state": self.state,
            "detail": self.detail,
            "pid": self.pid,
            "host": self.host,
            "step": self.step,
            "steps": self.steps,
            "return": self.mean_return,
            "agent_steps_per_second": self.rate,
            "devices": self.devices,
            "seconds_left": self.seconds_left,
            "heard": self.heard,
            "warnings": list(self.warnings),
        }


def find_directories(folders: Sequence[Path]) -> list[Path]:
    """Return every run directory in and under some folders, each once."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no such folder: {folder}")
        for path in _walk(folder):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _walk(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        if CONFIG in files:
            yield Path(path)
        folders[:] = sorted(set(folders) - NO_RUNS) if CONFIG in files else sorted(folders)


def glance(directory: Path) -> Glance:
    """Look at one run directory."""
    seen: dict[str, Any] = {"directory": directory}
    try:
        _look(directory, seen)
    except UsageError as error:
        seen |= {"state": "broken", "detail": str(error).replace(f"{directory}{os.sep}", "")}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        seen |= {"state": "broken", "detail": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return Glance(**seen)


def _look(directory: Path, seen: dict[str, Any]) -> None:
    """Put what is found into `seen`, so that it is there where the rest is damaged."""
    config = _read_config(directory / CONFIG)
    training = config["training"]
    lists = [config["seeds"], *(value for value in config["hyper"].values() if is_sweep(value))]
    members = (max if training.get("combine") == "zip" else math.prod)(map(len, lists))
    seen |= {"config": config, "algorithm": config["algorithm"], "task": config["task"], "members": members}
    seen["steps"] = int(training["steps"])
    holder, summary, progress = find_holder(directory), _read_json(directory / SUMMARY), _read_progress(directory)
    heard = progress.get("time")
    silent = heard is not None and time.time() - heard > SILENCE
    running = holder is not None and holder.alive and (_is_here(holder) or not silent)
    if holder is not None and running:
        seen |= {"pid": holder.pid, "host": holder.host}
    seen["heard"] = heard
    tail = read_tail(directory / METRICS, members)
    step = 0
    if tail.count:
        rows = tail.evaluation(-1)
        step = int(rows[0]["step"])
        frozen = tuple(index for index, row in enumerate(rows) if row.get("frozen"))
        asked = [row["return"] for row in rows if not row.get("frozen")] or [row["return"] for row in rows]
        seen |= {
            "frozen": frozen,
            "mean_return": math.fsum(asked) / len(asked) if all(map(math.isfinite, asked)) else None,
        }
    checkpoint = _last_checkpoint(directory) * int(training.get("envs", 1))
    seen["warnings"] = tuple(map(str, progress.get("warnings", ())))
    if holder is not None and running:
        devices = int(progress.get("devices", 1))
        where = _where(holder) + (f", {devices} devices" if devices > 1 else "")
        seen |= {
            "state": "running",
            "detail": where,
            "devices": devices,
            "step": max(step, int(progress.get("step", 0))),
        }
        seen |= {"rate": progress.get("agent_steps_per_second"), "seconds_left": progress.get("seconds_left")}
    elif summary is not None:
        kinds = {
            "members": list,
            "versions": dict,
            "seconds": int | float,
            "agent_steps_per_second": int | float | None,
        }
        for name, kind in kinds.items():
            if not isinstance(summary.get(name, ...), kind):
                raise UsageError(f"{SUMMARY} is damaged: {name!r} is missing or not what it should be")
        devices = int(summary.get("devices", 1))
        seen |= {
            "state": "finished",
            "detail": f"on {devices} devices" if devices > 1 else "",
            "devices": devices,
            "step": seen["steps"],
            "rate": summary["agent_steps_per_second"],
            "summary": summary,
        }
        failures = {k: member["frozen"] for k, member in enumerate(summary["members"]) if member.get("frozen")}
        causes = [f"member {k} is frozen: {f['cause']}, found at step {f['step']}" for k, f in failures.items()]
        seen["frozen"] = tuple(failures)
        seen["warnings"] = (*causes, *map(str, summary.get("warnings", ())))
    else:
        seen |= {"state": "stopped", "detail": _why(holder, progress), "step": max(step, checkpoint)}


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} cannot be read: {(str(error).splitlines() or [''])[0]}") from None
    for name, kind in {"algorithm": str, "task": str, "seeds": list, "training": dict, "hyper": dict}.items():
        if not isinstance(config.get(name), kind):
            raise UsageError(f"{path.name} is damaged: {name!r} is missing or not what it should be")
    if not isinstance(config["training"].get("steps"), int) or not config["seeds"]:
        raise UsageError(f"{path.name} is damaged: it does not say how many steps, or which seeds")
    return config


def is_sweep(value: Any) -> bool:
    """Whether a setting is a list of which every member has one value: of floats, since sizes of layers are whole."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, float) for item in value)


def _read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file holds, or None where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path.name} is damaged: it holds no table")
    return found


def _read_progress(directory: Path) -> dict[str, Any]:
    """Return what the run last said of itself; nothing is lost where it cannot be read."""
    try:
        return _read_json(directory / PROGRESS) or {}
    except UsageError:
        return {}


def _last_checkpoint(directory: Path) -> int:
    """Iterations at the latest checkpoint; refuses a run of which no manifest is JSON."""
    folder = directory / CHECKPOINTS
    there = os.listdir(folder) if folder.is_dir() else []
    names = sorted((name for name in there if re.fullmatch(r"step-\d+\.json", name)), reverse=True)
    for name in names:
        try:
            json.loads((folder / name).read_bytes())
            return int(name.removeprefix("step-").removesuffix(".json"))
        except ValueError:
            continue
        except FileNotFoundError:  # removed by the run while we look
            return int(name.removeprefix("step-").removesuffix(".json"))
    if names:
        raise UsageError(f"no checkpoint can be read: {folder.name}/{names[0]} is damaged")
    return 0


def _is_here(holder: Holder) -> bool:
    return holder.host in (None, socket.gethostname())


def _where(holder: Holder) -> str:
    return f"process {holder.pid} on {holder.host}"


def _why(holder: Holder | None, progress: Mapping[str, Any]) -> str:
    """What is known of the end of a run that is not finished."""
    if holder is not None:
        return f"its process {holder.pid} on {holder.host} is gone"
    end = progress.get("end")
    return "" if end in (None, "ended") else str(end)
