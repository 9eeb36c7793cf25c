"""Several Gymnasium environments, stepped one after another in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64

from dac.core.errors import UsageError
from dac.envs.checked import Captured, CheckedEnv, Layout, MakeEnv, try_saving
from dac.envs.host import HostStep
from dac.envs.spaces import one_line


def find_common(layouts: Sequence[Layout]) -> Layout:
    """Return the layout that all environments share, or refuse those that differ."""
    first = layouts[0]
    for other in layouts[1:]:
        if other != first:
            raise UsageError(
                f"all environments must be alike: environment {first.row} has {first.obs_size} observation entries, "
                f"{one_line(first.action_space)} and visit grid {first.cells}, environment {other.row} has "
                f"{other.obs_size}, {one_line(other.action_space)} and {other.cells}"
            )
    return dataclasses.replace(first, horizon=max(layout.horizon for layout in layouts))


class Answer(NamedTuple):
    """A step of every environment, and the cells it visited and its successes before any reset."""

    step: HostStep
    cells: Int64[np.ndarray, " env"]
    successes: Bool[np.ndarray, " env"] | None
    """None where no environment said anything of success."""


class Rows:
    """Some environments of the vector, stepped one after another in this process."""

    def __init__(self, numbers: Iterable[int], check_finite: bool):
        self._numbers, self._check_finite = list(numbers), check_finite
        self._envs: list[CheckedEnv] = []
        self.closed = False

    def open(self, make: MakeEnv | bytes) -> Layout:
        self._make = function = _unpickle(make) if isinstance(make, bytes) else make
        for row in self._numbers:
            env = CheckedEnv(function, row, self._check_finite)
            if any(env.env.unwrapped is other.env.unwrapped for other in self._envs):
                raise UsageError("env returned the same environment twice; it must make a new one at every call")
            self._envs.append(env)
        return find_common([env.layout for env in self._envs])

    def reset(self, seeds: Sequence[int]) -> tuple[Float32[np.ndarray, "env obs"], Int64[np.ndarray, " env"]]:
        self._check_open()
        obs = np.stack([env.reset(seed) for env, seed in zip(self._envs, seeds, strict=True)])
        return obs, np.array([env.cell for env in self._envs], np.int64)

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        """Begin new episodes in some of these environments, numbered as they stand here."""
        self._check_open()
        return np.stack([self._envs[row].begin() for row in rows])

    def step(self, actions: Float32[np.ndarray, "env action"]) -> Answer:
        self._check_open()
        moves = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        next_obs, reward, terminated, truncated, obs = zip(*moves, strict=True)
        flags = (np.array(terminated, np.bool_), np.array(truncated, np.bool_))
        step = HostStep(np.stack(next_obs), np.array(reward, np.float32), *flags, np.stack(obs))
        return Answer(step, np.array([env.cell for env in self._envs], np.int64), self._successes())

    def find_unsaved(self) -> str | None:
        """Say why these environments cannot be saved, or None."""
        self._check_open()
        return try_saving(self._make, self._envs)

    def capture(self) -> list[Captured]:
        """Return what the future of each environment depends on."""
        self._check_open()
        return [env.capture() for env in self._envs]

    def restore(self, captured: Sequence[Captured]) -> None:
        """Continue every environment from what was captured."""
        self._check_open()
        for env, own in zip(self._envs, captured, strict=True):
            env.restore(own)

    def _successes(self) -> Bool[np.ndarray, " env"] | None:
        said = [env.success for env in self._envs]
        return None if all(success is None for success in said) else np.array(said, np.bool_)

    def close(self) -> None:
        self.closed = True
        with contextlib.ExitStack() as stack:  # all of them, even where one fails to
            for env in self._envs:
                stack.callback(env.env.close)
            self._envs = []

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("these environments are closed")


def _unpickle(packed: bytes) -> MakeEnv:
    """Load the function that makes environments, in a worker process."""
    try:
        return pickle.loads(packed)
    except Exception as error:
        raise UsageError(
            f"env cannot be loaded in a worker process: {type(error).__name__}: {one_line(error)}; "
            "make its module importable there, or ask for 0 workers"
        ) from error
