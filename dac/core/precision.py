"""The precision of matrix products: the one function by which every network multiplies by its weights.

Weights, activations, gradients and optimisers are float32 whatever is chosen. What changes is what a product reads:
with `bf16` its operands are rounded to 8 significant bits on the way in, and their products are summed in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

PRECISIONS = ("float32", "tf32", "bf16")
"""What products can be computed in."""
AUTO = "auto"
"""Stands for one of them until a run has measured which is the fastest."""


def settled(precision: str) -> str:
    """What networks are built with: float32 where nothing was measured yet, as for a model that has not learnt."""
    return "float32" if precision == AUTO else precision


Axes = tuple[str, str, str]
"""The axes of both operands and of the result, a letter each: what is in the operands alone is summed over."""


def product(x: Float[Array, "*batch in"], weight: Float[Array, "in out"], precision: str) -> Float[Array, "*batch out"]:
    """x @ weight in this precision, and both of its gradients too.

    "float32" is JAX's own product of float32 numbers, for which some GPUs use TF32. "tf32" asks for TF32 on a GPU and
    is "float32" elsewhere.
    """
    if precision == "bf16":
        free = "abcdefgh"[: x.ndim - 1]
        return _rounded.bind(x, weight, axes=(f"{free}i", "io", f"{free}o"))
    if precision == "tf32" and jax.default_backend() == "gpu":
        return jnp.matmul(x, weight, precision=jax.lax.DotAlgorithmPreset.TF32_TF32_F32)
    return x @ weight


# A primitive, because nothing that JAX offers computes the gradients in bf16 too. The derivative of its product of bf16
# numbers multiplies a float32 cotangent and rounds the result; CPUs ignore its bf16 algorithm of a float32 product; and
# a `custom_vjp` that is mapped over a batch adds up one outer product per example. A product is linear in both
# operands, so its derivatives are products with other axes, and so is a mapped one.
_rounded = Primitive("rounded_product")


def _multiply(x: Array, y: Array, *, axes: Axes) -> Array:
    """Round both operands to bfloat16, and sum their products in float32."""
    first, second, result = axes
    shared = [name for name in first if name in second]
    batch, summed = [name for name in shared if name in result], [name for name in shared if name not in result]
    over, along = (([first.index(n) for n in names], [second.index(n) for n in names]) for names in (summed, batch))
    rounded = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
    total = jax.lax.dot_general(*rounded, (over, along), preferred_element_type=jnp.float32)
    found = [*batch, *(name for name in first + second if name not in shared)]
    return jnp.transpose(total, [found.index(name) for name in result]).astype(x.dtype)


def _multiply_on_cpu(x: Array, y: Array, *, axes: Axes) -> Array:
    """The same, the first operand copied so that what is summed over comes last.

    XLA's bf16 products for CPUs take no other; without the copy, those of weight gradients are float32 products. It is
    a broadcast into other places, and an axis of one entry, because XLA would undo a transposition.
    """
    ours = axes[0]
    wanted = "".join(sorted(ours, key=lambda name: name in axes[1] and name not in axes[2]))  # stable
    if wanted != ours:
        shape = [x.shape[ours.index(name)] for name in wanted]
        moved = jax.lax.broadcast_in_dim(x.astype(jnp.bfloat16), (1, *shape), [1 + wanted.index(name) for name in ours])
        x = jax.lax.optimization_barrier(moved.reshape(shape)).astype(x.dtype)
    return _multiply(x, y, axes=(wanted, *axes[1:]))


def _batch(operands: Sequence[Array], dims: Sequence[int | None], *, axes: Axes) -> tuple[Array, int]:
    """Give the mapped axis a letter that is free, in the operands that have it and in front of the result."""
    new = next(letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in "".join(axes))
    x, y = (name if dim is None else name[:dim] + new + name[dim:] for name, dim in zip(axes, dims, strict=False))
    return _rounded.bind(*operands, axes=(x, y, new + axes[2])), 0


def _shape(x: Array, y: Array, *, axes: Axes) -> jax.core.ShapedArray:
    sizes = dict(zip(axes[0] + axes[1], (*x.shape, *y.shape), strict=True))
    return jax.core.ShapedArray(tuple(sizes[name] for name in axes[2]), x.dtype)


_rounded.def_impl(jax.jit(lambda x, y, axes: _rounded.bind(x, y, axes=axes), static_argnames="axes"))
_rounded.def_abstract_eval(_shape)
batching.primitive_batchers[_rounded] = _batch
ad.defbilinear(
    _rounded,
    lambda cotangent, x, y, *, axes: _rounded.bind(cotangent, y, axes=(axes[2], axes[1], axes[0])),
    lambda cotangent, x, y, *, axes: _rounded.bind(x, cotangent, axes=(axes[0], axes[2], axes[1])),
)
mlir.register_lowering(_rounded, mlir.lower_fun(_multiply, multiple_results=False))
mlir.register_lowering(_rounded, mlir.lower_fun(_multiply_on_cpu, multiple_results=False), platform="cpu")
