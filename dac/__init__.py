"""Diversity Actor-Critic: sample-aware maximum-entropy reinforcement learning, whole populations in one program."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dac._version import __version__ as __version__

if TYPE_CHECKING:
    from dac import callbacks as callbacks
    from dac.algorithms import DAC as DAC
    from dac.algorithms import SAC as SAC
    from dac.api import Run as Run
    from dac.api import load as load
    from dac.api import resume as resume
    from dac.api import train as train
    from dac.core.errors import UsageError as UsageError
    from dac.core.population import Member as Member
    from dac.core.types import EnvSpec as EnvSpec
    from dac.core.types import Transition as Transition

_HOMES = {
    "DAC": ("dac.algorithms", "DAC"),
    "SAC": ("dac.algorithms", "SAC"),
    "Run": ("dac.api", "Run"),
    "load": ("dac.api", "load"),
    "resume": ("dac.api", "resume"),
    "train": ("dac.api", "train"),
    "Member": ("dac.core.population", "Member"),
    "EnvSpec": ("dac.core.types", "EnvSpec"),
    "Transition": ("dac.core.types", "Transition"),
    "UsageError": ("dac.core.errors", "UsageError"),
}
"""Where each public name lives. It is imported at first use, so that `import dac` does not wait for JAX."""

_MODULES = ("callbacks",)
"""Modules that are public names themselves."""

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dac.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'dac' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
