"""Whether this run takes the fused passes of `dac/kernels/`, and what it says of them at its start."""

from __future__ import annotations

import dataclasses

import jax

from dac.config import RunConfig
from dac.core.architectures import Architecture

MADE_FOR = "9.0"
"""Compute capability of the GPUs whose registers and shared memory the kernels are cut for: H100 and H200."""


def settle_kernels(config: RunConfig) -> tuple[RunConfig, str | None]:
    """The run with kernels on or off, and a line on it where they were asked for."""
    if config.hyper["kernels"] != "on":
        return config, None  # auto stands for off, and stays in the configuration as it was given
    hyper = config.hyper
    reason = (
        _unfit_device() or Architecture(hyper["hidden"], hyper["network"], hyper["activation"], hyper["norm"]).unfused
    )
    if reason is None:
        operands = "bfloat16" if hyper["precision"] == "bf16" else "float32"
        return config, f"kernels: on, fused passes of the networks with {operands} operands"
    return dataclasses.replace(config, hyper={**hyper, "kernels": "off"}), f"kernels: off; {reason}"


def _unfit_device() -> str | None:
    """Why no kernel runs on this device, or None where they do."""
    device = jax.local_devices()[0]
    capability = getattr(device, "compute_capability", None)
    if device.platform != "gpu":
        return f"they are for GPUs of compute capability {MADE_FOR}, not for a {device.platform}"
    if str(capability) != MADE_FOR:
        return f"they are for GPUs of compute capability {MADE_FOR}, and {device.device_kind} has {capability}"
    return None
