"""Loggers send a run's evaluations elsewhere: one series per member, and per group its mean with a 95% interval.

metrics.csv is always written. A logger is one file in this folder and one line here and in `LOGGERS` of
`dac/config/schema.py`; it runs on a thread of its own (`background`), so it can neither slow nor break a run.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

from dac.config.schema import LOGGERS
from dac.core.errors import missing_extra
from dac.core.types import UsageError
from dac.training.loggers.background import AbstractLogger, Background

HOMES = {
    "tensorboard": ("tensorboardX", "TensorBoard"),
    "wandb": ("wandb", "WandB"),
    "trackio": ("trackio", "Trackio"),
}
"""The library that each logger needs, and its class in the module of its name."""


def make_loggers(names: Sequence[str]) -> list[Background]:
    """Return a watcher for each logger, or say which library is missing; the libraries are imported on its thread."""
    return [Background(name, _make(name)) for name in names]


def _make(name: str) -> AbstractLogger:
    if name not in HOMES:
        raise UsageError(f"log must be some of {', '.join(LOGGERS)}, not {name!r}")
    library, kind = HOMES[name]
    if importlib.util.find_spec(library) is None:
        raise missing_extra(name, f"the logger {name}")
    return getattr(importlib.import_module(f"dac.training.loggers.{name}"), kind)()
