"""Compiled programs are kept between runs."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".jax-cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield
