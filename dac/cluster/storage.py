"""Run directories in a place that is no file system of this machine: any URL that fsspec knows, copied at checkpoints.

A copy is as good as a run directory at every instant. The pieces of a checkpoint never change once written and come
first, metrics.csv holds at least the rows of the newest checkpoint, manifests come after what they name, and the
summary, with which a run is finished, comes last. A file is written under another name and renamed.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path
from typing import Any

from dac.core.errors import UsageError, needs_extra
from dac.rundir.lock import PART
from dac.rundir.names import CONFIG, METRICS, PROGRESS, SUMMARY

OWNER = "owner"
"""Names the worker that may write, in a copy that several might write: a lock does not reach so far."""
ATTEMPTS = 5
"""How often a copy is begun anew because the run went on and removed what was being copied."""
MANIFEST = re.compile(r"checkpoint/step-\d+\.json")
LIGHT = (PROGRESS, METRICS, CONFIG)
"""What tells how far a run is."""


class Place:
    """A folder of a file system that fsspec knows; `url` may be a path."""

    def __init__(self, url: str | Path):
        with needs_extra("ray", "a storage"):
            import fsspec
        try:
            self._system, self._root = fsspec.core.url_to_fs(str(url))
        except (ValueError, ImportError) as error:  # an unknown protocol, or one whose library is missing
            raise UsageError(f"storage {str(url)!r} cannot be used: {' '.join(str(error).split())}") from None

    def __truediv__(self, name: str) -> Place:
        place = object.__new__(Place)
        place._system, place._root = self._system, f"{self._root}/{name}"
        return place

    def sizes(self) -> dict[str, int]:
        """The files of a run by name, with their sizes."""
        self._system.invalidate_cache()
        try:
            found: dict[str, Any] = self._system.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        sizes = {path[len(self._root) :].lstrip("/"): entry["size"] for path, entry in found.items()}
        return {name: size for name, size in sizes.items() if not _is_private(name)}

    def last_checkpoint(self) -> str:
        """The name of the newest manifest, empty if there is none; later ones are greater."""
        return max((name for name in self.sizes() if MANIFEST.fullmatch(name)), default="")

    def read(self, name: str) -> bytes:
        return self._system.cat_file(f"{self._root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file that appears whole or not at all."""
        path, part = f"{self._root}/{name}", f"{self._root}/{name}.{secrets.token_hex(4)}{PART}"
        self._system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._system.pipe_file(part, content)
        self._system.mv(part, path)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")


def copy_run(source: Place, target: Place, *, light: bool = False) -> None:
    """Make the target what the source is, and as good as a run at every instant; only what is `light`, if asked."""
    for attempt in range(ATTEMPTS):
        here, there = source.sizes(), target.sizes()
        names = sorted(here, key=_rank)
        if light:
            names = [name for name in names if name in LIGHT]
        try:
            if SUMMARY in there and SUMMARY not in here and not light:
                target.remove(SUMMARY)  # a finished run that goes on
            for name in names:
                if name.endswith(".safetensors") and "/" in name and there.get(name) == here[name]:
                    continue
                target.write(name, source.read(name))
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1:
                raise
            continue
        for name in {} if light else there:
            if name not in here:
                target.remove(name)
        return


def _rank(name: str) -> tuple[int, str]:
    """In which order files are written."""
    if name == SUMMARY:
        return 3, name
    if MANIFEST.fullmatch(name):
        return 2, name
    return (0 if "/" in name else 1), name


def _is_private(name: str) -> bool:
    """Whether a file is about writing and not of the run: locks, unfinished files, the owner."""
    return name == OWNER or name.endswith(PART) or re.fullmatch(r"lock(\.\d+)?", name) is not None
