"""One process per run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Self

from dac.core.errors import UsageError

NAME = "lock"


class Lock:
    """Held from `__enter__` to `__exit__`, or to the death of the process: the system lets go of it by itself.

    The file says who holds it. Locks do not reach across machines on every file system, so a file that names another
    machine is believed.
    """

    def __init__(self, directory: Path):
        self.path = directory / NAME

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                self._take()
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None
        return self

    def _take(self) -> None:
        holder = os.pread(self._file, 4096, 0)
        refusal = f"{self.path.parent} is in use by {_describe(holder)}"
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(refusal) from None
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except FileNotFoundError:
            same = False
        if not same:  # its holder removed it just now; who comes next makes a new one
            raise UsageError(refusal)
        here = socket.gethostname()
        if _read(holder).get("host") not in (None, here):
            raise UsageError(f"{refusal}; if that is gone, remove {self.path}")
        # a file nobody holds on this machine is stale: its process died
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"pid": os.getpid(), "host": here}).encode(), 0)

    def __exit__(self, *exception: object) -> None:
        # a file that cannot be removed any more is stale from now on, which does no harm
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._file)


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who a lock file names."""

    pid: int | None
    host: str | None
    alive: bool
    """Whether that process still holds it; of another machine it is believed."""


def find_holder(directory: Path) -> Holder | None:
    """Return who trains in a run directory, or did when the machine or the process died; None if nobody does."""
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = _read(os.pread(descriptor, 4096, 0))
        pid, host = found.get("pid"), found.get("host")
        pid, host = pid if isinstance(pid, int) else None, host if isinstance(host, str) else None
        return Holder(pid, host, host not in (None, socket.gethostname()) or _is_held(descriptor, pid))
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, pid: int | None) -> bool:
    """Whether a process of this machine holds the lock; it is only tried where there is a process of that number.

    Trying takes it for a moment if nobody has it, which could be the very moment at which a run wants it.
    """
    if pid is not None:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # it is somebody else's
            pass
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _read(holder: bytes) -> dict:
    try:
        found = json.loads(holder)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}


def _describe(holder: bytes) -> str:
    found = _read(holder)
    return f"process {found.get('pid', 'unknown')} on {found.get('host', 'an unknown machine')}"
