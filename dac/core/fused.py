"""Where networks take the fused passes of `dac/kernels/`: a network written for one example meets its batch here.

Networks, losses and algorithms know nothing of it. A network of one example is one operation, which JAX maps over the
batch before it differentiates, and the mapped operation is a kernel with gradients of its own; members and twins, which
are mapped further out, become more programs of the same kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from dac.core.architectures.mlp import MLP

KERNELS = ("auto", "on", "off")
"""What `--kernels` accepts."""
INTERPRET = "interpret"
"""Stands for `on` in tests and benchmarks without a GPU: kernels run in Pallas' interpreter, slowly."""
FEWEST_ROWS = 16
"""Smaller batches, such as the observation that a policy acts on, take the plain path: a tile would be mostly empty."""
LARGEST_HIDDEN = 512
"""A program holds sums for some rows of a batch and a whole hidden layer in its registers; more do not fit."""


def settled(kernels: str) -> str:
    """What networks are built with: `auto` is off as long as no measurement in this repository says that they gain."""
    return "off" if kernels == "auto" else kernels


def apply(network: MLP, x: Float[Array, " in"]) -> Float[Array, " out"]:
    """The output for one input: by a kernel where inputs are mapped and the network is not, else by its plain path."""
    leaves, structure = jax.tree.flatten(network)
    return _fused.bind(x, *leaves, structure=structure)


_fused = Primitive("fused_network")


def _plain(x: Array, *leaves: Array, structure: Any) -> Array:
    return jax.tree.unflatten(structure, leaves).plain(x)


def _batch(operands: Sequence[Array], dims: Sequence[int | None], *, structure: Any) -> tuple[Array, int]:
    """Where inputs alone are mapped, the batch is one call of the kernel; anything else maps the plain path."""
    x, *leaves = operands
    axis = dims[0]
    alone = all(dim is None for dim in dims[1:])
    if axis is None or not alone or x.shape[axis] < FEWEST_ROWS or x.dtype != jnp.float32:
        return jax.vmap(lambda *each: _plain(*each, structure=structure), in_axes=tuple(dims))(*operands), 0
    from dac.kernels import mlp  # Pallas takes a moment to load, and a run without kernels does not need it

    network = jax.tree.unflatten(structure, leaves)
    (w1, w2, w3), (b1, b2, b3) = network.weights, network.biases
    how = mlp.How("bfloat16" if network.precision == "bf16" else "float32", network.kernels == INTERPRET)
    return mlp.apply(jnp.moveaxis(x, axis, 0), mlp.Network(w1, b1, w2, b2, w3, b3), how), 0


def _shape(x: Array, *leaves: Array, structure: Any) -> jax.core.ShapedArray:
    return jax.core.ShapedArray((jax.tree.unflatten(structure, leaves).biases[-1].shape[0],), x.dtype)


_fused.def_impl(
    jax.jit(lambda x, *leaves, structure: _plain(x, *leaves, structure=structure), static_argnames="structure")
)
_fused.def_abstract_eval(_shape)
batching.primitive_batchers[_fused] = _batch
# without a batch the derivative is that of the plain path
ad.primitive_jvps[_fused] = lambda primals, tangents, *, structure: jax.jvp(
    lambda x, *leaves: _plain(x, *leaves, structure=structure),
    tuple(primals),
    tuple(jnp.zeros_like(p) if isinstance(t, ad.Zero) else t for p, t in zip(primals, tangents, strict=True)),
)
mlir.register_lowering(_fused, mlir.lower_fun(_plain, multiple_results=False))
