"""Which precision is the fastest here: measured at the start of a run that asks for it, not looked up by a name."""

from __future__ import annotations

import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dac.config import RunConfig
from dac.core.architectures.residual import EXPANSION
from dac.core.precision import AUTO, product

ROUNDS = 15
"""Times that each precision is measured, in turns, so that what else the machine does falls on all."""
WORTH = 1.1
"""Another precision than float32 has to be faster by this much."""


def settle_precision(config: RunConfig) -> tuple[RunConfig, str | None]:
    """The run with a precision in the place of `auto`, and a line on it where it is not what it says."""
    wanted = config.hyper["precision"]
    platform = jax.devices()[0].platform
    if wanted == "tf32" and platform != "gpu":
        return config, f"precision: tf32 is for GPUs; on a {platform} it is float32"
    if wanted != AUTO:
        return config, None
    seconds = measure(config)
    fastest = min(seconds, key=lambda name: seconds[name])
    chosen = fastest if seconds["float32"] > WORTH * seconds[fastest] else "float32"
    times = ", ".join(f"{name} {value * 1e3:.2f} ms" for name, value in seconds.items())
    line = f"precision: {chosen}, by measurement (a hidden layer forward and backward: {times})"
    return dataclasses.replace(config, hyper={**config.hyper, "precision": chosen}), line


def measure(config: RunConfig) -> dict[str, float]:
    """Seconds that the largest layer of this run takes forward and backward, for all members, in each precision."""
    x, weight = _largest_layer(config)
    names = ("float32", "tf32", "bf16") if jax.default_backend() == "gpu" else ("float32", "bf16")
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS + 1):
        for name in names:
            start = time.perf_counter()
            jax.block_until_ready(_forward_and_backward(x, weight, name))
            if number:  # the first call compiles
                taken[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in taken.items()}


def _largest_layer(config: RunConfig) -> tuple[Float[Array, "member batch in"], Float[Array, "member in out"]]:
    """A batch and the weights of the largest hidden layer, as zeros, or of the only one with as many inputs."""
    hyper, members = config.hyper, len(config.members())
    batch = hyper.get("batch_size") or hyper["rollout"] // hyper.get("minibatches", 1)
    hidden = hyper["hidden"]
    if hyper["network"] == "residual":
        sizes = hidden[0], EXPANSION * hidden[0]
    else:
        sizes = max(zip(hidden, hidden[1:] or hidden, strict=False), key=lambda pair: pair[0] * pair[1])
    return jnp.zeros((members, batch, sizes[0])), jnp.zeros((members, *sizes))


@functools.partial(jax.jit, static_argnums=2)
def _forward_and_backward(
    x: Float[Array, "member batch in"], weight: Float[Array, "member in out"], precision: str
) -> tuple[Array, Array]:
    """The gradients of a layer's output with respect to its input and its weights; both need the output."""

    def loss(x: Float[Array, "batch in"], weight: Float[Array, "in out"]) -> Array:
        return jnp.sum(jax.vmap(lambda row: product(row, weight, precision))(x) ** 2)

    return jax.vmap(jax.grad(loss, argnums=(0, 1)))(x, weight)
