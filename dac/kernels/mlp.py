"""Fused passes of a network with two hidden layers of equal size and ReLU: forward, and both kinds of gradients.

A network is x -> relu(x w1 + b1) -> relu(h1 w2 + b2) -> h2 w3 + b3, for a batch. Three kernels, in Pallas for Triton:

- `forward` has one program per `rows` of the batch. It makes h1 tile by tile and uses each tile at once, so h1 is
  never stored; h2 is, where a gradient is to follow.
- `weight_gradients` has one program per tile of the hidden layer, which owns a slice of every gradient. It goes over
  the batch in order, so nothing is added up by several programs at once: the same input gives the same bits.
- `input_gradient` has one program per `rows` of the batch.

Members and twins are mapped axes, by `jax.vmap`: each adds an axis of programs. Products read operands of one type,
bfloat16 or float32 (of which Triton takes TF32), and are summed in float32. All sizes are padded with zeros to powers
of two, as Triton wants, in the same pass that rounds to the operands' type; zeros contribute nothing to any gradient.

Pallas' Triton backend is deprecated since JAX 0.11, and its successor, Mosaic GPU, runs on nothing but a Hopper or
newer: there a kernel could not be tested without one. This one is tested in Pallas' interpreter and lowered for CUDA.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

SMALLEST = 16
"""Triton's products need this many entries along every axis."""
PIECE = 64
"""Units of the second layer that `weight_gradients` goes through at once; all of them would not stay in registers."""
MOST_SUMS = 24 * 1024
"""Numbers of four bytes: beyond them the compiler, asked without a GPU, put some into slow memory."""
MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a program of an H100 or H200 can have."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """How one kernel cuts its work: all numbers are powers of two."""

    rows: int
    """Of the batch, at once."""
    hidden: int
    """Units of the hidden layer, at once."""
    warps: int
    """Groups of 32 threads per program."""
    stages: int
    """Loads that are under way at once."""


TILES = {
    "forward": Tile(rows=64, hidden=64, warps=8, stages=2),
    "weights": Tile(rows=32, hidden=64, warps=8, stages=2),
    "input": Tile(rows=64, hidden=64, warps=8, stages=2),
}
"""By kernel. They were chosen by what fits a Hopper's registers and shared memory; none has been timed."""


class Network(NamedTuple):
    """The parameters, padded or not."""

    w1: Float[Array, "in hidden"]
    b1: Float[Array, " hidden"]
    w2: Float[Array, "hidden hidden"]
    b2: Float[Array, " hidden"]
    w3: Float[Array, "hidden out"]
    b3: Float[Array, " out"]


class How(NamedTuple):
    """What is fixed when a pass is traced."""

    operands: str
    """The type that products read: bfloat16 or float32."""
    interpret: bool
    """Run the kernels in Pallas' interpreter, on any device and slowly; otherwise only a GPU runs them."""


def padded(size: int) -> int:
    """The next power of two that Triton can multiply."""
    return max(SMALLEST, pl.next_power_of_2(size))


def _pad(x: Array, *shape: int) -> Array:
    return jnp.pad(x, [(0, wanted - size) for size, wanted in zip(x.shape, shape, strict=True)])


def _prepare(x: Float[Array, "batch in"], network: Network, how: How) -> tuple[Array, Network]:
    """Pad everything, and round what products read."""
    inputs, hidden, outputs = (padded(size) for size in (*network.w1.shape, network.w3.shape[1]))
    rows = batch_size(x.shape[0])
    ready = Network(
        w1=_pad(network.w1.astype(how.operands), inputs, hidden),
        b1=_pad(network.b1, hidden),
        w2=_pad(network.w2.astype(how.operands), hidden, hidden),
        b2=_pad(network.b2, hidden),
        w3=_pad(network.w3.astype(how.operands), hidden, outputs),
        b3=_pad(network.b3, outputs),
    )
    return _pad(x.astype(how.operands), rows, inputs), ready


