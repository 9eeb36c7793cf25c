"""The engines by the word after `--engine`, each with the module that has it, loaded when it is asked for."""

from __future__ import annotations

import difflib
import importlib

from dac.cluster.engines.base import AbstractEngine
from dac.core.errors import UsageError

ENGINES = {"local": "dac.cluster.engines.local"}
"""Each module has `make(jobs, address)`; the address says where a cluster is, and this machine has none."""


def check_engine(name: str, address: str | None = None) -> None:
    """Refuse an engine that does not exist, and an address for this machine."""
    if name not in ENGINES:
        close = difflib.get_close_matches(name, ENGINES, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"unknown engine {name!r}{hint} (accepted: {', '.join(ENGINES)})")
    if name == "local" and address is not None:
        raise UsageError("the engine `local` is this machine and takes no `address=`")


def make_engine(name: str, jobs: int | None = None, address: str | None = None) -> AbstractEngine:
    """Make an engine that trains `jobs` populations at a time; None for as many as there is room for."""
    check_engine(name, address)
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    return importlib.import_module(ENGINES[name]).make(jobs, address)
