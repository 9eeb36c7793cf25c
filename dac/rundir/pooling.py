"""Members of several runs go on together as one run, each as it would have gone on where it was.

A member's randomness follows from its seed and the step, everything that changes with time is stored with a leading
member axis, and what is shared is the step alone. So members that stand at the same step of runs that differ only in
seeds and float settings can change company: their parts of each array are put side by side.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dac.config import RunConfig, resolve
from dac.core.population import Member
from dac.core.types import UsageError
from dac.rundir.checkpoints import Checkpoint, Checkpointer, restore_latest
from dac.rundir.files import make_directory
from dac.rundir.names import METRICS, POLICY
from dac.rundir.reading import RunDirectory
from dac.rundir.weights import read_arrays, save_arrays
from dac.rundir.writing import Recorder, check_new

Pick = tuple[RunDirectory, int]
"""A run and the number of one of its members."""
Row = dict[str, str]


@dataclasses.dataclass(frozen=True)
class _Source:
    """A run at its latest checkpoint."""

    run: RunDirectory
    checkpoint: Checkpoint
    arrays: Mapping[str, np.ndarray]
    rows: Sequence[tuple[int, np.ndarray]]
    evaluations: Sequence[Sequence[Row]]
    """The rows of metrics.csv up to the checkpoint, by evaluation and member."""


@dataclasses.dataclass(frozen=True)
class _Pooled:
    """What a checkpoint asks of a training loop, put together from the checkpoints of others."""

    step: int
    stored: int
    capacity: int
    arrays: dict[str, np.ndarray]
    rows: np.ndarray
    """The latest transitions of every member, up to the `stored`-th."""

    def snapshot(self) -> dict[str, Any]:
        return self.arrays

    def latest_rows(self, start: int) -> np.ndarray:
        return self.rows[:, self.rows.shape[1] - (self.stored - start) :]


def pool(picks: Sequence[Pick], directory: Path) -> RunDirectory:
    """Write a run whose members are those of other runs, each at the latest checkpoint of its run.

    The runs must have the same settings but for seeds and float settings, and stand at the same step. They are only
    read. `dac resume` goes on with the new run.
    """
    if not picks:
        raise UsageError("a pool needs at least one member of a run")
    check_new(directory)
    for run, index in picks:
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(run.members):
            raise UsageError(f"{run.directory} has members 0 to {len(run.members) - 1}, not {index!r}")
    sources = {run.directory: _read(run) for run, _ in picks}
    chosen = [(sources[run.directory], index) for run, index in picks]
    first = chosen[0][0]
    for source in sources.values():
        _check_same(first, source)
    config = combined([(source.run.config, source.run.members[index]) for source, index in chosen])
    make_directory(directory.parent)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as part:
        whole = Path(part) / "run"
        whole.mkdir()
        _write(chosen, config, whole)
        whole.rename(directory)
    return RunDirectory(directory)


def combined(members: Sequence[tuple[RunConfig, Member]]) -> RunConfig:
    """The configuration of a run with these members, the first one's otherwise."""
    base = members[0][0]
    values: dict[str, Any] = {}
    for name in base.floats():
        column = [member.hyper[name] for _, member in members]
        values[name] = column if len(set(column)) > 1 else column[0]
    training = dataclasses.asdict(base.training) | {"combine": "zip"}
    return resolve(base.algorithm, base.task, [m.seed for _, m in members], {**base.hyper, **values, **training})


def _read(run: RunDirectory) -> _Source:
    problems: list[str] = []
    found = restore_latest(run.directory, run.config.fingerprint(), lambda checkpoint: None, problems.append)
    if problems:  # another step than the others' would be taken in silence
        raise UsageError(problems[0])
    if found is None:
        raise UsageError(f"{run.directory} has no checkpoint from which its members could go on")
    checkpoint, arrays, rows = found
    path = run.directory / METRICS
    content = path.read_bytes()[: checkpoint.notes["metrics"]["bytes"]] if path.exists() else b""
    table = list(csv.DictReader(io.StringIO(content.decode())))
    count = len(run.members)
    return _Source(run, checkpoint, arrays, rows, [table[k : k + count] for k in range(0, len(table), count)])


