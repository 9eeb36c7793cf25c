"""What bonuses share that ask how many of the latest states in the replay buffer were near a state."""

from __future__ import annotations

import abc
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from dac.algorithms.base import State, count, number, static
from dac.algorithms.bonuses.base import AbstractBonus
from dac.algorithms.parts import density
from dac.core.types import EnvSpec, PRNGKey, Transition, UsageError, float_dtype

LARGEST_HISTOGRAM = 3
"""Entries of an observation beyond which hardly two states share a cell."""


class AbstractWindowBonus(AbstractBonus[State]):
    """A bonus by the density of the latest states, which is estimated anew every so many steps."""

    bonus_cell: float = number(1.0, 1e-6)
    """Edge of a cell of the histogram, in units of the observation."""
    bonus_density: Literal["kernel", "histogram"] = static("kernel")
    """Density of whitened, projected states by a kernel, or of raw states by counting in cells."""
    bonus_window: int = count(100_000)
    """Latest states that the density is estimated from."""
    bonus_refresh: int = count(1000)
    """Environment steps between two estimates."""

    @property
    def refresh_every(self) -> int:
        return self.bonus_refresh

    @property
    def refresh_window(self) -> int:
        return self.bonus_window

    @abc.abstractmethod
    def fit(
        self, projection: Float[Array, "obs axis"], states: Float[Array, "rows obs"], valid: Bool[Array, " rows"]
    ) -> State:
        """What is known after these states; before the first of them there are none."""

    def init(self, key: PRNGKey, spec: EnvSpec, precision: str = "float32") -> State:
        del precision  # it has no networks
        if self.bonus_density == "histogram" and spec.obs_size > LARGEST_HISTOGRAM:
            raise UsageError(
                f"bonus_density histogram is for observations of at most {LARGEST_HISTOGRAM} entries, these have "
                f"{spec.obs_size} (accepted: kernel)"
            )
        nothing = jnp.zeros((0, spec.obs_size), float_dtype())
        return self.fit(density.random_projection(key, spec.obs_size), nothing, jnp.zeros(0, bool))

    def refresh(self, state: Any, latest: Transition, count: Int[Array, ""]) -> State:
        states = latest.next_obs
        return self.fit(state.projection, states, jnp.arange(states.shape[0]) < count)

    def estimate(
        self, projection: Float[Array, "obs axis"], states: Float[Array, "rows obs"], valid: Bool[Array, " rows"]
    ) -> density.ShiftedHistograms | density.KernelDensity:
        """The density of the valid states."""
        if self.bonus_density == "histogram":
            return density.histogram(states, valid, jnp.asarray(self.bonus_cell, float_dtype()), self.bonus_window)
        return density.KernelDensity.fit(states, valid, projection, self.bonus_window)
