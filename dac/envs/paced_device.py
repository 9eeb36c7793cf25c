"""Time limits and frame skip for environments in the compiled program; `paced_host.py` has those of the host."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dac.core.types import EnvSpec, PRNGKey, Scalar
from dac.envs.base import AbstractDeviceEnv
from dac.envs.bounds import ActionBounds
from dac.envs.pace import Pace


class PacedWorld(eqx.Module):
    """The state of the world inside, and the steps it has made in this episode."""

    world: Any
    frames: Int[Array, ""]


class PacedEnv(AbstractDeviceEnv):
    """An environment that holds every action for `skip` of its steps and ends an episode after `limit` actions.

    The rewards of the steps are summed; an episode that ends under way is not gone on with.
    """

    env: AbstractDeviceEnv
    skip: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def __init__(self, env: AbstractDeviceEnv, pace: Pace):
        self.env, self.skip, self.horizon = env, pace.skip, pace.horizon(env.horizon)

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    @property
    def bounds(self) -> ActionBounds:
        return self.env.bounds

    @property
    def cells(self) -> tuple[int, ...] | None:
        return self.env.cells

    @property
    def walls(self) -> Bool[np.ndarray, "x y"] | None:
        return self.env.walls

    def start(self, key: PRNGKey) -> PacedWorld:
        return PacedWorld(self.env.start(key), jnp.zeros((), jnp.int32))

    def observe(self, world: PacedWorld) -> Float[Array, " obs"]:
        return self.env.observe(world.world)

    def move(
        self, world: PacedWorld, action: Float[Array, " action"], key: PRNGKey
    ) -> tuple[PacedWorld, Scalar, Scalar]:
        keys = key[None] if self.skip == 1 else jax.random.split(key, self.skip)
        inner, reward, terminated = self.env.move(world.world, action, keys[0])
        frames = world.frames + 1

        def hold(held: tuple[Any, Scalar, Scalar, Int[Array, ""]], frame: PRNGKey) -> tuple[Any, None]:
            inner, reward, terminated, frames = held
            goes_on = (terminated == 0) & ~self.env.timed_out(inner, frames)
            moved, more, over = self.env.move(inner, action, frame)
            inner = jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), moved, inner)
            reward = reward + jnp.where(goes_on, more, 0)
            return (inner, reward, jnp.where(goes_on, over, terminated), frames + goes_on), None

        if self.skip > 1:  # a loop of the program, which is the same one then whatever the skip
            (inner, reward, terminated, frames), _ = jax.lax.scan(hold, (inner, reward, terminated, frames), keys[1:])
        return PacedWorld(inner, frames), reward, terminated

    def timed_out(self, world: PacedWorld, elapsed: Int[Array, ""]) -> Bool[Array, ""]:
        return super().timed_out(world, elapsed) | self.env.timed_out(world.world, world.frames)

    def cell(self, obs: Float[Array, " obs"]) -> Int[Array, ""]:
        return self.env.cell(obs)
