"""Network architectures. One description builds every network of an algorithm.

To add an architecture, write one file with a class that has MLP's constructor, and one line in `NETWORKS`: every
algorithm then has it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from dac.core.architectures.base import AbstractNetwork as AbstractNetwork
from dac.core.architectures.base import Activation
from dac.core.architectures.base import layer_norm as layer_norm
from dac.core.architectures.mlp import MLP as MLP
from dac.core.architectures.residual import ResidualMLP as ResidualMLP
from dac.core.types import PRNGKey

ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}
"""Every activation function by its name in `--activation`."""
NORMS = ("none", "layer")
"""What `--norm` accepts."""
NETWORKS: dict[str, type[AbstractNetwork]] = {
    "mlp": MLP,
    "residual": ResidualMLP,
}
"""Every architecture by its name in `--network`."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """How the networks of an algorithm are built, whatever they are for."""

    hidden: tuple[int, ...]
    """Sizes of the hidden layers."""
    network: str = "mlp"
    """A name of `NETWORKS`."""
    activation: str = "relu"
    """A name of `ACTIVATIONS`."""
    norm: str = "none"
    """A name of `NORMS`."""
    precision: str = "float32"
    """A name of `dac.core.precision.PRECISIONS`."""
    kernels: str = "off"
    """Whether networks take the fused passes of `dac/kernels/` where there are some for them: off, on, or interpret."""

    @property
    def unfused(self) -> str | None:
        """Why there are no kernels for these networks, or None where there are."""
        return NETWORKS[self.network].unfused(self.hidden, self.activation, self.norm)

    def __call__(
        self, key: PRNGKey, in_size: int, out_size: int, *, last_scale: float | None = None
    ) -> AbstractNetwork:
        """A network of these sizes; with `last_scale`, its weights start as orthogonal matrices."""
        # the constructor of an architecture without kernels knows nothing of them
        more: dict[str, Any] = {} if self.kernels == "off" or self.unfused else {"kernels": self.kernels}
        return NETWORKS[self.network](
            key,
            in_size,
            self.hidden,
            out_size,
            activation=ACTIVATIONS[self.activation],
            norm=self.norm,
            last_scale=last_scale,
            precision=self.precision,
            **more,
        )
