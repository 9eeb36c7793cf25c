"""What the benchmarks share: a clock that waits for the device, the machine's own matrix product, options, printing.

Every figure is measured beside the peak of the same process: machines differ and drift, ratios do not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dac.training.memory import keep_freed_memory

keep_freed_memory()  # as every run does, before JAX starts its threads

FLOPS_PER_UPDATE = 916e6
"""Multiplications and additions of one DAC update at HalfCheetah's shapes (17 / 6, 2 x 256, batch 256), counted with
every loss doing its own forward and backward pass: 3 passes for each of V, pi, Q1, Q2 and both uses of R, a forward
pass of the target, and a forward and an input-gradient pass of Q1 and Q2 at the policy's action. Sharing passes
lowers the work done, not this figure: it is the yardstick, not a measurement."""


def options_in_turns(doc: str | None, *, members: int, rounds: int, steps: int) -> argparse.ArgumentParser:
    """What a bench that compares two ways of training in turns can be told, and its defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SparseHalfCheetah")
    parser.add_argument("--members", type=int, default=members)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--steps", type=int, default=steps, help="training steps per round")
    return parser


def seconds(function: Callable[[], Any], repeats: int = 7) -> float:
    """Median wall-clock time of a call, after one that compiles."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def matmul_flops(size: int = 2048) -> float:
    """Floating-point operations per second of one float32 matrix product."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(jnp.matmul)
    return 2 * size**3 / seconds(lambda: product(a, a), repeats=15)


def report(name: str, **figures: Any) -> None:
    """One line for people; one JSON line in the file named by DAC_BENCH_OUT, if it is set."""
    shown = "  ".join(f"{k} {v:,.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
    print(f"{name:28} {shown}", flush=True)
    if out := os.environ.get("DAC_BENCH_OUT"):
        device = jax.local_devices()[0]
        machine = {"device": device.device_kind, "cores": os.cpu_count(), "jax": jax.__version__}
        machine |= {"python": platform.python_version(), "precision": str(jax.config.jax_default_matmul_precision)}
        with Path(out).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"benchmark": name, **figures, **machine}) + "\n")
