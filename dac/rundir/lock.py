"""One process per run directory, also where several machines share it.

On one machine the system's own file lock decides: it ends with its process. It does not reach across machines on every
file system, so the holder also changes a counter in the file every few seconds. Whoever finds a lock of another machine
watches that counter by its own clock, since clocks of two machines differ: one that stands still for a whole lease
belongs to a process that is gone, or cannot be told from it, and is taken over. Should that process come back (it was
paused, or cut off from the network), it is fenced: it finds a newer lock before each write, and writes nothing more.

    RUN/lock       the first holder's: process, host, boot, counter, length of the lease
    RUN/lock.1     the lock that took over from it; the highest number counts, and is made by one process alone

Three things together leave no gap between looking and writing (`dac/rundir/files.py`, `Recorder.restore`): a file is
written under another name, the lock is looked at, and the file is renamed; a new holder removes what waits under such
names; and metrics.csv becomes another file when a run goes on, while rows go into one that was opened before looking.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any, Self

from dac.core.errors import UsageError

NAME = "lock"
LEASE = "DAC_LEASE"
"""Names the environment variable with the seconds without a sign after which another machine may take over."""
BEATS = 10
"""Signs of life in the time of a lease."""
PART = ".part"
"""Ends the names of files that are being written."""
TOKEN = secrets.token_hex(4)
"""Tells this process's unfinished files from those of another one."""
_HELD: dict[str, Lock] = {}


class InUse(UsageError):
    """Another process trains in a run directory."""


class Fenced(UsageError):
    """Another process has taken a run directory over from this one."""


class Lock:
    """Held from `__enter__` to `__exit__`, or to the death of the process: the system lets go of it by itself.

    A holder of another machine is watched for as long as its lease says. The file is made whole under another name and
    linked, so nobody ever reads a part of it.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self._file, self._number, self._beat = -1, 0, 0
        self._ended = threading.Event()

    @property
    def path(self) -> Path:
        return _file(self.directory, self._number)

    def __enter__(self) -> Self:
        try:
            self._lease = float(os.environ.get(LEASE) or 60)
        except ValueError:
            self._lease = 0.0
        if not self._lease > 0:
            raise UsageError(f"{LEASE} must be seconds above 0, not {os.environ[LEASE]!r}")
        try:
            self._take()
            self._remove_parts()
        except OSError as error:
            self._close()
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None
        except BaseException:
            self._close()
            raise
        _HELD[os.path.realpath(self.directory)] = self
        self._ended.clear()
        self._thread = threading.Thread(target=self._keep_beating, name="lock", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        _HELD.pop(os.path.realpath(self.directory), None)
        # a file that cannot be removed any more is stale from now on, which does no harm
        with contextlib.suppress(OSError):
            if self._is_mine():
                self.path.unlink()
        self._close()

    def check(self) -> None:
        """Refuse to go on if another process has taken over."""
        latest = _latest(self.directory)
        if latest == self._number and self._is_mine():
            return
        by = "" if latest is None else f" by {_describe(_content(_file(self.directory, latest)))}"
        raise Fenced(
            f"{self.directory} was taken over{by} while this process gave no sign of life; it writes nothing more there"
        )

    def _take(self) -> None:
        self._number = 0
        latest = _latest(self.directory)
        if latest is None:
            self._create()
            return
        self._number = latest
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:  # its holder removed it just now; who comes next makes a new one
            raise InUse(self._refusal(b"")) from None
        holder = os.pread(descriptor, 4096, 0)
        found, refusal = _read(holder), self._refusal(holder)
        free = _flock(descriptor)
        if holder and _is_here(found):
            if free is None:
                free = not _is_running(found.get("pid"))
            if not free or not _same(descriptor, self.path):
                os.close(descriptor)
                raise InUse(refusal)
            # a file nobody holds on this machine is stale: its process died
            self._file = descriptor
            self._write()
            return
        os.close(descriptor)
        if holder and "beat" not in found:  # of a version that gives no sign
            raise InUse(f"{refusal}; if that is gone, remove {self.path}")
        self._watch(holder, found, refusal)
        self._number += 1
        self._create()

    def _watch(self, holder: bytes, found: dict[str, Any], refusal: str) -> None:
        """Return when the counter has stood still for the lease of its holder; refuse when it moves."""
        lease = found.get("lease")
        lease = float(lease) if isinstance(lease, int | float) and lease > 0 else self._lease
        logging.getLogger("dac").warning(
            "%s is held by %s; waiting up to %.0f s for a sign of it", self.directory, _describe(holder), lease
        )
        end = time.monotonic() + lease
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, lease / BEATS / 2))
            if _content(self.path) != holder or _latest(self.directory) != self._number:
                raise InUse(refusal)

    def _create(self) -> None:
        """Make the file of this number, which one process alone can do."""
        refusal = f"{self.directory} is in use by another process that began just now"
        part = self.directory / f"{NAME}.{secrets.token_hex(8)}{PART}"  # its own, also among threads of one process
        self._file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        _flock(self._file)
        self._write()
        try:
            try:
                os.link(part, self.path)
                part.unlink(missing_ok=True)  # the lock stands: whoever removed the other name changes nothing
            except (FileExistsError, FileNotFoundError):
                raise
            except OSError:  # no links here: an empty file, until this one takes its place
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                os.replace(part, self.path)
        except (FileExistsError, FileNotFoundError):
            part.unlink(missing_ok=True)
            raise InUse(refusal) from None
        if _latest(self.directory) != self._number:  # this one looked before somebody took over, and wrote after
            self.path.unlink(missing_ok=True)
            raise InUse(refusal)
        for number in _numbers(self.directory):
            if number < self._number:
                _file(self.directory, number).unlink(missing_ok=True)

    def _write(self) -> None:
        content = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "lease": self._lease}
        content["beat"] = f"{self._beat:012d}"  # always of one length, so that a part of it is never left
        if not self._beat:
            os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(content).encode(), 0)
        os.fsync(self._file)  # other machines see what was written when it is synced

    def _keep_beating(self) -> None:
        while not self._ended.wait(self._lease / BEATS):
            self._beat += 1
            with contextlib.suppress(OSError):  # a disk that fails now and then costs a beat
                self._write()

    def _remove_parts(self) -> None:
        """Remove what was being written under another name when its writer died, or was fenced."""
        for folder in (self.directory, *(path for path in self.directory.iterdir() if path.is_dir())):
            for path in folder.glob(f"*{PART}"):
                path.unlink(missing_ok=True)

    def _is_mine(self) -> bool:
        try:  # to open it asks a file server anew, which `stat` need not
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError:
            return False
        try:
            return _same(self._file, descriptor)
        finally:
            os.close(descriptor)

    def _refusal(self, holder: bytes) -> str:
        return f"{self.directory} is in use by {_describe(holder)}"

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def check_held(path: Path) -> None:
    """Refuse to write a file of a run directory that this process has locked, if another one has taken it over."""
    real = os.path.realpath(path)
    for directory, lock in list(_HELD.items()):
        if real.startswith(directory + os.sep):
            lock.check()


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who a lock file names."""

    pid: int | None
    host: str | None
    alive: bool
    """Whether that process still holds it; of another machine it is believed."""


