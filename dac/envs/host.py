"""The contract of environments on the host: MuJoCo and any Gymnasium environment, many of them stepped by one call.

NumPy in, NumPy out. Actions are in [-1, 1] and rescaled inside; an episode that ends is followed by the next one at
once; a time-out is truncated, never terminated, and where both fall together it is a termination. Environment `i`
depends on its own seed and its own actions only, so that a member trains alone as it trains among others.
"""

from __future__ import annotations

import abc
import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds


class HostStep(NamedTuple):
    """The answer of the environments to one action each; every array is new and belongs to the caller."""

    next_obs: Float32[np.ndarray, "env obs"]
    """The observation before any reset."""
    reward: Float32[np.ndarray, " env"]
    terminated: Bool[np.ndarray, " env"]
    truncated: Bool[np.ndarray, " env"]
    obs: Float32[np.ndarray, "env obs"]
    """Equal to `next_obs` unless the episode ended; then the first observation of the next one."""


class EnvironmentFailure(UsageError, RuntimeError):
    """An environment raised an exception, which is the cause of this one, or gave an answer that cannot be used."""

    def __init__(self, message: str, row: int | None = None, when: str = "", what: str = ""):
        super().__init__(message)
        self.row, self.when, self.what = row, when, what
        """Which environment it was, if that is known, in which step of its episode, and what happened."""


class CannotSave(UsageError):
    """An environment has something that can be neither saved nor left out."""


class AbstractHostEnvs(abc.ABC):
    """Several environments of one kind, stepped together."""

    spec: EnvSpec
    bounds: ActionBounds
    """The environments' own range of actions, over which [-1, 1] is stretched."""
    num: int
    horizon: int
    cells: tuple[int, ...] | None
    """Shape of the grid in which visited states are counted, or None."""
    walls: Bool[np.ndarray, "x y"] | None = None
    """Mask of a grid's cells that cannot be entered, where that is known, for pictures."""
    notes: tuple[str, ...] = ()
    """What a person should know of how these environments are used."""

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        """Start every environment afresh with random numbers of its own seed, and return the first observations.

        Nothing of what happened before remains: the same seeds and actions give the same steps, to the bit, in the same
        object again and in a new one. So environments can be kept between evaluations instead of built for each.
        """

    @abc.abstractmethod
    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        """Act once in every environment, and begin a new episode where one ended."""

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        """Begin the next episode in some environments, wherever they are, and return its first observations."""
        raise UsageError(f"{type(self).__name__} takes no time_limit and no frame_skip: it has no restart(rows)")

    @abc.abstractmethod
    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        """Return flat indices in the visit grid of the states that the last step reached, before any reset; or -1."""

    def successes(self) -> Bool[np.ndarray, " env"] | None:
        """Return where the last step reached what its task asks for; None where the environments do not say."""
        return None

    @property
    def unsaved(self) -> str | None:
        """Why `state` and `restore` do not work, in which case they raise, or None where they do."""
        return None

    @abc.abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Return everything the future depends on, as plain arrays."""

    @abc.abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        """Continue from `state()`, bit for bit, and return the observations it was taken at."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release threads and memory; closing twice is harmless."""


def check_actions(actions: Any, num: int, size: int) -> Float32[np.ndarray, "env action"]:
    """Return the actions as float32, clipped to [-1, 1]; refuse a wrong shape and what is not finite."""
    array = np.asarray(actions, np.float32)
    if array.shape != (num, size):
        raise UsageError(f"actions must have shape ({num}, {size}), one row per environment; got {array.shape}")
    if np.abs(array).max(initial=0) <= 1:  # false for NaN as well, so that the common case costs one comparison
        return array
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise UsageError(f"actions must be finite; the action of environment {row} is {array[row].tolist()}")
    return np.clip(array, -1, 1)


CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Count the cores this process may use; `taskset`, cpusets and containers (`docker --cpus`) leave it fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):  # cgroups v2 and v1
        with contextlib.suppress(OSError, ValueError):  # not there, or "max": no limit
            quota, period = (int(word) for name in names for word in (CGROUP / name).read_text().split())
            if quota > 0:
                cores = min(cores, math.ceil(quota / period))
    return max(1, cores)


def check_count(name: str, value: Any, low: int = 1) -> int:
    """Return the value if it is a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise UsageError(f"{name} must be a whole number of at least {low}; got {value!r}")
    return int(value)


def check_seeds(seeds: Sequence[int], num: int) -> list[int]:
    """Return one seed per environment as Python's own integers, the only ones Gymnasium takes."""
    seeds = list(seeds)
    if len(seeds) != num:
        raise UsageError(f"reset needs one seed per environment: {num} environments, {len(seeds)} seeds")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise UsageError(f"a seed must be a whole number of at least 0; got {seed!r}")
    return [int(seed) for seed in seeds]


def seed_generators(seeds: Sequence[int], num: int) -> list[np.random.Generator]:
    """Make one generator per environment, the same that Gymnasium would make of its seed."""
    return [np.random.Generator(np.random.PCG64(seed)) for seed in check_seeds(seeds, num)]


_WORD = (1 << 64) - 1


def pack_generators(generators: Sequence[np.random.Generator]) -> UInt64[np.ndarray, "env 6"]:
    """Pack the states of PCG64 generators: two 128-bit numbers in words of 64, and 32 bits kept for the next draw."""
    rows = []
    for generator in generators:
        whole: Any = generator.bit_generator.state
        state, increment = whole["state"]["state"], whole["state"]["inc"]
        halves = (state >> 64, state & _WORD, increment >> 64, increment & _WORD)
        rows.append((*halves, whole["has_uint32"], whole["uinteger"]))
    return np.array(rows, np.uint64).reshape(len(rows), 6)


def unpack_generators(rows: UInt64[np.ndarray, "env 6"]) -> list[np.random.Generator]:
    """Undo `pack_generators`."""
    generators = []
    for row in rows:
        high, low, increment_high, increment_low, has_uint32, uinteger = (int(word) for word in row)
        bits = np.random.PCG64(0)
        bits.state = {
            "bit_generator": "PCG64",
            "state": {"state": high << 64 | low, "inc": increment_high << 64 | increment_low},
            "has_uint32": has_uint32,
            "uinteger": uinteger,
        }
        generators.append(np.random.Generator(bits))
    return generators


def check_state(state: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Refuse a state whose arrays are not those of these environments."""
    for name, array in expected.items():
        if name not in state:
            raise UsageError(f"the state has no {name!r}; it needs {', '.join(sorted(expected))}")
        got = np.asarray(state[name])
        if got.shape != array.shape or got.dtype != array.dtype:
            raise UsageError(
                f"{name!r} of the state must be {array.dtype} of shape {array.shape}; got {got.dtype} of {got.shape}"
            )
