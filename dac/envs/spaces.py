"""What an environment shows and takes, and its own observations laid out flat, as networks see them.

Observations may be a Box, or a Dict or Tuple of Boxes; they are laid out in Gymnasium's order. Actions are a Box with
finite bounds, over which `bounds.py` stretches [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds


class Spaces(NamedTuple):
    """What an environment shows and takes."""

    observation: gym.Space
    action: spaces.Box

    @classmethod
    def of(cls, env: gym.Env) -> Spaces:
        """Read the spaces of an environment, and refuse those that cannot be trained on."""
        action_space = getattr(env, "action_space", None)
        if not isinstance(action_space, spaces.Box) or not np.issubdtype(action_space.dtype, np.floating):
            if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
                advice = "; libraries for discrete actions are stable-baselines3 (DQN, PPO) and CleanRL"
            else:
                advice = "; gymnasium.wrappers.TransformAction can make one of it"
            raise UsageError(
                f"actions must be real numbers, a Box of floats; the action space is {one_line(action_space)}{advice}"
            )
        if not (np.isfinite(action_space.low) & np.isfinite(action_space.high)).all():
            raise UsageError(
                f"actions must have finite bounds; the action space is {one_line(action_space)} "
                "(gymnasium.wrappers.TransformAction can give it some)"
            )
        observation_space: Any = getattr(env, "observation_space", None)
        found = cls(observation_space, action_space)
        if found.obs_size == 0 or found.action_size == 0:
            raise UsageError(
                f"observations and actions must not be empty; the observation space is "
                f"{one_line(found.observation)} and the action space {one_line(action_space)}"
            )
        return found

    @classmethod
    def flat(cls, spec: EnvSpec, bounds: ActionBounds) -> Spaces:
        """Return the spaces of an environment that has no Gymnasium form: flat observations, its own actions."""
        low, high = (bound.astype(bounds.dtype).reshape(bounds.shape) for bound in (bounds.low, bounds.high))
        return cls(
            spaces.Box(-np.inf, np.inf, (spec.obs_size,), np.float32), spaces.Box(low, high, dtype=bounds.dtype.type)
        )

    @property
    def obs_size(self) -> int:
        return count_entries(self.observation)

    @property
    def action_size(self) -> int:
        return math.prod(self.action.shape)


def one_line(text: Any, limit: int = 300) -> str:
    """Format anything as one line of limited length."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else f"{line[:limit]} ..."


def count_entries(space: Any) -> int:
    """Return the size of observations laid out flat, or refuse a space that cannot be."""
    if isinstance(space, spaces.Dict):
        return sum(count_entries(inner) for inner in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return sum(count_entries(inner) for inner in space.spaces)
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"observations must be a Box, or a Dict or Tuple of Boxes; {one_line(space)} is not "
            "(gymnasium.wrappers.FlattenObservation turns discrete ones into zeros and a one)"
        )
    if space.dtype == np.uint8 and len(space.shape) >= 2:
        raise UsageError(
            f"images are not supported; the observation space is {one_line(space)}; observe features, or take a "
            "library with convolutional networks, such as stable-baselines3 (CnnPolicy)"
        )
    return math.prod(space.shape)


def flatten(space: gym.Space, obs: Any, name: str, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
    """Return the parts of an observation in the order of `gymnasium.spaces.flatten`, which would not check them.

    Of a batch, whose arrays have its axes first, every part is (*batch, entries).
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, Mapping) or set(obs) != set(space.spaces):
            got = f"keys {', '.join(map(repr, obs))}" if isinstance(obs, Mapping) else type(obs).__name__
            raise UsageError(f"{name} has {got}; its space has keys {', '.join(map(repr, space.spaces))}")
        parts = [flatten(inner, obs[key], f"{name}[{key!r}]", batch) for key, inner in space.spaces.items()]
        return [array for part in parts for array in part]
    if isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
            raise UsageError(f"{name} must be a tuple of {len(space.spaces)}; got {one_line(repr(obs))}")
        parts = [flatten(inner, obs[i], f"{name}[{i}]", batch) for i, inner in enumerate(space.spaces)]
        return [array for part in parts for array in part]
    array = _array(obs)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"{name} must be an array of numbers; got {one_line(repr(obs))}")
    if array.shape != batch + tuple(space.shape or ()):
        more = f", or {('batch', *(space.shape or ()))} for several".replace("'", "") if batch else ""
        raise UsageError(f"{name} has shape {array.shape}; its space has {space.shape}{more}")
    return [array.reshape(*batch, -1)]


def flatten_some(space: gym.Space, obs: Any) -> tuple[Float32[np.ndarray, "batch obs"], bool]:
    """Lay out one observation or a batch of them as rows, and say whether it was a batch."""
    first, part = space, obs
    while isinstance(first, spaces.Dict | spaces.Tuple):  # how many axes the first array has decides
        try:
            key: Any = next(iter(first.spaces)) if isinstance(first, spaces.Dict) else 0
            first, part = first[key], part[key]
        except (TypeError, KeyError, IndexError):
            flatten(space, obs, "the observation")  # says what is wrong
            raise
    array = _array(part)
    batched = array.ndim == len(first.shape or ()) + 1
    if first is space and array.dtype.kind in "fiub" and array.shape[batched:] == first.shape:  # the common case
        return np.asarray(array, np.float32).reshape(len(array) if batched else 1, -1), batched
    parts = flatten(space, obs, "the observation", (len(array),) if batched else ())
    rows = np.concatenate(parts, axis=-1, dtype=np.float32)
    return rows.reshape(-1, rows.shape[-1]), batched


def _array(values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:  # rows of several lengths
        return np.asarray(None)
