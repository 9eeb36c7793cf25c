"""Tiny tasks with known answers, for tests and for looking at an algorithm with nothing in the way."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.core.types import EnvSpec, PRNGKey, Scalar, float_dtype
from dac.envs.base import AbstractDeviceEnv


class Target(AbstractDeviceEnv):
    """One step: see s in [-1, 1], act a, earn -(a - s/2)^2. The best action is s/2."""

    spec: ClassVar[EnvSpec] = EnvSpec(obs_size=1, action_size=1)
    cells: ClassVar[tuple[int, ...] | None] = None
    horizon: int = 1000

    def start(self, key: PRNGKey) -> Float[Array, " 1"]:
        return jax.random.uniform(key, (1,), float_dtype(), -1.0, 1.0)

    def observe(self, world: Float[Array, " 1"]) -> Float[Array, " 1"]:
        return world

    def move(
        self, world: Float[Array, " 1"], action: Float[Array, " 1"], key: PRNGKey
    ) -> tuple[Float[Array, " 1"], Scalar, Scalar]:
        del key
        return world, -jnp.sum((action - world / 2) ** 2), jnp.ones((), float_dtype())

    def cell(self, obs: Float[Array, " 1"]) -> Int[Array, ""]:
        raise TypeError("Target has no visit grid")


class Clock(AbstractDeviceEnv):
    """Earn 1 per step for `horizon` steps and then stop: by termination, or only by time-out.

    The observation is constant, so that the value of a state cannot depend on the time left. Where the end is a
    time-out the value is 1 / (1 - gamma); where it is a termination, one step in `horizon` does not bootstrap.
    """

    spec: ClassVar[EnvSpec] = EnvSpec(obs_size=1, action_size=1)
    cells: ClassVar[tuple[int, ...] | None] = None
    horizon: int = eqx.field(default=2, static=True)
    terminates: bool = eqx.field(default=False, static=True)

    def start(self, key: PRNGKey) -> Int[Array, ""]:
        del key
        return jnp.zeros((), jnp.int32)

    def observe(self, world: Int[Array, ""]) -> Float[Array, " 1"]:
        del world
        return jnp.ones(1, float_dtype())

    def move(
        self, world: Int[Array, ""], action: Float[Array, " 1"], key: PRNGKey
    ) -> tuple[Int[Array, ""], Scalar, Scalar]:
        del action, key
        world = world + 1
        over = (world >= self.horizon) & self.terminates
        return world, jnp.ones((), float_dtype()), over.astype(float_dtype())

    def cell(self, obs: Float[Array, " 1"]) -> Int[Array, ""]:
        raise TypeError("Clock has no visit grid")
