"""What every network architecture has in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.core.types import PRNGKey, UsageError, float_dtype

Activation = Callable[[Array], Array]
"""An activation function, entry by entry."""
Weight = Float[Array, "in out"]
"""Weights of a layer, so that a mapped batch is one plain matrix product."""
Bias = Float[Array, " out"]
"""Biases of a layer."""


class AbstractNetwork(eqx.Module):
    """A function from one vector to another with parameters to learn."""

    @abc.abstractmethod
    def __init__(
        self,
        key: PRNGKey,
        in_size: int,
        hidden: tuple[int, ...],
        out_size: int,
        *,
        activation: Activation,
        norm: str,
        last_scale: float | None,
        precision: str,
    ):
        """Draw the initial weights; `last_scale` asks for orthogonal ones, those of the output scaled by it.

        `precision` is for `dac.core.precision.product`, by which an input is multiplied by weights.
        """

    @classmethod
    def check(cls, hidden: tuple[int, ...], norm: str) -> None:
        """Raise a UsageError if this architecture cannot be built so."""

    @classmethod
    def unfused(cls, hidden: tuple[int, ...], activation: str, norm: str) -> str | None:
        """Why there are no kernels for such a network, or None where its constructor takes `kernels` too."""
        del hidden, activation, norm
        return "they are for networks of --network mlp"

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        """The output for one input."""


def draw_layers(
    initialisers: Sequence[jax.nn.initializers.Initializer], keys: Iterable[PRNGKey], shapes: Sequence[tuple[int, int]]
) -> tuple[tuple[Weight, ...], tuple[Bias, ...]]:
    """Draw the weights of one layer per initialiser, key and shape (in, out); their biases begin at zero."""
    drawn = zip(initialisers, keys, shapes, strict=True)
    weights = tuple(initialise(key, shape, float_dtype()) for initialise, key, shape in drawn)
    return weights, tuple(jnp.zeros(size, float_dtype()) for _, size in shapes)


def check_single(weight: Weight) -> None:
    """Refuse the stacked networks of a population: without a map over members their output would be nonsense."""
    if weight.ndim != 2:
        raise UsageError(
            "these are the networks of several members, stacked; use one of them: run.model(k).predict(obs), "
            "or dac.core.population.pick(policies, k)"
        )


def layer_norm(size: int) -> eqx.nn.LayerNorm:
    """(x - mean) / sqrt(variance + 1e-6) over the entries of x, times a scale and plus an offset that are learned."""
    return eqx.nn.LayerNorm(size, eps=1e-6, dtype=float_dtype())
