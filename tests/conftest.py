"""Compiled programs are kept between runs, and compiled quickly: tests run each of them for a moment only."""

import os
import signal
from importlib import metadata
from pathlib import Path

FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if metadata.version("jaxlib").startswith("0.10."):  # elsewhere XLA may not know them, which ends the process
    FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"  # before JAX starts; for subprocesses too
os.environ.setdefault("MPLBACKEND", "Agg")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C, which tests send

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax-cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def fresh_programs():
    """Forget compiled programs after each file: thousands of them in one process exhaust its memory mappings."""
    yield
    jax.clear_caches()
