"""K-FAC (Martens & Grosse, ICML 2015): natural gradients with one Kronecker product per layer for the Fisher matrix.

A layer s = W^T a + b has the gradient a' g^T for one example: a' is its input with a 1 appended (so that the bias is
one more row of W), g the gradient of the log-likelihood at s. Its block of the Fisher matrix is E[a' a'^T (x) g g^T],
which K-FAC replaces by A (x) G with A = E[a' a'^T] and G = E[g g^T]. Blocks between layers are taken to be zero.

The expectation over g is that of the model's own predictions: g comes from outputs sampled from the model, never from
the data (that would be the "empirical Fisher", another matrix).
"""

from __future__ import annotations

from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from dac.core.architectures import MLP
from dac.core.precision import product
from dac.core.types import Scalar, float_dtype

Symmetric: TypeAlias = Float[Array, "size size"]
Refresh: TypeAlias = bool | Bool[Array, ""]
SMALLEST_SCALE = 1e-10
"""A factor that is zero (no signal reaches the layer) counts as this large."""


class LayerStatistics(eqx.Module):
    """What a batch tells about one layer."""

    inputs: Float[Array, "batch in"]
    gradients: Float[Array, "batch out"]
    """Of the log-likelihood of a sampled output, at the layer's pre-activations."""


def layer_statistics(
    mlp: MLP, x: Float[Array, "batch in"], score: Float[Array, "batch out"]
) -> tuple[LayerStatistics, ...]:
    """Inputs and pre-activation gradients of every layer, from d log p(y|x) / d output of sampled y.

    For a Gaussian output with standard deviation sigma and y = output + sigma * noise, the score is noise / sigma.
    """

    def forward(perturbations: list[Array]) -> tuple[Array, list[Array]]:
        inputs, hidden, last = [], x, len(perturbations) - 1
        for i, (weight, bias, perturbation) in enumerate(zip(mlp.weights, mlp.biases, perturbations, strict=True)):
            inputs.append(hidden)
            hidden = product(hidden, weight, mlp.precision) + bias[None] + perturbation
            if i < last:
                hidden = mlp.activation(hidden)
        return hidden, inputs

    zeros = [jnp.zeros((x.shape[0], *bias.shape), x.dtype) for bias in mlp.biases]
    _, pull_back, inputs = jax.vjp(forward, zeros, has_aux=True)
    return tuple(LayerStatistics(a, g) for a, g in zip(inputs, pull_back(score)[0], strict=True))


class Factors(eqx.Module):
    """Two matrices whose Kronecker product stands for a layer's block of the Fisher matrix, or for its inverse."""

    inputs: Float[Array, "in in"]
    """A, with a last row and column for the bias."""
    gradients: Float[Array, "out out"]
    """G."""


class KFACState(eqx.Module):
    count: Int[Array, ""]
    factors: tuple[Factors, ...]
    inverses: tuple[Factors, ...]


def scale_by_kfac(
    decay: Scalar | float = 0.95, damping: Scalar | float = 0.01
) -> optax.GradientTransformationExtraArgs:
    """Multiply the gradient of an `MLP` by (A (x) G)^-1, damped, layer by layer.

    `update` takes the `layer_statistics` of the batch as `statistics`. The factors are plain means over the first
    batches and then moving averages: they keep min(1 - 1/t, decay) of themselves, as in Martens & Grosse. With
    `refresh` false the inverses of an earlier call are used; it must be true in the first call.
    """

    def init(params: MLP) -> KFACState:
        def zeros() -> tuple[Factors, ...]:
            shapes = [weight.shape for weight in params.weights]
            return tuple(Factors(_zeros(inputs + 1), _zeros(outputs)) for inputs, outputs in shapes)

        return KFACState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(
        updates: MLP,
        state: KFACState,
        params: MLP | None = None,
        *,
        statistics: tuple[LayerStatistics, ...],
        refresh: Refresh = True,
    ) -> tuple[MLP, KFACState]:
        del params
        count = state.count + 1
        kept = jnp.minimum(1 - 1 / count.astype(float_dtype()), decay)
        factors = jax.tree.map(lambda old, new: kept * old + (1 - kept) * new, state.factors, batch_factors(statistics))
        # a condition that all members share stays a condition, and costs nothing where it is false
        inverses = jax.lax.cond(
            refresh, lambda: tuple(damped_inverse(f, damping) for f in factors), lambda: state.inverses
        )
        layers = zip(inverses, updates.weights, updates.biases, strict=True)
        natural = [_precondition(inverse, weight, bias) for inverse, weight, bias in layers]
        weights, biases = (tuple(parts) for parts in zip(*natural, strict=True))
        direction = eqx.tree_at(lambda mlp: (mlp.weights, mlp.biases), updates, (weights, biases))
        return direction, KFACState(count, factors, inverses)

    return optax.GradientTransformationExtraArgs(init, update)


