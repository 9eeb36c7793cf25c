"""What a compiler says of the kernels without a GPU: shared memory, registers and what did not fit into them.

pip install triton==3.6.0; python bench/kernel_resources.py [--sizes 23,256,1,256] [--precision bf16]
    [--tiles weights=64,64,8,2]

Lowers every kernel for CUDA, has Triton compile it for compute capability 9.0, and reads the machine code with the
`cuobjdump` that Triton brings. Sizes are inputs, hidden units, outputs and batch. It reaches into JAX 0.10, which hands
the compiler over to the GPU's driver; no such number says how fast a kernel is.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import triton
from common import report
from jax._src.pallas.triton import lowering
from kernels import OPERANDS, tile_option
from triton.backends.compiler import GPUTarget

from dac.kernels import mlp
from dac.kernels.mlp import TILES, How, Network

ORDER = ("forward", "input", "weights")
"""The kernels in the order in which a backward pass is lowered."""


def modules(sizes: tuple[int, ...], precision: str) -> list[str]:
    """Every kernel in Triton's own language."""
    inputs, hidden, outputs, batch = sizes
    found: list[str] = []
    lower = lowering.lower_jaxpr_to_triton_module

    def spy(*arguments: Any, **more: Any) -> Any:
        result = lower(*arguments, **more)
        found.append(result.module.operation.get_asm(enable_debug_info=False))
        return result

    def loss(network: Network, x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sin(mlp.apply(x, network, How(OPERANDS[precision], False))))

    shapes = [(inputs, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, outputs), (outputs,)]
    network = Network(*(jnp.zeros((2, *shape)) for shape in shapes))
    both = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))
    lowering.lower_jaxpr_to_triton_module = spy
    try:
        both.trace(network, jnp.zeros((2, batch, inputs))).lower(lowering_platforms=("cuda",))
    finally:
        lowering.lower_jaxpr_to_triton_module = lower
    return found


def resources(module: str, tile: mlp.Tile) -> dict[str, int]:
    """What the compiled kernel takes."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ttir"
        source.write_text(module, encoding="utf-8")
        options = {"num_warps": tile.warps, "num_stages": tile.stages}
        compiled = triton.compile(str(source), target=GPUTarget("cuda", 90, 32), options=options)
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        told = subprocess.run([tool, "-res-usage", binary], capture_output=True, text=True, check=True)
    usage = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout + told.stderr)
    assert usage is not None, told
    return {
        "shared_bytes": compiled.metadata.shared,
        "registers": int(usage[1]),
        "spilled_bytes": int(usage[2]),
        "wgmma": compiled.asm["ptx"].count("wgmma.mma_async"),
        "mma": compiled.asm["ptx"].count("mma.sync"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="23,256,1,256")
    parser.add_argument("--precision", default="bf16", choices=OPERANDS)
    parser.add_argument("--tiles", type=tile_option, action="append", default=[], metavar="KERNEL=R,H,W,S")
    options = parser.parse_args()
    TILES.update(options.tiles)
    sizes = tuple(int(size) for size in options.sizes.split(","))
    width = jnp.dtype(OPERANDS[options.precision]).itemsize
    rows, (inputs, hidden) = mlp.batch_size(sizes[3]), map(mlp.padded, sizes[:2])
    for name, module in zip(ORDER, modules(sizes, options.precision), strict=True):
        tile = mlp.fitting(name, rows, inputs, hidden, width)
        cut = f"{tile.rows},{tile.hidden},{tile.warps},{tile.stages}"
        figures = resources(module, tile)
        report(f"resources {name} {options.precision} {options.sizes}", tile=cut, triton=triton.__version__, **figures)


if __name__ == "__main__":
    main()
