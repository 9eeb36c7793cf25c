"""What fused passes gain: first are they right on this device, then each pass and a whole update with and without them.

python bench/kernels.py [--members 1,64] [--algorithm dac] [--precision bf16,float32] [--rounds 7] [--updates 20]
    [--tiles forward=64,64,8,2 --tiles weights=32,64,8,2 --tiles weights=64,64,8,2 ...]

Every `--tiles` is one more way to cut one kernel (rows, hidden units, warps, stages; powers of two), timed beside the
others; the update runs with the fastest of them. Parity comes first: a pass whose error is more than twice that of
XLA's own at the same precision is not `fine`, and one that is wrong altogether ends the program. Without a GPU,
`--interpret --hidden 16 --batch 32 --members 2 --updates 1 --rounds 1` goes through everything in Pallas' interpreter,
where times mean nothing.

XLA leaves kernels out of CUDA graphs unless it is told their names (github.com/jax-ml/jax/issues/27988); to compare,
run it again with XLA_FLAGS='--legacy_command_buffer_custom_call_targets=__gpu$xla.gpu.triton,triton_kernel_call_ffi'.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import FLOPS_PER_UPDATE, report, seconds
from update import SPEC, updater

from dac.core.architectures import MLP
from dac.kernels import mlp
from dac.kernels.mlp import TILES, How, Network, Tile

OPERANDS = {"bf16": "bfloat16", "float32": "float32"}
INPUT, OUTPUT = SPEC.obs_size + SPEC.action_size, 1
"""Sizes of a critic, of which an update has most passes."""


WRONG = 5
"""So many times XLA's own error is no matter of rounding."""


def draw(members: int, hidden: int, batch: int) -> tuple[Network, jax.Array, jax.Array]:
    """Networks, a batch for each, and the gradients of their outputs."""
    keys = jax.random.split(jax.random.key(0), 8)

    def scaled(key: jax.Array, *shape: int) -> jax.Array:
        return jax.random.normal(key, (members, *shape)) / np.sqrt(shape[0])

    sizes = [(INPUT, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, OUTPUT), (OUTPUT,)]
    network = Network(*(scaled(key, *size) for key, size in zip(keys, sizes, strict=False)))
    x, gradient = (
        jax.random.normal(key, (members, batch, size)) for key, size in zip(keys[6:], (INPUT, OUTPUT), strict=True)
    )
    return network, x, gradient


def passes(how: How | None, precision: str) -> dict[str, Callable[..., Any]]:
    """By name, a pass of all members: by kernels, or as XLA compiles the plain network where `how` is None."""

    def run(network: Network, x: jax.Array) -> jax.Array:
        if how is not None:
            return mlp.apply(x, network, how)
        plain = MLP(jax.random.key(0), INPUT, network.b1.shape + network.b2.shape, OUTPUT, precision=precision)
        weights, biases = (network.w1, network.w2, network.w3), (network.b1, network.b2, network.b3)
        leaves = jax.tree.leaves((weights, biases))
        return jax.vmap(jax.tree.unflatten(jax.tree.structure(plain), leaves))(x)

    def pull(which: int) -> Callable[..., Any]:
        def gradient_of(network: Network, x: jax.Array, gradient: jax.Array) -> Any:
            fixed = [network, x]

            def output(value: Any) -> jax.Array:
                return run(*fixed[:which], value, *fixed[which + 1 :])

            return jax.vjp(output, fixed[which])[1](gradient)[0]

        return gradient_of

    forward = lambda network, x, gradient: run(network, x)  # noqa: E731
    return {name: jax.vmap(f) for name, f in {"forward": forward, "weights": pull(0), "input": pull(1)}.items()}


def exact(network: Network, x: jax.Array, gradient: jax.Array) -> dict[str, list[np.ndarray]]:
    """The same in double precision, by NumPy."""
    w1, b1, w2, b2, w3, b3, x, g = (np.asarray(leaf, np.float64) for leaf in (*network, x, gradient))
    across = lambda array: np.swapaxes(array, 1, 2)  # noqa: E731
    z1 = x @ w1 + b1[:, None]
    z2 = np.maximum(z1, 0) @ w2 + b2[:, None]
    d2 = (g @ across(w3)) * (z2 > 0)
    d1 = (d2 @ across(w2)) * (z1 > 0)
    h1, h2 = np.maximum(z1, 0), np.maximum(z2, 0)
    weights = [across(x) @ d1, d1.sum(1), across(h1) @ d2, d2.sum(1), across(h2) @ g, g.sum(1)]
    return {"forward": [h2 @ w3 + b3[:, None]], "weights": weights, "input": [d1 @ across(w1)]}


def parity(precision: str, hidden: int, batch: int, interpret: bool) -> bool:
    """Whether no pass is wrong altogether, also for a batch and a layer that fill no tile; rounding errs far less."""
    good = True
    for size, rows in ((hidden, batch), (hidden - 3, batch - 5)):
        data = draw(3, size, rows)
        right = exact(*data)
        found = {how: passes(how, precision) for how in (How(OPERANDS[precision], interpret), None)}
        for name in right:
            errors = [
                max(
                    float(np.linalg.norm(np.asarray(leaf, np.float64) - other) / np.linalg.norm(other))
                    for leaf, other in zip(jax.tree.leaves(jax.jit(of[name])(*data)), right[name], strict=True)
                )
                for of in found.values()
            ]
            fine = errors[0] <= 2 * errors[1] + 1e-6  # a NaN is not
            good &= errors[0] <= WRONG * errors[1] + 1e-3
            report(f"parity {name} {precision} {size}", kernel=errors[0], xla=errors[1], fine=fine)
    return good


