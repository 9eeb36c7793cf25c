"""The engines by the word after `--engine`, each with the module that has it, loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from dac.cluster.engines.base import AbstractEngine
from dac.core.errors import UsageError, did_you_mean

ENGINES = {
    "local": "dac.cluster.engines.local",
    "ray": "dac.cluster.engines.ray",
    "slurm": "dac.cluster.engines.slurm",
}
"""Each module has `make(jobs, address, options)`; the address says where a cluster is, and this machine has none."""


def check_engine(name: str, address: str | None = None, options: Mapping[str, str] | None = None) -> None:
    """Refuse an engine that does not exist, and an address or options for this machine."""
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r}{did_you_mean(name, ENGINES)} (accepted: {', '.join(ENGINES)})")
    if name == "local" and address is not None:
        raise UsageError("the engine `local` is this machine and takes no `address=`")
    if name == "local" and options:
        raise UsageError(f"the engine `local` has no option {next(iter(options))!r}; `jobs=` is all it takes")


def make_engine(
    name: str, jobs: int | None = None, address: str | None = None, options: Mapping[str, str] | None = None
) -> AbstractEngine:
    """Make an engine that trains `jobs` populations at a time; None for as many as there is room for."""
    check_engine(name, address, options)
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    return importlib.import_module(ENGINES[name]).make(jobs, address, options)


def read_options(texts: Sequence[str]) -> dict[str, str]:
    """Read the options of an engine, each written as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or name in found:
            why = f"{name} is given twice" if name in found else "an option of an engine is written NAME=VALUE"
            raise UsageError(f"bad option {text!r}: {why}")
        found[name] = value
    return found
