"""Diversity Actor-Critic: sample-aware maximum-entropy reinforcement learning, whole populations in one program."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dac._version import __version__ as __version__
from dac.envs.ids import announce as _announce

_announce()  # `gymnasium.make("dac/SparseHopper-v0")`

if TYPE_CHECKING:
    from dac import callbacks as callbacks
    from dac.api import ACKTR as ACKTR
    from dac.api import DAC as DAC
    from dac.api import DEMME as DEMME
    from dac.api import MME as MME
    from dac.api import PPO as PPO
    from dac.api import RND as RND
    from dac.api import SAC as SAC
    from dac.api import SQL as SQL
    from dac.api import TD3 as TD3
    from dac.api import Environment as Environment
    from dac.api import Episodes as Episodes
    from dac.api import MaxEntState as MaxEntState
    from dac.api import Model as Model
    from dac.api import Population as Population
    from dac.api import Run as Run
    from dac.api import SACDiv as SACDiv
    from dac.api import evaluate as evaluate
    from dac.api import load as load
    from dac.api import pool as pool
    from dac.api import resume as resume
    from dac.api import train as train
    from dac.core.errors import UsageError as UsageError
    from dac.core.population import Member as Member
    from dac.core.types import EnvSpec as EnvSpec
    from dac.core.types import Transition as Transition

_HOMES = {
    "ACKTR": ("dac.api", "ACKTR"),
    "DAC": ("dac.api", "DAC"),
    "DEMME": ("dac.api", "DEMME"),
    "MME": ("dac.api", "MME"),
    "PPO": ("dac.api", "PPO"),
    "RND": ("dac.api", "RND"),
    "SAC": ("dac.api", "SAC"),
    "SQL": ("dac.api", "SQL"),
    "TD3": ("dac.api", "TD3"),
    "Environment": ("dac.api", "Environment"),
    "Episodes": ("dac.api", "Episodes"),
    "MaxEntState": ("dac.api", "MaxEntState"),
    "Model": ("dac.api", "Model"),
    "Population": ("dac.api", "Population"),
    "Run": ("dac.api", "Run"),
    "SACDiv": ("dac.api", "SACDiv"),
    "evaluate": ("dac.api", "evaluate"),
    "load": ("dac.api", "load"),
    "pool": ("dac.api", "pool"),
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


if not TYPE_CHECKING:  # a type checker would take it for a promise of every name

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
