"""One Gymnasium environment, every answer of which is checked."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float32

from dac.core.errors import UsageError
from dac.envs.bounds import ActionBounds
from dac.envs.host import CannotSave, EnvironmentFailure
from dac.envs.saving import Capturer, same_global_randomness
from dac.envs.spaces import Spaces, flatten, one_line
from dac.envs.success import read_success

NO_LIMIT = 2**31 - 1
"""The horizon of an environment without a time limit."""
_LARGEST = float(np.finfo(np.float32).max)
TRIAL = 50
"""Steps for which a restored environment is compared with the one that was captured, and as many after a reset."""
PATIENCE = 0.5
"""Seconds that such steps may take, where 50 take longer."""
WARM_UP = 10
"""Steps before an environment is captured."""

MakeEnv: TypeAlias = Callable[[], gym.Env]


@dataclasses.dataclass(frozen=True)
class Layout:
    """What has to be the same in all environments, and the time limit."""

    obs_size: int
    action_space: spaces.Box
    cells: tuple[int, ...] | None
    flattened: str = dataclasses.field(compare=False)
    """The observation space where it is not a vector already."""
    horizon: int = dataclasses.field(compare=False)
    row: int = dataclasses.field(compare=False)


class Captured(NamedTuple):
    """What the future of one environment depends on."""

    packed: bytes
    obs: Float32[np.ndarray, " obs"]
    """The latest observation."""
    steps: int
    """Steps since the first reset."""
    cell: int
    success: bool | None


class CheckedEnv:
    """One environment, every answer of which is checked."""

    def __init__(self, make: MakeEnv, row: int, check_finite: bool):
        self._row, self._check_finite = row, check_finite
        try:
            self.env = make()
        except Exception as error:
            raise UsageError(f"environment {row} could not be made: {describe(error)}") from error
        if not isinstance(self.env, gym.Env):
            got = f"environment {row} is not a gymnasium.Env; env returned {one_line(repr(self.env))}"
            raise UsageError(got + _advise(self.env))
        try:
            self.layout = self._inspect(row)
        except BaseException:
            self.env.close()
            raise
        self._obs_space = self.env.observation_space
        self._bounds = ActionBounds.of(self.layout.action_space)
        self._steps = 0
        self._obs = np.zeros(self.layout.obs_size, np.float32)
        self.cell = -1
        self.success: bool | None = None
        """What the last step said of success."""
        self._capturer: Capturer | str
        try:
            self._capturer = Capturer(self.env)
        except Exception as error:  # what someone else's objects do when they are looked at
            self._capturer = describe(error)

    def reset(self, seed: int) -> Float32[np.ndarray, " obs"]:
        self._steps = 0
        obs = self._begin("reset", seed)
        self.cell = self._find_cell("reset")
        return obs

    def step(self, action: Float32[np.ndarray, " action"]) -> tuple[np.ndarray, float, bool, bool, np.ndarray]:
        self._steps += 1
        when = f"step {self._steps}"
        move = self._bounds.stretch(action).reshape(self._bounds.shape)
        try:
            answer = self.env.step(move)
        except Exception as error:
            self._fail(when, describe(error), error)
        if not isinstance(answer, tuple) or len(answer) != 5:
            got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            self._fail(when, f"step must return (obs, reward, terminated, truncated, info); got {got}")
        obs, reward, terminated, truncated = answer[0], self._read_reward(answer[1], when), *map(bool, answer[2:4])
        next_obs = self._read(obs, when)
        self.cell, self.success = self._find_cell(when), read_success(answer[4])
        self._obs = next_obs
        over = terminated or truncated
        first = self._begin(f"reset after {when}") if over else next_obs
        return next_obs, reward, terminated, truncated and not terminated, first

    def begin(self) -> Float32[np.ndarray, " obs"]:
        """Break the episode off and begin the next one."""
        return self._begin(f"reset after step {self._steps}")

    def _begin(self, when: str, seed: int | None = None) -> Float32[np.ndarray, " obs"]:
        try:
            answer = self.env.reset() if seed is None else self.env.reset(seed=seed)
        except Exception as error:
            if isinstance(error, TypeError) and not _takes_seed(self.env.unwrapped.reset):
                self._fail(when, "reset must take a seed: def reset(self, *, seed=None, options=None)", error)
            self._fail(when, describe(error), error)
        if not isinstance(answer, tuple) or len(answer) != 2:
            got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            self._fail(when, f"reset must return (obs, info); got {got}")
        self._obs = self._read(answer[0], when)
        return self._obs

    def capture(self) -> Captured:
        """Return what the future depends on; `try_saving` says whether it is all."""
        with _as_cannot_save():
            return Captured(self._saver().capture(), self._obs, self._steps, self.cell, self.success)

    def restore(self, captured: Captured) -> None:
        """Continue from what this environment, or another one of the same make, was captured with."""
        with _as_cannot_save():
            self._saver().restore(captured.packed)
        self._obs, self._steps, self.cell, self.success = captured[1:]

    def _saver(self) -> Capturer:
        if isinstance(self._capturer, str):
            raise CannotSave(self._capturer)
        return self._capturer

    def _inspect(self, row: int) -> Layout:
        """Refuse an environment that cannot be trained on."""
        found = Spaces.of(self.env)
        inner: Any = self.env.unwrapped
        cells = getattr(inner, "visit_grid", None)
        if cells is not None:
            cells = tuple(cells)
            if not cells or any(not isinstance(side, int | np.integer) or side < 1 for side in cells):
                raise UsageError(f"visit_grid must be a tuple of positive whole numbers; got {cells}")
            if not callable(getattr(inner, "visit_cell", None)):
                raise UsageError(f"{one_line(inner)} has a visit_grid and no method visit_cell()")
        flat = isinstance(found.observation, spaces.Box) and len(found.observation.shape) < 2
        flattened = "" if flat else one_line(found.observation)
        return Layout(found.obs_size, found.action, cells, flattened, find_horizon(self.env), row)

    def _read(self, obs: Any, when: str) -> Float32[np.ndarray, " obs"]:
        try:
            parts = flatten(self._obs_space, obs, "the observation")
        except UsageError as error:
            self._fail(when, str(error))
        with np.errstate(over="ignore"):
            row = np.concatenate(parts, dtype=np.float32)
        if self._check_finite and not np.isfinite(row).all():
            entry = int(np.flatnonzero(~np.isfinite(row))[0])
            value = np.concatenate(parts)[entry]
            self._fail(when, f"observations must be finite in float32; entry {entry} is {value}")
        return row

    def _read_reward(self, reward: Any, when: str) -> float:
        value = np.asarray(reward)
        if value.size != 1 or value.dtype.kind not in "fiub":
            self._fail(when, f"the reward must be one number; got {one_line(repr(reward))}")
        number = float(value.item())
        if self._check_finite and not abs(number) <= _LARGEST:
            self._fail(when, f"the reward must be finite in float32; got {number}")
        with np.errstate(over="ignore"):
            return float(np.float32(number))

    def _find_cell(self, when: str) -> int:
        if self.layout.cells is None:
            return -1
        inner: Any = self.env.unwrapped
        cell, count = inner.visit_cell(), math.prod(self.layout.cells)
        if not isinstance(cell, int | np.integer) or not -1 <= cell < count:
            got = one_line(repr(cell))
            self._fail(when, f"visit_cell() must return an index from 0 to {count - 1}, or -1; got {got}")
        return int(cell)

    def _fail(self, when: str, what: str, cause: Exception | None = None) -> NoReturn:
        raise EnvironmentFailure(f"environment {self._row}, {when}: {what}", self._row, when, what) from cause


def try_saving(make: MakeEnv, others: Sequence[CheckedEnv] = ()) -> str | None:
    """Say why environments of this make cannot be saved, or None: another one that is restored does the same.

    Two environments are made and closed again. One is captured in the middle of an episode and goes on; the other,
    which has made other steps, is restored and goes on with the same actions. Their answers have to agree to the bit.
    `others` are environments that are in use, which `make` may hand out again.
    """
    envs: list[CheckedEnv] = []
    try:
        with same_global_randomness():
            envs.extend(CheckedEnv(make, row, check_finite=False) for row in range(2))
            one, other = envs
            used = [env.env.unwrapped for env in others]
            if one.env.unwrapped is other.env.unwrapped or any(one.env.unwrapped is env for env in used):
                envs.clear()  # and none is to be closed
                return "the same environment is handed out at every call"
            actions = np.random.default_rng(0).uniform(-1, 1, (2 * TRIAL, math.prod(one.layout.action_space.shape)))
            one.reset(1)
            other.reset(2)
            times = [time.monotonic()]
            for action in actions[:WARM_UP].astype(np.float32):
                one.step(action)
                times.append(time.monotonic())
            seconds = float(np.median(np.diff(times)))
            for action in actions[: WARM_UP // 2].astype(np.float32):
                other.step(-action)
            start, captured = time.monotonic(), one.capture()
            if (spent := time.monotonic() - start) > PATIENCE:
                return f"it takes {spent:.1f} s to read the state of one"
            steps = int(np.clip(PATIENCE / max(seconds, 1e-9), 2, TRIAL))
            expected = _follow(one, actions[: 2 * steps])
            other.restore(captured)
            found = _follow(other, actions[: 2 * steps])
        differ = [number for number, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
        return f"restored, they go another way after {differ[0]} steps" if differ else None
    except Exception as error:
        return one_line(error) if isinstance(error, UsageError) else describe(error)  # not tried to its end
    finally:
        for env in envs:
            with contextlib.suppress(Exception):  # one may hold what the other has closed
                env.env.close()


@contextlib.contextmanager
def _as_cannot_save() -> Iterator[None]:
    """Tell whatever goes wrong in someone else's objects apart from what goes wrong in training."""
    try:
        yield
    except CannotSave:
        raise
    except Exception as error:
        raise CannotSave(describe(error)) from error


