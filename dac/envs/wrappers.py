"""Sparse and delayed rewards for any Gymnasium environment, single or vector.

    SparseReward(env, threshold, coordinate)     1 for every step that ends with coordinate - origin > threshold, else 0
    DelayedReward(env, delay)                    the rewards of `delay` steps in one sum; the rest when the episode ends

Put them outside `TimeLimit`, where `gymnasium.make` leaves you: a delayed reward has to see the time-out to pay what
is left. The vector forms follow the environment's autoreset mode, so that the step that only resets is not a step of
an episode, and the coordinate is the one before a reset.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, SupportsFloat, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from dac.envs.host import check_count
from dac.types import UsageError

Coordinate: TypeAlias = int | str | Callable[[gym.Env], SupportsFloat]
VectorCoordinate: TypeAlias = str | Callable[[Any, dict[str, Any]], np.ndarray]


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


class AbstractVectorReward(VectorWrapper, abc.ABC):
    """What the two vector forms share: which rows of a step are steps of an episode, and which only reset it."""

    def __init__(self, env: VectorEnv):
        VectorWrapper.__init__(self, env)
        # Gymnasium takes an environment that does not say for one that resets at the next step
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if not isinstance(self._mode, AutoresetMode):
            raise UsageError(f"metadata['autoreset_mode'] of {env} must be an AutoresetMode; got {self._mode!r}")
        self._ended = np.zeros(env.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        # read the mask first: the environment below takes it out of the options
        mask = None if options is None else options.get("reset_mask")
        begun = np.ones(self.num_envs, np.bool_) if mask is None else np.array(mask, np.bool_)
        result = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._ended[begun] = False
        self._start(begun)
        return result

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        obs, rewards, terminations, truncations, infos = self.env.step(actions)
        over = np.asarray(terminations | truncations)
        lived = ~self._ended if self._mode == AutoresetMode.NEXT_STEP else np.ones_like(over)
        self._ended = over.copy()
        paid = np.where(lived, self._pay(obs, np.asarray(rewards), over, lived, infos), 0.0)
        self._start(over)
        return obs, paid, terminations, truncations, infos

    @abc.abstractmethod
    def _start(self, begun: np.ndarray) -> None:
        """Forget the episodes of these rows."""

    @abc.abstractmethod
    def _pay(
        self, obs: Any, rewards: np.ndarray, over: np.ndarray, lived: np.ndarray, infos: dict[str, Any]
    ) -> np.ndarray:
        """The rewards of the rows that were steps of an episode."""


class VectorSparseReward(AbstractVectorReward):
    """`SparseReward` for vector environments.

    `coordinate` is a key of `infos`, or a callable `(obs, infos) -> (num_envs,)`. Where an environment resets in the
    same step, both are what they were before the reset.
    """

    def __init__(
        self, env: VectorEnv, threshold: float, coordinate: VectorCoordinate = "x_position", *, origin: float = 0.0
    ):
        super().__init__(env)
        self._threshold = _check_threshold(threshold)
        if not (isinstance(coordinate, str) or callable(coordinate)):
            raise UsageError(f"coordinate must be a key of infos or a callable (obs, infos); got {coordinate!r}")
        self._coordinate = coordinate
        self._origin = float(origin)

    def _start(self, begun: np.ndarray) -> None:
        del begun  # a sparse reward remembers nothing

    def _pay(
        self, obs: Any, rewards: np.ndarray, over: np.ndarray, lived: np.ndarray, infos: dict[str, Any]
    ) -> np.ndarray:
        if self._mode == AutoresetMode.SAME_STEP and over.any():
            obs, infos = _before_reset(obs, infos, over)
        if isinstance(self._coordinate, str):
            if self._coordinate not in infos:
                raise UsageError(
                    f"infos have no {self._coordinate!r}; they have {', '.join(sorted(infos)) or 'nothing'}"
                )
            position = np.asarray(infos[self._coordinate], np.float64)
        else:
            position = np.asarray(self._coordinate(obs, infos), np.float64)
        if position.shape != (self.num_envs,):
            raise UsageError(f"the coordinate must be one number per environment; got shape {position.shape}")
        return (position - self._origin > self._threshold).astype(np.float64)


def _before_reset(obs: Any, infos: dict[str, Any], over: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """Put `final_obs` and `final_info` back where a row was reset in the same step."""
    last = infos.get("final_info", {})
    merged = dict(infos)
    for key, value in last.items():
        if isinstance(value, np.ndarray):
            before = np.array(merged[key]) if key in merged else np.zeros_like(value)
            before[over] = value[over]
            merged[key] = before
    if isinstance(obs, np.ndarray) and "final_obs" in infos:
        obs = obs.copy()
        for row in np.flatnonzero(over):
            obs[row] = infos["final_obs"][row]
    return obs, merged


class VectorDelayedReward(AbstractVectorReward):
    """`DelayedReward` for vector environments."""

    def __init__(self, env: VectorEnv, delay: int = 20):
        super().__init__(env)
        self._delay = check_count("delay", delay)
        self._elapsed = np.zeros(env.num_envs, np.int64)
        self._unpaid = np.zeros(env.num_envs)

    def _start(self, begun: np.ndarray) -> None:
        self._elapsed[begun] = 0
        self._unpaid[begun] = 0.0

    def _pay(
        self, obs: Any, rewards: np.ndarray, over: np.ndarray, lived: np.ndarray, infos: dict[str, Any]
    ) -> np.ndarray:
        self._elapsed += lived
        self._unpaid += np.where(lived, rewards, 0.0)
        due = lived & (over | (self._elapsed % self._delay == 0))
        paid = np.where(due, self._unpaid, 0.0)
        self._unpaid[due] = 0.0
        return paid
