"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dac.core.errors import UsageError
from dac.rundir.lock import PART, TOKEN, check_held


def write_atomically(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write to a new name, sync, rename: a crash leaves the old file or the new one, never a part.

    In a run directory that another process has taken over nothing is renamed. Without `sync` a power failure may lose
    the file, and its old content too.
    """
    temporary = path.with_name(f"{path.name}.{TOKEN}{PART}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        check_held(path)  # whoever takes over after this removes the file, and renaming it fails
        os.replace(temporary, path)
        if sync:
            sync_directory(path.parent)
    except (OSError, UsageError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, or say why that cannot be."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {directory}: {error.strerror}") from None
