"""What all vector environments on `mujoco.batch` have in common: a pool of simulations that can be saved.

The batch holds the simulations; each has a generator of its own, and some counters. Together they are everything that
the future depends on.
"""

from __future__ import annotations

import abc
import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float32, Float64, Int64

from dac.core.errors import UsageError
from dac.envs.host import AbstractHostEnvs, check_state, pack_generators, unpack_generators

World: TypeAlias = dict[str, np.ndarray]
"""Rows of MuJoCo's fields by name, one row per environment: qpos, qvel, ctrl and the robot's own `fields`."""


class AbstractBatchEnvs(AbstractHostEnvs):
    """Many simulations on a pool of threads, each with an episode and a generator of its own."""

    _batch: Any
    """The `mujoco.batch.Batch`, or None once the environments are closed."""
    _generators: list[np.random.Generator]
    """One per environment, from the first reset on."""
    _obs: Float32[np.ndarray, "env obs"]
    """The latest observations."""

    @abc.abstractmethod
    def _counters(self) -> dict[str, np.ndarray]:
        """Return what the future depends on besides the simulations and the generators."""

    @abc.abstractmethod
    def _begin(self, rows: np.ndarray) -> None:
        """Start new episodes in some rows."""

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        self._begin(rows)
        return self._obs[rows]

    def state(self) -> dict[str, np.ndarray]:
        batch = self._open()
        if not self._generators:
            raise UsageError("call reset(seeds) before state()")
        return {"physics": batch.state.copy(), "random": pack_generators(self._generators)} | {
            name: array.copy() for name, array in self._counters().items()
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        batch = self._open()
        random = np.zeros((self.num, 6), np.uint64)
        check_state(state, {"physics": batch.state, "random": random} | self._counters())
        batch.state[:] = state["physics"]
        self._generators = unpack_generators(state["random"])
        for name, array in self._counters().items():
            array[:] = state[name]
        return self._obs.copy()

    def _open(self) -> Any:
        if self._batch is None:
            raise UsageError("these environments are closed")
        return self._batch


@contextlib.contextmanager
def quiet_compiler() -> Iterator[None]:
    """Turn messages of MuJoCo's compiler into Python warnings, except a known one about Gymnasium's models."""
    import mujoco

    messages: list[str] = []
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(messages.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)
    for message in messages:
        if "settotalmass" not in message:  # HalfCheetah's; MuJoCo 4 would print it, and log it to a file, every time
            warnings.warn(message, stacklevel=3)


def measure_forces(batch: Any, data: Any, forces: Float64[np.ndarray, "env body 6"]) -> None:
    """Compute `cfrc_ext` as Gymnasium does after a step: MuJoCo leaves it out where no sensor asks for it.

    `data` is an MjData of the batch's model to work in.
    """
    import mujoco

    for row in range(len(forces)):
        batch.get_data(row, data)
        mujoco.mj_rnePostConstraint(batch.model, data)
        forces[row] = data.cfrc_ext