def damped_inverse(factors: Factors, damping: Scalar | float) -> Factors:
    """(A + pi sqrt(damping) I)^-1 and (G + sqrt(damping) / pi I)^-1. Section 6.3, Martens & Grosse 2015.

    pi^2 is the ratio of the factors' mean eigenvalues: scaling A up and G down by the same number changes nothing. The
    product is at least A (x) G + damping I. The authors of ACKTR take that sum itself, in the factors' eigenbases; an
    eigendecomposition is not to be had here (see `inverse`).
    """
    scales = [jnp.maximum(jnp.trace(m) / m.shape[0], SMALLEST_SCALE) for m in (factors.inputs, factors.gradients)]
    root, pi = jnp.sqrt(damping), jnp.sqrt(scales[0] / scales[1])
    return Factors(
        inverse(factors.inputs + pi * root * jnp.eye(len(factors.inputs), dtype=factors.inputs.dtype)),
        inverse(factors.gradients + root / pi * jnp.eye(len(factors.gradients), dtype=factors.gradients.dtype)),
    )


def inverse(matrix: Symmetric) -> Symmetric:
    """The inverse of a positive definite matrix by Gauss-Jordan elimination, which needs no pivoting there.

    Not Cholesky or eigh: on the CPU these are LAPACK calls that share a thread pool with the program that calls them. A
    program that holds many of them, mapped over members, can wait for itself for ever when it runs in several threads
    at once (8 matrices, 2 members, 2 threads and 2 cores suffice with jax 0.10.2). One call after another comes back:
    `density.py` needs a single one and uses it. A test runs both in many threads.
    """
    places = jnp.arange(len(matrix))

    def eliminate(k: Int[Array, ""], m: Symmetric) -> Symmetric:
        pivot, row, column = m[k, k], m[k] / m[k, k], m[:, k]
        in_row, in_column = (places == k)[:, None], (places == k)[None, :]
        others = m - jnp.outer(column, row)
        at_row = jnp.where(in_column, 1 / pivot, row[None, :])
        return jnp.where(in_row, at_row, jnp.where(in_column, -column[:, None] / pivot, others))

    found = jax.lax.fori_loop(0, len(matrix), eliminate, matrix)
    return (found + found.T) / 2


def batch_factors(statistics: tuple[LayerStatistics, ...]) -> tuple[Factors, ...]:
    """A = E[a' a'^T] and G = E[g g^T] of one batch."""

    def one(layer: LayerStatistics) -> Factors:
        size = layer.inputs.shape[0]
        inputs = jnp.concatenate([layer.inputs, jnp.ones((size, 1), layer.inputs.dtype)], axis=1)
        return Factors(inputs.T @ inputs / size, layer.gradients.T @ layer.gradients / size)

    return tuple(map(one, statistics))


def clip_scale(gradient: PyTree, direction: PyTree, learning_rate: Scalar | float, clip: Scalar | float) -> Scalar:
    """min(1, sqrt(clip / (lr^2 g . d))): what the direction is shortened by. Section 4, Wu et al. 2017.

    For d = (F + damping)^-1 g, lr^2 g . d is at least lr^2 d^T F d, twice the KL divergence that a step lr d makes to
    second order; so the step predicted to move the model by more than clip / 2 is made shorter.
    """
    product = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True))
    tiny = jnp.finfo(float_dtype()).tiny
    return jnp.minimum(1.0, jnp.sqrt(clip / jnp.maximum(learning_rate**2 * product, tiny)))


def _precondition(
    inverse: Factors, weight: Float[Array, "in out"], bias: Float[Array, " out"]
) -> tuple[Float[Array, "in out"], Float[Array, " out"]]:
    """The inverse Fisher block times the gradient of one layer: (A (x) G)^-1 vec(D) = vec(A^-1 D G^-1)."""
    natural = inverse.inputs @ jnp.concatenate([weight, bias[None]]) @ inverse.gradients
    return natural[:-1], natural[-1]


def _zeros(size: int) -> Symmetric:
    return jnp.zeros((size, size), float_dtype())