def find_holder(directory: Path) -> Holder | None:
    """Return who trains in a run directory, or did when the machine or the process died; None if nobody does."""
    number = _latest(directory)
    try:
        descriptor = os.open(_file(directory, number or 0), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = _read(os.pread(descriptor, 4096, 0))
        pid, host = found.get("pid"), found.get("host")
        pid, host = pid if isinstance(pid, int) else None, host if isinstance(host, str) else None
        return Holder(pid, host, not _is_here(found) or _is_held(descriptor, pid))
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, pid: int | None) -> bool:
    """Whether a process of this machine holds the lock; it is only tried where there is a process of that number.

    Trying takes it for a moment if nobody has it, which could be the very moment at which a run wants it.
    """
    if pid is not None and not _is_running(pid):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _is_running(pid: Any) -> bool:
    """Whether there is a process of that number on this machine."""
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return True


def _flock(descriptor: int) -> bool | None:
    """Take the system's lock on a file; None where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def _is_here(found: dict[str, Any]) -> bool:
    """Whether a lock is of this machine; two machines may have one name, but were not started in the same instant."""
    return found.get("host") in (None, socket.gethostname()) and found.get("boot") in (None, _boot())


def _boot() -> str | None:
    """What the system calls this start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _file(directory: Path, number: int) -> Path:
    return directory / (f"{NAME}.{number}" if number else NAME)


def _numbers(directory: Path) -> list[int]:
    """The numbers of the lock files in a directory."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (re.fullmatch(rf"{NAME}(?:\.(\d+))?", name) for name in names)
    return [int(match[1] or 0) for match in found if match]


def _latest(directory: Path) -> int | None:
    return max(_numbers(directory), default=None)


def _same(file: int, other: int | Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(other))
    except OSError:
        return False


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _read(holder: bytes) -> dict[str, Any]:
    try:
        found = json.loads(holder)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return {}


def _describe(holder: bytes) -> str:
    found = _read(holder)
    return f"process {found.get('pid', 'unknown')} on {found.get('host', 'an unknown machine')}"
