"""Diversity Actor-Critic: sample-aware maximum-entropy reinforcement learning, whole populations in one program."""

from dac._version import __version__ as __version__
from dac.algorithms import DAC as DAC
from dac.algorithms import SAC as SAC
from dac.population import Member as Member
from dac.runs import Run as Run
from dac.training.run import resume as resume
from dac.training.run import train as train
from dac.types import EnvSpec as EnvSpec
from dac.types import Transition as Transition
from dac.types import UsageError as UsageError

load = Run
"""Read a run directory: `dac.load("runs/maze-dac-001")`; its `resume` continues it."""