def in_a_row(function: Callable[..., Any], data: tuple[Network, jax.Array, jax.Array], times: int) -> Callable[[], Any]:
    """Many calls in one dispatch, each waiting for the one before, so that what is timed is the device."""

    @jax.jit
    def run(network: Network, x: jax.Array, gradient: jax.Array) -> jax.Array:
        def once(_: jax.Array, x: jax.Array) -> jax.Array:
            # a number too small to change anything, but XLA cannot know that
            return x + 1e-30 * sum(jnp.sum(leaf[:, :1]) for leaf in jax.tree.leaves(function(network, x, gradient)))

        return jax.lax.fori_loop(0, times, once, x)

    return lambda: run(*data)


def time_passes(
    members: int, precision: str, tiles: list[tuple[str, Tile]], options: argparse.Namespace
) -> dict[str, Tile]:
    """Milliseconds of every pass, as XLA compiles it and for every way to cut its kernel; returns the fastest way."""
    data = draw(members, options.hidden, options.batch)
    multiplied = INPUT * options.hidden + options.hidden**2 + options.hidden * OUTPUT
    flop = {"forward": 2, "weights": 6, "input": 6}  # per weight and example, a forward pass among those of a gradient
    width = jnp.dtype(OPERANDS[precision]).itemsize
    kept = options.batch * options.hidden
    moved = {
        "forward": multiplied * width,
        "weights": multiplied * (2 * width + 4) + 2 * kept * width,
        "input": 2 * multiplied * width + 2 * kept * width,
    }
    ways: list[tuple[str, Tile | None]] = [(name, None) for name in flop]
    for name, tile in [*TILES.items(), *tiles]:
        if (name, tile) not in ways:
            ways.append((name, tile))
    before = dict(TILES)
    fastest: dict[str, tuple[float, Tile]] = {}
    for name, tile in ways:
        if tile is not None:
            TILES[name] = tile
        how = None if tile is None else How(OPERANDS[precision], options.interpret)
        try:
            run = in_a_row(passes(how, precision)[name], data, options.updates)
            taken = seconds(run, options.rounds) / options.updates
        except jax.errors.JaxRuntimeError as error:  # such as more shared memory than there is; the others go on
            report(f"pass {name} {precision} x{members} {_shown(tile)}", failed=str(error)[:200])
            continue
        finally:
            TILES.update(before)
        if tile is not None:
            fastest[name] = min(fastest.get(name, (taken, tile)), (taken, tile), key=lambda found: found[0])
        report(
            f"pass {name} {precision} x{members} {_shown(tile)}",
            ms=taken * 1e3,
            teraflops=flop[name] * multiplied * options.batch * members / taken / 1e12,
            least_bytes_per_second=moved[name] * members / taken,
        )
    return {name: tile for name, (_, tile) in fastest.items()}


def time_updates(algorithm: str, members: int, precision: str, options: argparse.Namespace) -> None:
    """The whole update with and without kernels, in turns."""
    settings = {"precision": precision, "hidden": (options.hidden,) * 2, "batch_size": options.batch}
    ways = {"off": "off", "on": "interpret" if options.interpret else "on"}
    runs = {name: updater(algorithm, members, options.updates, kernels=way, **settings) for name, way in ways.items()}
    compiling = {}
    for name, run in runs.items():
        start = time.perf_counter()
        jax.block_until_ready(run())
        compiling[name] = time.perf_counter() - start
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(options.rounds):
        for name in list(runs)[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            jax.block_until_ready(runs[name]())
            taken[name].append((time.perf_counter() - start) / options.updates)
    for name, values in taken.items():
        median = float(np.median(values))
        report(
            f"update {algorithm} {precision} x{members} kernels {name}",
            agent_updates_per_second=members / median,
            ms=median * 1e3,
            counted_teraflops=FLOPS_PER_UPDATE * members / median / 1e12 if options.hidden == 256 else 0.0,
            gain=float(np.median(np.array(taken["off"]) / np.array(values))),
            first_call_s=compiling[name],
            tiles={kernel: _shown(tile) for kernel, tile in TILES.items()},
        )


def _shown(tile: Tile | None) -> str:
    return "xla" if tile is None else f"{tile.rows},{tile.hidden},{tile.warps},{tile.stages}"


def tile_option(text: str) -> tuple[str, Tile]:
    name, _, numbers = text.partition("=")
    values = [int(number) for number in numbers.split(",")]
    if name not in TILES or len(values) != 4 or any(value < 1 or value & (value - 1) for value in values):
        raise argparse.ArgumentTypeError(f"must be {'|'.join(TILES)}=rows,hidden,warps,stages in powers of two: {text}")
    return name, Tile(*values)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="1,64")
    parser.add_argument("--algorithm", default="dac")
    parser.add_argument("--precision", default="bf16,float32")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=20, help="updates, or passes, in one dispatch")
    parser.add_argument("--tiles", type=tile_option, action="append", default=[], metavar="KERNEL=R,H,W,S")
    parser.add_argument("--interpret", action="store_true", help="run the kernels in Pallas' interpreter")
    options = parser.parse_args(arguments)
    if not options.interpret and jax.default_backend() != "gpu":
        parser.error("there is no GPU here; with --interpret the kernels run in Pallas' interpreter")
    precisions = options.precision.split(",")
    right = [parity(precision, options.hidden, options.batch, options.interpret) for precision in precisions]
    if not all(right):
        sys.exit("a kernel is wrong on this device; nothing is timed")
    for members in (int(number) for number in options.members.split(",")):
        for precision in precisions:
            before = dict(TILES)
            TILES.update(time_passes(members, precision, options.tiles, options))
            for algorithm in options.algorithm.split(","):
                time_updates(algorithm, members, precision, options)
            TILES.update(before)


if __name__ == "__main__":
    main()
