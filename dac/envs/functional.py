"""Functional environments written in JAX, gymnax's or one's own, inside the compiled program.

Such an environment is two pure functions and a space, and may have parameters:

    reset(key, params)                -> observation, state
    step(key, state, action, params)  -> observation, state, reward, terminated, truncated, info
    action_space(params)              -> a box: low, high and shape
    default_params, horizon, visit_grid with visit_cell(observation)      (where there are such)

`step` does not begin a new episode, because what follows a transition must be the observation before that; `base.py`
begins it. gymnax's own `step` does begin one, so its `reset_env` and `step_env` are called in place of it. They return
five values, and the flag among them is the termination; gymnax asks `is_truncated(state, params)` for the time-out.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Int, PyTree

from dac.core.errors import UsageError
from dac.core.types import EnvSpec, PRNGKey, Scalar, float_dtype
from dac.envs.base import AbstractDeviceEnv
from dac.envs.bounds import ActionBounds
from dac.envs.spaces import Spaces, one_line

PROTOCOL = "reset(key, params), step(key, state, action, params) and action_space(params)"


def is_functional(env: Any) -> bool:
    """Tell whether this is a functional environment, or a pair of one and its parameters, as `gymnax.make` returns."""
    env, _ = _split(env)
    if isinstance(env, type) or not callable(getattr(env, "action_space", None)):
        return False  # of a Gymnasium environment the space is no function
    return all(callable(getattr(env, name, None)) for name in ("reset", "step")) and _takes(_step_of(env), 4)


def make_functional(factory: Callable[[], Any]) -> FunctionalEnv:
    """Make the environment, look once at what its functions return, and refuse what cannot be trained on."""
    try:
        made = factory()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"the functional environment could not be made: {type(error).__name__}: {one_line(error)}"
        ) from error
    if not is_functional(made):
        raise UsageError(f"{one_line(made, 100)} is no functional environment: it must have {PROTOCOL}")
    return FunctionalEnv(*_split(made))


class FunctionalWorld(eqx.Module):
    """What an environment's functions returned last."""

    state: PyTree
    obs: Float[Array, " obs"]
    timed_out: Bool[Array, ""]
    """Whether the environment itself cut the episode here."""


class FunctionalEnv(AbstractDeviceEnv):
    """A functional environment as the device loop takes it."""

    functions: _Functions = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def __init__(self, env: Any, params: Any = None):
        self.functions = _Functions(env, params)
        self.horizon = self.functions.horizon

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(self.functions.spaces.obs_size, self.functions.spaces.action_size)

    @property
    def bounds(self) -> ActionBounds:
        return ActionBounds.of(self.functions.spaces.action)

    @property
    def cells(self) -> tuple[int, ...] | None:
        return self.functions.grid

    def start(self, key: PRNGKey) -> FunctionalWorld:
        obs, state = self.functions.reset(key)
        return FunctionalWorld(state, obs, jnp.zeros((), bool))

    def observe(self, world: FunctionalWorld) -> Float[Array, " obs"]:
        return world.obs

    def move(
        self, world: FunctionalWorld, action: Float[Array, " action"], key: PRNGKey
    ) -> tuple[FunctionalWorld, Scalar, Scalar]:
        obs, state, reward, terminated, truncated = self.functions.step(key, world.state, self._stretch(action))
        return FunctionalWorld(state, obs, truncated), reward, terminated.astype(float_dtype())

    def timed_out(self, world: FunctionalWorld, elapsed: Int[Array, ""]) -> Bool[Array, ""]:
        return world.timed_out | super().timed_out(world, elapsed)

    def cell(self, obs: Float[Array, " obs"]) -> Int[Array, ""]:
        found = jnp.asarray(self.functions.env.visit_cell(obs), jnp.int32).reshape(())
        # a negative index would count from the end; one beyond the grid is counted nowhere
        return jnp.where(found < 0, np.iinfo(np.int32).max, found)

    def _stretch(self, action: Float[Array, " action"]) -> Array:
        """Stretch an action from [-1, 1] over the environment's bounds, and give it the environment's shape."""
        bounds = self.bounds
        low, high = (jnp.asarray(bound, float_dtype()) for bound in (bounds.low, bounds.high))
        inside = jnp.clip(low / 2 + high / 2 + (high / 2 - low / 2) * action, low, high)
        inside = jnp.where(action >= 1, high, jnp.where(action <= -1, low, inside))  # whatever was rounded
        return inside.astype(jax.dtypes.canonicalize_dtype(bounds.dtype)).reshape(bounds.shape)