def batch_size(rows: int) -> int:
    """Whole tiles of every kernel."""
    tile = min(max(tile.rows for tile in TILES.values()), padded(rows))
    return -(-rows // tile) * tile


def _dot(x: Array, y: Array, over: tuple[int, int] = (1, 0)) -> Array:
    """Multiply two matrices, summed in float32 over these axes of theirs."""
    return jax.lax.dot_general(x, y, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32)


def _relu(x: Array) -> Array:
    return jnp.maximum(x, 0.0)


def _through(active: Array, gradient: Array) -> Array:
    """The gradient behind a ReLU."""
    return jnp.where(active > 0, gradient, 0.0)


def forward(x: Array, network: Network, how: How, *, keep: bool) -> tuple[Array, ...]:
    """The output of padded operands and, to `keep`, the second hidden layer too."""
    rows, inputs = x.shape
    hidden, outputs = network.w3.shape
    tile = fitting("forward", rows, inputs, hidden, x.dtype.itemsize)

    def kernel(x_ref: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, out: Any, *kept: Any) -> None:
        x = x_ref[...]

        def add(k: Array, total: Array) -> Array:
            part = pl.ds(k * tile.hidden, tile.hidden)
            first = _relu(_dot(x, w1[:, part]) + b1[part][None])
            return total + _dot(first.astype(x.dtype), w2[part, :])

        total = jax.lax.fori_loop(0, hidden // tile.hidden, add, jnp.zeros((tile.rows, hidden), jnp.float32))
        second = _relu(total + b2[...][None]).astype(x.dtype)
        out[...] = _dot(second, w3[...]) + b3[...][None]
        for ref in kept:
            ref[...] = second

    shapes = [jax.ShapeDtypeStruct((rows, outputs), jnp.float32), jax.ShapeDtypeStruct((rows, hidden), x.dtype)]
    found = _call(
        kernel,
        tile,
        how,
        grid=rows // tile.rows,
        ins=[_rows(tile, inputs), *(_whole(leaf) for leaf in network)],
        outs=[_rows(tile, outputs), _rows(tile, hidden)][: 1 + keep],
        shapes=shapes[: 1 + keep],
    )(x, *network)
    return tuple(found)


def weight_gradients(x: Array, network: Network, h2: Array, gradient: Array, how: How) -> Network:
    """Of everything padded: gradients of weights and biases, from that of the output."""
    rows, inputs = x.shape
    hidden, outputs = network.w3.shape
    tile = fitting("weights", rows, inputs, hidden, x.dtype.itemsize)
    piece = min(PIECE, hidden)

    def kernel(
        x_ref: Any, w1_ref: Any, b1_ref: Any, w2_ref: Any, w3_ref: Any, h2_ref: Any, g_ref: Any, *refs: Any
    ) -> None:
        unit = pl.program_id(0)
        pieces = [pl.ds(start, piece) for start in range(0, hidden, piece)]
        own = pl.ds(unit * tile.hidden, tile.hidden)  # the hidden units of this program, in both layers
        w1, b1, own_w3 = w1_ref[...], b1_ref[...][None], w3_ref[own, :]

        def add(i: Array, totals: tuple[Network, tuple[Array, ...]]) -> tuple[Network, tuple[Array, ...]]:
            total, slices = totals
            part = pl.ds(i * tile.rows, tile.rows)
            x, g, own_h2 = x_ref[part, :], g_ref[part, :], h2_ref[part, own]
            rounded = g.astype(x.dtype)
            first = _relu(_dot(x, w1) + b1)
            rounded_first = first.astype(x.dtype)
            d1 = jnp.zeros((tile.rows, tile.hidden), jnp.float32)
            grown = []
            for cut, old in zip(pieces, slices, strict=True):  # all of the second layer at once would need too much
                d2 = _through(h2_ref[part, cut], _dot(rounded, w3_ref[cut, :], (1, 1))).astype(x.dtype)
                d1 += _dot(d2, w2_ref[:, cut], (1, 1))
                grown.append(old + _dot(rounded_first, d2, (0, 0)))
            d1 = _through(first, d1)
            own_d2 = _through(own_h2, _dot(rounded, own_w3, (1, 1)))
            total = Network(
                w1=total.w1 + _dot(x, d1.astype(x.dtype), (0, 0)),
                b1=total.b1 + jnp.sum(d1, axis=0),
                w2=total.w2,
                b2=total.b2 + jnp.sum(own_d2, axis=0),
                w3=total.w3 + _dot(own_h2, rounded, (0, 0)),
                b3=total.b3 + jnp.sum(g, axis=0),
            )
            return total, tuple(grown)

        sizes = [(inputs, tile.hidden), tile.hidden, (), tile.hidden, (tile.hidden, outputs), outputs]
        start = Network(*(jnp.zeros(size, jnp.float32) for size in sizes))
        slices = tuple(jnp.zeros((tile.hidden, piece), jnp.float32) for _ in range(0, hidden, piece))
        total, slices = jax.lax.fori_loop(0, rows // tile.rows, add, (start, slices))
        sums = Network(*refs)
        sums.w1[...], sums.b1[...], sums.b2[...], sums.w3[...] = total.w1, total.b1, total.b2, total.w3
        for cut, found in zip(pieces, slices, strict=True):
            sums.w2[:, cut] = found

        @pl.when(unit == 0)
        def _() -> None:
            sums.b3[...] = total.b3  # the same in every program

    def columns(size: int) -> pl.BlockSpec:
        return pl.BlockSpec((size, tile.hidden), lambda k: (0, k))

    def units(*other: int) -> pl.BlockSpec:
        return pl.BlockSpec((tile.hidden, *other), lambda k: (k, *(0 for _ in other)))

    found = _call(
        kernel,
        tile,
        how,
        grid=hidden // tile.hidden,
        ins=[_whole(x), columns(inputs), units(), units(hidden), _whole(network.w3), _whole(h2), _whole(gradient)],
        outs=[columns(inputs), units(), units(hidden), units(), units(outputs), _whole(network.b3)],
        shapes=[jax.ShapeDtypeStruct(leaf.shape, jnp.float32) for leaf in network],
    )(x, network.w1, network.b1, network.w2, network.w3, h2, gradient)
    return Network(*found)


def input_gradient(x: Array, network: Network, h2: Array, gradient: Array, how: How) -> Array:
    """Of everything padded: the gradient of the input, from that of the output."""
    rows, inputs = x.shape
    hidden, outputs = network.w3.shape
    tile = fitting("input", rows, inputs, hidden, x.dtype.itemsize)

    def kernel(x_ref: Any, w1: Any, b1: Any, w2: Any, w3: Any, h2: Any, g: Any, out: Any) -> None:
        x = x_ref[...]
        d2 = _through(h2[...], _dot(g[...].astype(x.dtype), w3[...], (1, 1))).astype(x.dtype)

        def add(k: Array, total: Array) -> Array:
            part = pl.ds(k * tile.hidden, tile.hidden)
            own_w1 = w1[:, part]
            first = _dot(x, own_w1) + b1[part][None]
            d1 = _through(first, _dot(d2, w2[part, :], (1, 1)))
            return total + _dot(d1.astype(x.dtype), own_w1, (1, 1))

        start = jnp.zeros((tile.rows, inputs), jnp.float32)
        out[...] = jax.lax.fori_loop(0, hidden // tile.hidden, add, start)

    (found,) = _call(
        kernel,
        tile,
        how,
        grid=rows // tile.rows,
        ins=[
            _rows(tile, inputs),
            *(_whole(leaf) for leaf in (network.w1, network.b1, network.w2, network.w3)),
            _rows(tile, hidden),
            _rows(tile, outputs),
        ],
        outs=[_rows(tile, inputs)],
        shapes=[jax.ShapeDtypeStruct((rows, inputs), jnp.float32)],
    )(x, network.w1, network.b1, network.w2, network.w3, h2, gradient)
    return found


def fitting(name: str, rows: int, inputs: int, hidden: int, width: int) -> Tile:
    """A kernel's tile, cut down to what there is to do and to what a program of a Hopper can hold."""
    tile = TILES[name]
    tile = dataclasses.replace(tile, rows=min(tile.rows, rows), hidden=min(tile.hidden, hidden))
    while _sums(name, tile, inputs, hidden) > MOST_SUMS:
        tile = _halved(tile, "hidden" if name == "weights" else "rows")
    while _shared_bytes(name, tile, inputs, hidden, width) > MOST_SHARED:
        if tile.stages > 1:
            tile = _halved(tile, "stages")
        else:
            tile = _halved(tile, "hidden" if tile.hidden > SMALLEST else "rows")
    return tile


def _halved(tile: Tile, what: str) -> Tile:
    return dataclasses.replace(tile, **{what: getattr(tile, what) // 2})


def _sums(name: str, tile: Tile, inputs: int, hidden: int) -> int:
    """Numbers that a program keeps in registers all along."""
    if name == "weights":
        return tile.hidden * (inputs + hidden)
    return tile.rows * (hidden if name == "forward" else inputs + hidden)


def _shared_bytes(name: str, tile: Tile, inputs: int, hidden: int, width: int) -> int:
    """What Triton puts into shared memory, from compiling the kernels with Triton 3.6 for many sizes."""
    if name == "weights":
        return int(1.5 * width * (inputs + hidden) * (tile.rows + tile.hidden))
    return width * (tile.rows * inputs + tile.stages * tile.hidden * (inputs + hidden)) + 1024


def _whole(array: Array) -> pl.BlockSpec:
    """All of an array, for every program."""
    return pl.BlockSpec(array.shape, lambda _: (0,) * array.ndim)


def _rows(tile: Tile, size: int) -> pl.BlockSpec:
    """A program's own rows of the batch."""
    return pl.BlockSpec((tile.rows, size), lambda i: (i, 0))


def _call(
    kernel: Callable[..., None], tile: Tile, how: How, *, grid: int, ins: list, outs: list, shapes: list
) -> Callable[..., Any]:
    parameters = triton.CompilerParams(num_warps=tile.warps, num_stages=tile.stages)
    return pl.pallas_call(
        kernel,
        out_shape=shapes,
        grid=(grid,),
        in_specs=ins,
        out_specs=outs,
        compiler_params=parameters,
        interpret=how.interpret,
    )


def _plain_forward(x: Array, network: Network, *, keep: bool) -> tuple[Array, ...]:
    second = _relu(_dot(_plain_first(x, network).astype(x.dtype), network.w2) + network.b2).astype(x.dtype)
    return (_dot(second, network.w3) + network.b3, second)[: 1 + keep]


def _plain_first(x: Array, network: Network) -> Array:
    return _relu(_dot(x, network.w1) + network.b1)


def _plain_weight_gradients(x: Array, network: Network, h2: Array, gradient: Array) -> Network:
    first, rounded = _plain_first(x, network), gradient.astype(x.dtype)
    d2 = _through(h2, _dot(rounded, network.w3, (1, 1)))
    d1 = _through(first, _dot(d2.astype(x.dtype), network.w2, (1, 1)))
    return Network(
        w1=_dot(x, d1.astype(x.dtype), (0, 0)),
        b1=jnp.sum(d1, axis=0),
        w2=_dot(first.astype(x.dtype), d2.astype(x.dtype), (0, 0)),
        b2=jnp.sum(d2, axis=0),
        w3=_dot(h2, rounded, (0, 0)),
        b3=jnp.sum(gradient, axis=0),
    )


def _plain_input_gradient(x: Array, network: Network, h2: Array, gradient: Array) -> Array:
    d2 = _through(h2, _dot(gradient.astype(x.dtype), network.w3, (1, 1))).astype(x.dtype)
    d1 = _through(_plain_first(x, network), _dot(d2, network.w2, (1, 1)))
    return _dot(d1.astype(x.dtype), network.w1, (1, 1))


def _on_gpu(kernel: Callable, plain: Callable, how: How, *arguments: Any) -> Any:
    """The kernel in a program for CUDA, or in the interpreter where that is asked for; else what it stands for."""
    if how.interpret:
        return kernel(*arguments, how=how)
    return jax.lax.platform_dependent(*arguments, cuda=functools.partial(kernel, how=how), default=plain)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Wanted:
    """Which gradients a loss asks for."""

    parameters: bool
    input: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def apply(x: Float[Array, "batch in"], network: Network, how: How) -> Float[Array, "batch out"]:
    """The network's output for every row of a batch."""
    ready = _prepare(x, network, how)
    run = functools.partial
    out = _on_gpu(run(forward, keep=False), run(_plain_forward, keep=False), how, *ready)[0]
    return _cut(out, x.shape[0], network.b3.size)


def _apply_forward(x: Any, network: Any, how: How) -> tuple[Array, Any]:
    """The output, with what its gradients need; x and network say of every array whether it is differentiated."""
    wanted = _Wanted(any(leaf.perturbed for leaf in network), x.perturbed)
    x, network = x.value, Network(*(leaf.value for leaf in network))
    ready = _prepare(x, network, how)
    run = functools.partial
    out, h2 = _on_gpu(run(forward, keep=True), run(_plain_forward, keep=True), how, *ready)
    return _cut(out, x.shape[0], network.b3.size), (x, network, h2, wanted)


def _apply_backward(how: How, kept: Any, gradient: Array) -> tuple[Any, Any]:
    """The gradients that are wanted, and None for the others."""
    x, network, h2, wanted = kept
    if isinstance(gradient, jax.custom_derivatives.SymbolicZero):
        return None, None
    inputs, ready = _prepare(x, network, how)
    arguments = inputs, ready, h2, _pad(gradient, inputs.shape[0], ready.b3.size)
    to_x = to_network = None
    if wanted.input:
        to_x = _cut(_on_gpu(input_gradient, _plain_input_gradient, how, *arguments), *x.shape)
    if wanted.parameters:
        found = _on_gpu(weight_gradients, _plain_weight_gradients, how, *arguments)
        to_network = Network(*(_cut(new, *old.shape) for new, old in zip(found, network, strict=True)))
    return to_x, to_network


apply.defvjp(_apply_forward, _apply_backward, symbolic_zeros=True)


def _cut(x: Array, *shape: int) -> Array:
    """What is left without the padding."""
    return x[tuple(slice(size) for size in shape)]
