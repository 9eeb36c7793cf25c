"""Checkpoints of a whole run: what a run needs to go on to the bit, in files that can execute nothing.

    RUN/checkpoint/step-000000020000.json     the manifest: which files, their sizes and checksums; written last
    RUN/checkpoint/state-000000020000.safetensors     networks, optimisers, environments, counters
    RUN/checkpoint/ring-000000000000-000000019999.safetensors     the rows added to the ring since the one before

Rows of the ring never change once written, so each checkpoint adds a piece and old pieces go when the ring has
overwritten them. A file is written under another name, synced and renamed, and the manifest comes last: a crash at any
instant leaves the checkpoints before it whole. Training waits for copies on the device only; a thread does the rest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from dac._version import __version__
from dac.core.types import UsageError
from dac.rundir.files import write_atomically
from dac.rundir.lock import check_held

SCHEMA = 1
FOLDER = "checkpoint"
KEPT = 2
"""Checkpoints kept: should the latest be damaged, there is one before."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A file of a checkpoint."""

    name: str
    bytes: int
    digest: str
    start: int = 0
    """For a piece of the ring: the number of its first row."""
    stop: int = 0


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a manifest says."""

    step: int
    """Loop iterations."""
    run: str
    """Fingerprint of the configuration."""
    state: Piece
    ring: tuple[Piece, ...]
    notes: Mapping[str, Any]
    """What the rest of the run wants to remember, as JSON."""
    platform: str


class Saveable(Protocol):
    """What a checkpoint asks of a training loop."""

    @property
    def step(self) -> int:
        """Loop iterations."""

    @property
    def stored(self) -> int:
        """Rows ever put into the replay buffer."""

    @property
    def capacity(self) -> int:
        """Rows that the replay buffer holds."""

    def snapshot(self) -> dict[str, Any]:
        """Everything the future depends on, but for the replay buffer and `step`, as copies by name."""

    def latest_rows(self, start: int) -> Any:
        """The rows from the `start`-th ever stored to the latest, (member, row number, row), as a copy."""


class Checkpointer:
    """Writes checkpoints of one run in the background."""

    def __init__(self, directory: Path, fingerprint: str, previous: Checkpoint | None = None):
        self.folder, self._fingerprint = directory / FOLDER, fingerprint
        self._pieces: tuple[Piece, ...] = () if previous is None else previous.ring
        self.last: int | None = None if previous is None else previous.step
        """Iteration of the latest good checkpoint."""
        self._thread: threading.Thread | None = None
        self._problem: str | None = None

    def save(
        self,
        loop: Saveable,
        notes: Mapping[str, Any],
        more: Mapping[str, np.ndarray],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Copy what there is to save and have it written; waits only for the checkpoint before.

        `then` is called in the same thread once the checkpoint is whole, for what belongs to it.
        """
        self.wait()
        step, stored, capacity = loop.step, loop.stored, loop.capacity
        oldest = max(0, stored - capacity)
        pieces = tuple(piece for piece in self._pieces if piece.stop > oldest)
        start = max(oldest, pieces[-1].stop if pieces else 0)
        arrays = loop.snapshot() | dict(more)
        rows = loop.latest_rows(start) if stored > start else None

        def write() -> None:
            try:
                self._write(step, arrays, rows, start, stored, pieces, notes)
                if then is not None:
                    then()
            except UsageError as error:
                self._problem = str(error)
            except Exception as error:  # a thread's exception would be lost
                self._problem = f"{type(error).__name__}: {error}"

        self._thread = threading.Thread(target=write, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Return when the checkpoint that is being written is complete, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def problem(self) -> str | None:
        """Return what went wrong since the last call, if anything did."""
        problem, self._problem = self._problem, None
        return problem

    def _write(
        self,
        step: int,
        arrays: Mapping[str, Any],
        rows: Any,
        start: int,
        stored: int,
        pieces: tuple[Piece, ...],
        notes: Mapping[str, Any],
    ) -> None:
        import jax

        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {self.folder}: {error.strerror}") from None
        state = self._put(f"state-{step:012d}.safetensors", arrays)
        if rows is not None:
            name = f"ring-{start:012d}-{stored - 1:012d}.safetensors"
            piece = self._put(name, {"rows": rows})
            pieces = (*pieces, dataclasses.replace(piece, start=start, stop=stored))
        checkpoint = Checkpoint(step, self._fingerprint, state, pieces, notes, jax.devices()[0].platform)
        write_atomically(self.folder / _manifest_name(step), _to_json(checkpoint))
        self._pieces, self.last = pieces, step
        _remove_old(self.folder, step)

    def _put(self, name: str, arrays: Mapping[str, Any]) -> Piece:
        content = save({key: np.asarray(array, order="C") for key, array in arrays.items()})
        write_atomically(self.folder / name, content)
        return Piece(name, len(content), _digest(content))


def restore_latest(
    directory: Path, fingerprint: str, accept: Callable[[Checkpoint], None], report: Callable[[str], None]
) -> tuple[Checkpoint, dict[str, np.ndarray], list[tuple[int, np.ndarray]]] | None:
    """The latest checkpoint that is whole, with its arrays; None if there is none at all.

    One that is damaged, or that `accept` refuses with an error, is reported and the one before it is tried.
    """
    folder = directory / FOLDER
    manifests = sorted(folder.glob("step-*.json"), reverse=True) if folder.is_dir() else []
    problems = []
    for path in manifests:
        try:
            checkpoint = _read_manifest(path)
            if checkpoint.run != fingerprint:
                raise UsageError(f"{path} belongs to another run, or {directory}/config.toml was changed")
            accept(checkpoint)
            arrays = _read_piece(folder, checkpoint.state)
            rows = [(piece.start, _read_rows(folder, piece)) for piece in checkpoint.ring]
        except UsageError as error:
            problems.append(str(error))
            continue
        except (KeyError, TypeError, ValueError) as error:
            problems.append(f"{path} is damaged: {type(error).__name__} {error}")
            continue
        for problem in problems:
            report(f"{problem}; the checkpoint of iteration {checkpoint.step} is used")
        return checkpoint, arrays, rows
    if problems:
        raise UsageError(f"no checkpoint in {folder} can be used: {'; '.join(problems)}")
    return None


def disk_bytes(state: Mapping[str, Any], replay_bytes: int) -> int:
    """What the checkpoints of a run will need: the replay buffer, and a state for each that is kept and one more."""
    return int((KEPT + 1) * sum(np.prod(a.shape, dtype=int) * a.dtype.itemsize for a in state.values()) + replay_bytes)


def free_bytes(directory: Path) -> int:
    """Free space where a directory is, or will be."""
    while not directory.exists():
        directory = directory.absolute().parent
    return shutil.disk_usage(directory).free


def _manifest_name(step: int) -> str:
    return f"step-{step:012d}.json"


def _to_json(checkpoint: Checkpoint) -> bytes:
    body = {"schema": SCHEMA, "dac": __version__} | dataclasses.asdict(checkpoint)
    text = json.dumps(body, sort_keys=True)
    return json.dumps({"digest": _digest(text.encode()), "checkpoint": body}, sort_keys=True, indent=1).encode()


def _read_manifest(path: Path) -> Checkpoint:
    try:
        whole = json.loads(path.read_bytes())
        body = whole["checkpoint"]
        schema = body["schema"]
        if schema != SCHEMA:
            raise UsageError(f"{path} has schema {schema!r}; this version of dac reads {SCHEMA}")
        if _digest(json.dumps(body, sort_keys=True).encode()) != whole["digest"]:
            raise UsageError(f"{path} is damaged: its checksum differs")
        del body["schema"], body["dac"]
        pieces = tuple(Piece(**piece) for piece in body.pop("ring"))
        checkpoint = Checkpoint(**body | {"state": Piece(**body["state"]), "ring": pieces})
        _check_types(checkpoint)
        for piece, following in itertools.pairwise(pieces):
            if piece.stop != following.start:
                raise ValueError
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{path} is damaged: it is not a manifest of a checkpoint") from None
    if path.name != _manifest_name(checkpoint.step):
        raise UsageError(f"{path} is damaged: it is the manifest of step {checkpoint.step}")
    return checkpoint


def _check_types(value: Any) -> None:
    """Every field of the type it is declared to have; a checksum can be right and the rest wrong."""
    for field in dataclasses.fields(value):
        found: Any = getattr(value, field.name)
        expected: Any = {"int": int, "str": str, "Piece": Piece, "tuple[Piece, ...]": tuple}.get(str(field.type), dict)
        if type(found) is not expected or (expected is int and found < 0):
            raise TypeError(field.name)
        for part in found if expected is tuple else [found] if expected is Piece else []:
            _check_types(part)


def _read_piece(folder: Path, piece: Piece) -> dict[str, np.ndarray]:
    path = folder / piece.name
    try:
        if path.parent != folder or not re.fullmatch(r"[a-z0-9-]+\.safetensors", piece.name):
            raise UsageError(f"{piece.name!r} is not a file of a checkpoint")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{path} is missing") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(content) != piece.bytes:
        raise UsageError(f"{path} is damaged: it has {len(content)} bytes of {piece.bytes}")
    if _digest(content) != piece.digest:
        raise UsageError(f"{path} is damaged: its checksum differs")
    try:
        return load(content)
    except (SafetensorError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None


def _read_rows(folder: Path, piece: Piece) -> np.ndarray:
    rows = _read_piece(folder, piece).get("rows")
    if rows is None or rows.ndim != 3 or rows.shape[1] != piece.stop - piece.start:
        raise UsageError(f"{folder / piece.name} is damaged: it does not hold rows {piece.start} to {piece.stop - 1}")
    return rows


def _remove_old(folder: Path, step: int) -> None:
    """Remove what the latest checkpoints, up to this one, do not need.

    Later ones are of a future that was given up: they were damaged, and the run went on from before them.
    """
    manifests = sorted((p for p in folder.glob("step-*.json") if p.name <= _manifest_name(step)), reverse=True)
    needed = {path.name for path in manifests[:KEPT]}
    for path in manifests[:KEPT]:
        try:
            checkpoint = _read_manifest(path)
        except UsageError:  # damaged since; its files may serve to find out why
            return
        needed |= {checkpoint.state.name, *(piece.name for piece in checkpoint.ring)}
    unneeded = [path for path in folder.iterdir() if path.name not in needed]
    check_held(folder)  # what another process writes after it has taken over is not in the list
    for path in unneeded:
        path.unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
