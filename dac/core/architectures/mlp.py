"""Fully connected layers, with or without layer norm."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
from jaxtyping import Array, Float

from dac.core import fused
from dac.core.architectures.base import AbstractNetwork, Activation, Bias, Weight, check_single, draw_layers, layer_norm
from dac.core.precision import product
from dac.core.types import PRNGKey


class MLP(AbstractNetwork):
    """Fully connected layers, zero biases, linear output; Xavier-uniform weights and ReLU unless told otherwise.

    Weights are stored (in, out), so that a mapped batch is one plain matrix product. With `norm` "layer", every hidden
    layer is normalised before its activation (Ba, Kiros & Hinton 2016).
    """

    weights: tuple[Weight, ...]
    """One matrix per layer, the output's last."""
    biases: tuple[Bias, ...]
    """One vector per layer, the output's last."""
    norms: tuple[eqx.nn.LayerNorm, ...]
    """One layer norm per hidden layer, or none."""
    activation: Activation = eqx.field(static=True)
    """Applied after every hidden layer."""
    precision: str = eqx.field(static=True)
    """What every product with weights is computed in."""
    kernels: str = eqx.field(static=True)
    """Whether batches take the fused passes of `dac/kernels/`: off, on, or interpret."""

    @classmethod
    def unfused(cls, hidden: tuple[int, ...], activation: str, norm: str) -> str | None:
        if activation != "relu" or norm != "none":
            return "they are for ReLU without norm"
        if len(hidden) != 2 or hidden[0] != hidden[1]:
            return f"they are for two hidden layers of one size, not {','.join(map(str, hidden))}"
        return None if hidden[0] <= fused.LARGEST_HIDDEN else f"they are for hidden layers up to {fused.LARGEST_HIDDEN}"

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
        kernels: str = "off",
    ):
        """With `last_scale`: orthogonal weights, scaled by sqrt(2) in hidden layers and by `last_scale` at the end."""
        shapes = list(itertools.pairwise((in_size, *hidden, out_size)))
        if last_scale is None:
            initialisers = [jax.nn.initializers.glorot_uniform()] * len(shapes)
        else:
            scales = [2**0.5] * len(hidden) + [last_scale]
            initialisers = [jax.nn.initializers.orthogonal(scale) for scale in scales]
        self.weights, self.biases = draw_layers(initialisers, jax.random.split(key, len(shapes)), shapes)
        self.norms = tuple(layer_norm(size) for size in hidden) if norm == "layer" else ()
        self.activation = activation
        self.precision = precision
        self.kernels = kernels

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        check_single(self.weights[0])
        return self.plain(x) if self.kernels == "off" else fused.apply(self, x)

    def plain(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """The output, layer by layer."""
        for i, (weight, bias) in enumerate(zip(self.weights[:-1], self.biases[:-1], strict=True)):
            x = product(x, weight, self.precision) + bias
            if self.norms:
                x = self.norms[i](x)
            x = self.activation(x)
        return product(x, self.weights[-1], self.precision) + self.biases[-1]