def _check_same(first: _Source, other: _Source) -> None:
    """Refuse runs whose members cannot share a program, and those that stand at different steps."""
    both = [_shared(source.run.config) for source in (first, other)]
    names = f"{other.run.directory} cannot be pooled with {first.run.directory}"
    for name in {**both[0], **both[1]}:
        if both[0].get(name) != both[1].get(name):
            raise UsageError(f"{names}: {name} is {both[1].get(name)!r} and not {both[0].get(name)!r}")
    steps = [source.checkpoint.step * source.run.config.training.envs for source in (first, other)]
    if steps[0] != steps[1]:
        raise UsageError(f"{names}: its latest checkpoint is of step {steps[1]:,} and not {steps[0]:,}")


def _shared(config: RunConfig) -> dict[str, Any]:
    """Every setting in which the members of one run cannot differ."""
    floats = config.floats()
    static = {name: value for name, value in config.hyper.items() if name not in floats}
    training = dataclasses.asdict(config.training)
    del training["combine"], training["devices"]
    return {"algorithm": config.algorithm, "task": config.task, **static, **training}


def _write(chosen: Sequence[tuple[_Source, int]], config: RunConfig, directory: Path) -> None:
    first, members = chosen[0][0], config.members()
    recorder = Recorder(directory, config, members)
    recorder.write_config()
    for rows in zip(*(source.evaluations for source, _ in chosen), strict=True):
        own = [(evaluation[index], source.run) for evaluation, (source, index) in zip(rows, chosen, strict=True)]
        recorder.append([_renumber(row, run, k, config, members[k]) for k, (row, run) in enumerate(own)])
    health = {}
    for k, (source, index) in enumerate(chosen):
        notes = source.checkpoint.notes
        if str(index) in notes["health"]:
            health[str(k)] = notes["health"][str(index)]
        for name, line in notes["warnings"].items():
            number, _, metric = name.partition(" ")
            if number == str(index):
                recorder.warnings[f"{k} {metric}"] = re.sub(r"^member \d+ \(", f"member {k} (", line)
    seconds = max(source.checkpoint.notes["seconds"] for source, _ in chosen)
    everywhere = [name for name in first.arrays if all(name in source.arrays for source, _ in chosen)]
    arrays = {name: _side_by_side(chosen, name) for name in everywhere}
    schedule = config.schedule()
    stored = max(first.checkpoint.step - 1, 0) * schedule.envs
    pooled = _Pooled(first.checkpoint.step, stored, schedule.capacity, arrays, _rows(chosen))
    checkpointer = Checkpointer(directory, config.fingerprint())
    checkpointer.save(pooled, recorder.notes() | {"health": health, "seconds": seconds}, {})
    checkpointer.wait()
    if (problem := checkpointer.problem()) is not None:
        raise UsageError(problem)
    if all((source.run.directory / POLICY).is_file() for source, _ in chosen):
        files = {source.run.directory: read_arrays(source.run.directory / POLICY) for source, _ in chosen}
        own_files = [(files[source.run.directory], len(source.run.members), index) for source, index in chosen]
        names = own_files[0][0]
        save_arrays(
            directory / POLICY, {n: np.concatenate([_part(f[n], c, i) for f, c, i in own_files]) for n in names}
        )


def _renumber(row: Row, run: RunDirectory, index: int, config: RunConfig, member: Member) -> dict[str, Any]:
    """A member's row in its new company: its new number, and the settings that differ now instead of those before.

    What is measured may have the name of a setting, such as a learning rate that falls.
    """
    rest = {name: value for name, value in row.items() if name not in {"member", "seed", *run.config.varied()}}
    number = {"member": index, "seed": member.seed}
    return number | {name: member.hyper[name] for name in config.varied()} | rest


def _part(array: np.ndarray, count: int, index: int) -> np.ndarray:
    """One member's part of an array over `count` members, of which each may have several entries in a row."""
    each = array.shape[0] // count
    return array[index * each : (index + 1) * each]


def _side_by_side(chosen: Sequence[tuple[_Source, int]], name: str) -> np.ndarray:
    """The members' parts of an array; rows of bytes, such as a saved environment's, are as long as the longest."""
    parts = [_part(source.arrays[name], len(source.run.members), index) for source, index in chosen]
    if parts[0].dtype == np.uint8 and parts[0].ndim == 2:
        longest = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, longest - part.shape[1]))) for part in parts]
    return np.concatenate(parts)


def _rows(chosen: Sequence[tuple[_Source, int]]) -> np.ndarray:
    """The latest transitions of every member; pieces of older ones reach back differently far."""
    each = [np.concatenate([rows[index] for _, rows in source.rows]) for source, index in chosen if source.rows]
    shortest = min(map(len, each), default=0)
    return np.stack([rows[len(rows) - shortest :] for rows in each]) if each else np.zeros((len(chosen), 0, 0))
