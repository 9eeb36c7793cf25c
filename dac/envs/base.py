"""The contract of environments that run inside the compiled program.

Environments on the host (MuJoCo, any Gymnasium environment) have their own contract in `envs/host.py`. In both,
actions are in [-1, 1], `next_obs` is the observation before a reset, and a time-out is not a termination.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from dac.core.types import EnvSpec, PRNGKey, Scalar, TimeStep, float_dtype
from dac.envs.bounds import ActionBounds


class EpisodeState(eqx.Module):
    """The state of the world and the steps taken in this episode."""

    world: PyTree
    """What `start` and `move` return."""
    elapsed: Int[Array, ""]
    """Steps taken since the episode began."""


class AbstractDeviceEnv(eqx.Module):
    """A pure environment for one agent; `step` resets by itself when an episode ends."""

    horizon: eqx.AbstractVar[int]
    """Steps after which a time-out ends the episode."""

    @property
    @abc.abstractmethod
    def spec(self) -> EnvSpec:
        """Sizes of observations and actions."""

    @property
    def bounds(self) -> ActionBounds:
        """The environment's own range of actions; `move` takes them in [-1, 1] whatever it is."""
        return ActionBounds.unit(self.spec.action_size)

    @property
    @abc.abstractmethod
    def cells(self) -> tuple[int, ...] | None:
        """Shape of the grid in which visited states are counted, or None."""

    @property
    def walls(self) -> Bool[np.ndarray, "x y"] | None:
        """Mask of the grid's cells that cannot be entered, where that is known, for pictures."""
        return None

    @abc.abstractmethod
    def start(self, key: PRNGKey) -> PyTree:
        """Return the state of the world at the beginning of an episode."""

    @abc.abstractmethod
    def observe(self, world: PyTree) -> Float[Array, " obs"]:
        """Return what the agent sees of the world."""

    @abc.abstractmethod
    def move(self, world: Any, action: Float[Array, " action"], key: PRNGKey) -> tuple[Any, Scalar, Scalar]:
        """Return the world after an action, the reward, and whether the episode terminated (1.0) or not (0.0)."""

    @abc.abstractmethod
    def cell(self, obs: Float[Array, " obs"]) -> Int[Array, ""]:
        """Return the flat index of an observation in the visit grid; it is called only where `cells` is not None."""

    def timed_out(self, world: Any, elapsed: Int[Array, ""]) -> Bool[Array, ""]:
        """Tell whether an episode is cut after so many steps, in this state of the world."""
        del world
        return elapsed >= self.horizon

    def reset(self, key: PRNGKey) -> tuple[EpisodeState, Float[Array, " obs"]]:
        """Begin an episode."""
        world = self.start(key)
        return EpisodeState(world, jnp.zeros((), jnp.int32)), self.observe(world)

    def step(self, state: EpisodeState, action: Float[Array, " action"], key: PRNGKey) -> tuple[EpisodeState, TimeStep]:
        """Move the world, count the step, and begin a new episode where this one ended."""
        move_key, reset_key = jax.random.split(key)
        # a Gaussian policy may reach beyond the bounds; what it learns from is the action it chose
        world, reward, terminated = self.move(state.world, jnp.clip(action, -1, 1), move_key)
        next_obs = self.observe(world)
        elapsed = state.elapsed + 1
        truncated = jnp.where(terminated > 0, 0.0, self.timed_out(world, elapsed).astype(float_dtype()))
        fresh, fresh_obs = self.reset(reset_key)
        over = (terminated > 0) | (truncated > 0)
        continued = EpisodeState(world, elapsed)
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, continued)
        obs = jnp.where(over, fresh_obs, next_obs)
        return state, TimeStep(next_obs, reward, terminated, truncated, obs)