def _follow(env: CheckedEnv, actions: np.ndarray) -> list[tuple[bytes, ...]]:
    """What an environment answers to actions, the second half of them in an episode that is begun for them."""
    found = []
    for half in np.split(actions.astype(np.float32), 2):
        for action in half:
            answer = (*env.step(action), env.cell, repr(env.success))
            found.append(tuple(np.asarray(part).tobytes() for part in answer))
        env.begin()
    return found


def _advise(env: Any) -> str:
    """Say what to do about an object that is not an environment of Gymnasium but of a kind that is known."""
    if hasattr(env, "possible_agents") or hasattr(env, "agents"):
        return (
            "; it has several agents, and libraries for those are BenchMARL and RLlib; "
            "a wrapper that is a gymnasium.Env and acts for one of them can be trained on"
        )
    if any(part.__module__.split(".")[0] == "gym" for part in type(env).__mro__):
        return "; it is of the old package gym: wrap it with shimmy.GymV26CompatibilityV0"
    if callable(getattr(env, "action_space", None)):
        return "; a functional environment in JAX is named jax:MODULE:FACTORY, and in Python given itself"
    if hasattr(env, "reset") and hasattr(env, "step"):
        return "; derive its class from gymnasium.Env"
    return ""


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__


def _takes_seed(reset: Callable[..., Any]) -> bool:
    parameters = inspect.signature(reset).parameters.values()
    return any(parameter.name == "seed" or parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def find_horizon(env: gym.Env) -> int:
    """Return the time limit, also of an environment that Gymnasium did not make and a wrapper limits."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    while limit is None and isinstance(env, gym.Wrapper):
        limit = env._max_episode_steps if isinstance(env, TimeLimit) else None
        env = env.env
    return NO_LIMIT if limit is None else int(limit)
