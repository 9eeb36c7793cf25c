"""Compiled programs are kept between runs: a population compiles once per machine, not once per run."""

from __future__ import annotations

import os

import jax


def enable_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX was told another one."""
    if getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009 - set at run time, unknown to mypy
        home = os.environ.get("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache"))
        jax.config.update("jax_compilation_cache_dir", os.path.join(home, "dac", "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
