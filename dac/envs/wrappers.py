"""Sparse and delayed rewards for any Gymnasium environment.

    SparseReward(env, threshold, coordinate)     1 for every step that ends with coordinate - origin > threshold, else 0
    DelayedReward(env, delay)                    the rewards of `delay` steps in one sum; the rest when the episode ends

Put them outside `TimeLimit`, where `gymnasium.make` leaves you: a delayed reward has to see the time-out to pay what
is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, SupportsFloat, TypeAlias

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from dac.core.errors import UsageError
from dac.envs.host import check_count

Coordinate: TypeAlias = int | str | Callable[[gym.Env], SupportsFloat]
"""Where a sparse reward looks; see `SparseReward`."""


def _check_threshold(threshold: Any) -> float:
    try:
        value = float(threshold)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"threshold must be a finite number; got {threshold!r}")
    return value


class SparseReward(gym.Wrapper, RecordConstructorArgs):
    """Pay 1 for every step that ends with coordinate - origin > threshold, and 0 for every other.

    `coordinate` says where to look:

        an int        that entry of a MuJoCo environment's `data.qpos`; the origin is that entry of `init_qpos`
        a str         that key of the step's `info`, as "x_position"; the origin is 0
        a callable    its value at the unwrapped environment; the origin is 0

    `origin` replaces the origin.
    """

    def __init__(self, env: gym.Env, threshold: float, coordinate: Coordinate = 0, *, origin: float | None = None):
        RecordConstructorArgs.__init__(self, threshold=threshold, coordinate=coordinate, origin=origin)
        gym.Wrapper.__init__(self, env)
        self._threshold = _check_threshold(threshold)
        if isinstance(coordinate, bool) or not (isinstance(coordinate, int | str) or callable(coordinate)):
            raise UsageError(f"coordinate must be an index into qpos, a key of info or a callable; got {coordinate!r}")
        self._coordinate = coordinate
        self._origin = 0.0
        if isinstance(coordinate, int):
            start = getattr(env.unwrapped, "init_qpos", None)
            if start is None:
                raise UsageError(
                    f"coordinate {coordinate} is an index into qpos, and {env} is not a MuJoCo environment"
                )
            if not 0 <= coordinate < len(start):
                raise UsageError(f"coordinate must be between 0 and {len(start) - 1}; got {coordinate}")
            self._origin = float(start[coordinate])
        if origin is not None:
            self._origin = float(origin)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = self.env.step(action)
        reward = float(self._position(info) - self._origin > self._threshold)
        return obs, reward, terminated, truncated, info

    def _position(self, info: dict[str, Any]) -> float:
        base: Any = self.env.unwrapped
        if isinstance(self._coordinate, int):
            return float(base.data.qpos[self._coordinate])
        if isinstance(self._coordinate, str):
            if self._coordinate not in info:
                raise UsageError(f"info has no {self._coordinate!r}; it has {', '.join(sorted(info)) or 'nothing'}")
            return float(info[self._coordinate])
        return float(self._coordinate(base))


class DelayedReward(gym.Wrapper, RecordConstructorArgs):
    """Pay the reward in sums: every `delay` steps of an episode, and what is left when the episode ends."""

    def __init__(self, env: gym.Env, delay: int = 20):
        RecordConstructorArgs.__init__(self, delay=delay)
        gym.Wrapper.__init__(self, env)
        self._delay = check_count("delay", delay)
        self._elapsed = 0
        self._unpaid = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._elapsed, self._unpaid = 0, 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._elapsed += 1
        self._unpaid += float(reward)
        paid = 0.0
        if terminated or truncated or self._elapsed % self._delay == 0:
            paid, self._unpaid = self._unpaid, 0.0
        return obs, paid, terminated, truncated, info