class _Functions:
    """An environment with its parameters, and the form of its state.

    Compiled programs belong to one such object, which is compared by its identity: parameters may be arrays.
    """

    def __init__(self, env: Any, params: Any):
        self.env, self.name = env, type(env).__name__
        self.params = getattr(env, "default_params", None) if params is None else params
        self.horizon, self.grid = self._find_horizon(), self._find_grid()
        key = jax.random.key(0)
        found = self._look("reset", lambda key: _reset_of(env)(key, self.params), key)
        if not isinstance(found, tuple) or len(found) != 2:
            raise UsageError(f"reset of {self.name} must return an observation and a state; got {_shown(found)}")
        self._obs, self._state = found
        self.spaces = self._find_spaces()
        action = jnp.zeros(self.spaces.action.shape, jax.dtypes.canonicalize_dtype(self.spaces.action.dtype))
        stepped = self._look("step", lambda *given: _step_of(env)(*given, self.params), key, self._state, action)
        self._check_step(stepped)
        if self.grid is not None:
            flat = jnp.zeros(self.spaces.obs_size, float_dtype())
            self._check_scalar("visit_cell", self._look("visit_cell", env.visit_cell, flat))

    def reset(self, key: PRNGKey) -> tuple[Float[Array, " obs"], PyTree]:
        obs, state = _reset_of(self.env)(key, self.params)
        return _flat(obs), self._keep(state)

    def step(
        self, key: PRNGKey, state: PyTree, action: Array
    ) -> tuple[Float[Array, " obs"], PyTree, Scalar, Bool[Array, ""], Bool[Array, ""]]:
        found = _step_of(self.env)(key, self._take(state), action, self.params)
        obs, state, reward, terminated = found[:4]
        truncated = found[4] if len(found) == 6 else self.env.is_truncated(state, self.params)
        flags = (jnp.asarray(flag).reshape(()).astype(bool) for flag in (terminated, truncated))
        return _flat(obs), self._keep(state), jnp.asarray(reward, float_dtype()).reshape(()), *flags

    def _keep(self, state: PyTree) -> PyTree:
        """Give a state the types of one that `reset` returns, and random keys a form that checkpoints can save."""

        def one(leaf: Any, like: Any) -> Array:
            return jax.random.key_data(leaf) if _is_key(like) else jnp.asarray(leaf).astype(like.dtype)

        return jax.tree.map(one, state, self._state)

    def _take(self, state: PyTree) -> PyTree:
        """Undo `_keep`: hand the environment random keys as keys."""

        def one(leaf: Array, like: Any) -> Array:
            return jax.random.wrap_key_data(leaf) if _is_key(like) else leaf

        return jax.tree.map(one, state, self._state)

    def _look(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the shapes of what a function returns; it is traced, not computed."""
        try:
            return jax.eval_shape(function, *arguments)
        except Exception as error:
            raise UsageError(f"{what} of {self.name} failed: {type(error).__name__}: {one_line(error)}") from error

    def _find_horizon(self) -> int:
        for owner, name in ((self.params, "max_steps_in_episode"), (self.env, "horizon")):
            steps: Any = getattr(owner, name, None)
            if steps is not None:
                if isinstance(steps, bool) or not isinstance(steps, int | float) or steps != int(steps) or steps < 1:
                    raise UsageError(f"{name} of {self.name} must be a whole number of at least 1, not {steps!r}")
                return int(steps)
        raise UsageError(
            f"{self.name} says no time limit: give it an attribute horizon, or its parameters "
            "max_steps_in_episode, the steps after which an episode is cut at the latest"
        )

    def _find_grid(self) -> tuple[int, ...] | None:
        grid = getattr(self.env, "visit_grid", None)
        if grid is None:
            return None
        if not callable(getattr(self.env, "visit_cell", None)):
            raise UsageError(f"{self.name} has visit_grid, and so must have visit_cell(observation)")
        return tuple(int(size) for size in grid)

    def _find_spaces(self) -> Spaces:
        """Return the spaces in Gymnasium's words, so that what is refused there is refused here, in the same words."""
        space = self.env.action_space(self.params)
        if hasattr(space, "n") and not isinstance(space, spaces.Space):
            space = spaces.Discrete(int(space.n))
        elif all(hasattr(space, name) for name in ("low", "high", "shape")):
            dtype = np.dtype(getattr(space, "dtype", np.float32))
            low, high = (np.broadcast_to(np.asarray(b, dtype), space.shape) for b in (space.low, space.high))
            space = spaces.Box(low, high, dtype=dtype.type)
        leaves = jax.tree.leaves(self._obs)
        for leaf in leaves:
            if not hasattr(leaf, "dtype") or not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool):
                raise UsageError(f"observations of {self.name} must be arrays of numbers; got {_shown(self._obs)}")
        shown = spaces.Box(-np.inf, np.inf, (sum(leaf.size for leaf in leaves),), np.float32)
        images = [leaf.shape for leaf in leaves if leaf.dtype == jnp.uint8 and len(leaf.shape) > 1]
        observation = spaces.Box(0, 255, images[0], np.uint8) if images else shown
        return Spaces.of(types.SimpleNamespace(observation_space=observation, action_space=space))  # type: ignore[arg-type]

    def _check_step(self, found: Any) -> None:
        said = f"step of {self.name} must return an observation, a state, a reward, terminated, truncated and info"
        if not isinstance(found, tuple) or len(found) not in (5, 6):
            raise UsageError(f"{said}; got {_shown(found)}")
        if len(found) == 5 and not callable(getattr(self.env, "is_truncated", None)):
            raise UsageError(
                f"{said}; it returns five values, in which a time-out cannot be told from a termination "
                "(gymnax is such from version 1.0 on)"
            )
        for what, was, now in (("observation", self._obs, found[0]), ("state", self._state, found[1])):
            if _form(was) != _form(now):
                raise UsageError(
                    f"step of {self.name} must return {what}s of the form that reset returns: {_shown(was)}, "
                    f"not {_shown(now)}"
                )
        for what, value in zip(("the reward", "terminated", "truncated"), found[2:-1], strict=False):
            self._check_scalar(what, value)

    def _check_scalar(self, what: str, value: Any) -> None:
        if getattr(value, "size", 0) != 1:
            raise UsageError(f"{what} of {self.name} must be one number; got {_shown(value)}")


def _split(env: Any) -> tuple[Any, Any]:
    return env if isinstance(env, tuple) and len(env) == 2 else (env, None)


def _reset_of(env: Any) -> Callable[..., Any]:
    return getattr(env, "reset_env", env.reset)


def _step_of(env: Any) -> Callable[..., Any]:
    """Return gymnax's step without its reset where there is one, otherwise the step."""
    return getattr(env, "step_env", env.step)


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flat(obs: PyTree) -> Float[Array, " obs"]:
    """Lay an observation out flat; a dictionary's parts in the order of its keys."""
    return jnp.concatenate([jnp.asarray(leaf, float_dtype()).reshape(-1) for leaf in jax.tree.leaves(obs)])


def _form(tree: PyTree) -> Any:
    return jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)]


def _shown(tree: PyTree) -> str:
    """Format the shapes of a tree in one line."""
    return one_line(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree), 200)
