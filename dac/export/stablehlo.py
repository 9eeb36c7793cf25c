"""A policy as JAX's portable program: StableHLO, for one observation or any number of them, on CPU, CUDA and TPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dac.api import Run
from dac.core.types import float_dtype
from dac.export.graph import needs_noise
from dac.export.members import Actor, as_run, place, read_actor, write_new

PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(
    run: Run | Path | str, path: Path | str | None = None, member: int | None = None, *, force: bool = False
) -> Path:
    """Write a member's policy, the best one's if None, as a serialised `jax.export.Exported`, and return its path.

    It is called with `obs` (batch, observation) and gives the action (batch, action) in the environment's own range; a
    policy that draws its actions (Soft Q-Learning) takes `noise` (batch, action), standard normal, beside it.
    """
    run = as_run(run)
    actor = read_actor(run, member)
    path = place(run, actor, path, ".stablehlo")
    write_new({path: bytes(stablehlo_program(actor).serialize())}, force)
    return path


def stablehlo_program(actor: Actor) -> export.Exported:
    """Return an actor as an exported program, its weights inside, the batch axis free."""
    (batch,) = export.symbolic_shape("batch")
    sizes = [actor.spec.obs_size, *([actor.spec.action_size] if needs_noise(actor.policy) else [])]
    shapes = [jax.ShapeDtypeStruct((batch, size), jnp.float32) for size in sizes]
    with jax.default_matmul_precision("highest"):  # the file is to give the same action everywhere
        return export.export(jax.jit(_acting(actor)), platforms=PLATFORMS)(*shapes)


def _acting(actor: Actor) -> Any:
    """A function from observations to actions, by the policy's own code."""
    policy, bounds, dtype = actor.policy, actor.bounds, float_dtype()
    middle, reach, low, high = (
        np.asarray(array, np.float32)[None] for array in (bounds.middle, bounds.reach, bounds.low, bounds.high)
    )

    def guess(obs, *noise):
        if noise:
            return policy(obs, noise[0])
        return policy.act(obs, jax.random.key(0), explore=False)  # a best guess draws nothing

    def act(*inputs):
        actions = jax.vmap(guess)(*(x.astype(dtype) for x in inputs)).astype(jnp.float32)
        return jnp.clip(middle + reach * jnp.clip(actions, -1, 1), low, high)

    return act
