"""Residual blocks with layer norm, as in SimBa."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float

from dac.core.architectures.base import AbstractNetwork, Activation, Bias, Weight, check_single, draw_layers, layer_norm
from dac.core.precision import product
from dac.core.types import PRNGKey, UsageError

EXPANSION = 4
"""Width of a residual block inside, in multiples of its width outside; SimBa's."""


class ResidualBlock(eqx.Module):
    """x + W2 activation(W1 norm(x)), four times as wide inside. Section 4, Lee et al. 2025."""

    norm: eqx.nn.LayerNorm
    weights: tuple[Weight, ...]
    biases: tuple[Bias, ...]
    activation: Activation = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, key: PRNGKey, size: int, activation: Activation, precision: str):
        wide, draw = EXPANSION * size, jax.nn.initializers.he_normal()
        self.norm = layer_norm(size)
        self.weights, self.biases = draw_layers([draw] * 2, jax.random.split(key), [(size, wide), (wide, size)])
        self.activation = activation
        self.precision = precision

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        inner = self.activation(product(self.norm(x), self.weights[0], self.precision) + self.biases[0])
        return x + product(inner, self.weights[1], self.precision) + self.biases[1]


class ResidualMLP(AbstractNetwork):
    """SimBa's network (Lee et al., ICLR 2025): a linear layer, residual blocks, layer norm, a linear output.

    One block per entry of `hidden`. Weights are orthogonal outside the blocks and He-normal inside, as in SimBa, which
    also normalises observations by running statistics; our replay buffer keeps them as they are.
    """

    weights: tuple[Weight, ...]
    """Of the first and of the last layer."""
    biases: tuple[Bias, ...]
    """Of the first and of the last layer."""
    blocks: tuple[ResidualBlock, ...]
    """One per entry of `hidden`."""
    norm: eqx.nn.LayerNorm
    """Before the output."""
    precision: str = eqx.field(static=True)
    """What every product with weights is computed in."""

    @classmethod
    def check(cls, hidden: tuple[int, ...], norm: str) -> None:
        if len(set(hidden)) != 1:
            sizes = ",".join(map(str, hidden))
            raise UsageError(f"network residual needs hidden layers of one size, such as 256,256, not {sizes}")
        if norm != "none":
            raise UsageError(f"network residual has layer norms of its own: norm must be none, not {norm}")

    def __init__(
        self,
        key: PRNGKey,
        in_size: int,
        hidden: tuple[int, ...],
        out_size: int,
        *,
        activation: Activation = jax.nn.relu,
        norm: str = "none",
        last_scale: float | None = None,
        precision: str = "float32",
    ):
        self.check(hidden, norm)
        size = hidden[0]
        in_key, out_key, *block_keys = jax.random.split(key, 2 + len(hidden))
        draw = jax.nn.initializers.orthogonal
        initialisers = [draw(), draw(1.0 if last_scale is None else last_scale)]
        self.weights, self.biases = draw_layers(initialisers, [in_key, out_key], [(in_size, size), (size, out_size)])
        self.blocks = tuple(ResidualBlock(k, size, activation, precision) for k in block_keys)
        self.norm = layer_norm(size)
        self.precision = precision

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        check_single(self.weights[0])
        x = product(x, self.weights[0], self.precision) + self.biases[0]
        for block in self.blocks:
            x = block(x)
        return product(self.norm(x), self.weights[1], self.precision) + self.biases[1]
