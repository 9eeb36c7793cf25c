"""MaxEnt(State) (Hazan et al., ICML 2019, as Han & Sung 2021 use it): a bonus for states of low density in the ring."""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.algorithms.base import count, number, static
from dac.algorithms.bonuses.base import AbstractBonus
from dac.algorithms.parts import density
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, UsageError, float_dtype

SAMPLE = 4096
"""States of the window that its entropy is estimated from."""
LARGEST_HISTOGRAM = 3
"""Entries of an observation beyond which hardly two states share a cell."""


class StateEntropyState(eqx.Module):
    projection: Float[Array, "obs axis"]
    """Drawn once."""
    density: density.ShiftedHistograms | density.KernelDensity
    entropy: Scalar
    """-E log d over the window."""


class StateEntropy(AbstractBonus[StateEntropyState]):
    """State-entropy bonus: a bonus for states that are rare among the latest in the ring."""

    bonus_scale: float = number(0.02, 0)
    """The paper's c_int: what -(log d + c_s) is multiplied by."""
    bonus_cell: float = number(1.0, 1e-6)
    """Edge of a cell of the histogram, in units of the observation."""
    bonus_density: Literal["kernel", "histogram"] = static("kernel")
    """Density of whitened, projected states by a kernel, or of raw states by counting in cells."""
    bonus_centre: bool = static(True)
    """c_s is the entropy of the window, which makes the mean bonus 0; otherwise c_s = 0."""
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

    def init(self, key: PRNGKey, spec: EnvSpec, precision: str = "float32") -> StateEntropyState:
        del precision  # it has no networks
        if self.bonus_density == "histogram" and spec.obs_size > LARGEST_HISTOGRAM:
            raise UsageError(
                f"bonus_density histogram is for observations of at most {LARGEST_HISTOGRAM} entries, these have "
                f"{spec.obs_size} (accepted: kernel)"
            )
        nothing = jnp.zeros((0, spec.obs_size), float_dtype())
        return self._fit(density.random_projection(key, spec.obs_size), nothing, jnp.int32(0))

    def refresh(self, state: StateEntropyState, latest: Transition, count: Int[Array, ""]) -> StateEntropyState:
        return self._fit(state.projection, latest.next_obs, count)

    def _fit(
        self, projection: Float[Array, "obs axis"], states: Float[Array, "rows obs"], count: Int[Array, ""]
    ) -> StateEntropyState:
        rows = states.shape[0]
        valid = jnp.arange(rows) < count
        found: density.ShiftedHistograms | density.KernelDensity
        if self.bonus_density == "histogram":
            found = density.histogram(states, valid, jnp.asarray(self.bonus_cell, float_dtype()), self.bonus_window)
        else:
            found = density.KernelDensity.fit(states, valid, projection, self.bonus_window)
        if rows == 0:
            return StateEntropyState(projection, found, jnp.zeros((), float_dtype()))
        # evenly over the window: a sample of it that needs no key
        size = min(SAMPLE, rows)
        even = (jnp.arange(size) * (count.astype(float_dtype()) / size)).astype(jnp.int32)
        return StateEntropyState(projection, found, -jnp.mean(found.log_density(states[even])))

    def update(
        self, state: StateEntropyState, batch: Transition
    ) -> tuple[StateEntropyState, Float[Array, " batch"], Metrics]:
        """c_int * -(log d(s') + c_s)."""
        surprise = -state.density.log_density(batch.next_obs)
        offset = state.entropy if self.bonus_centre else 0.0
        return state, self.bonus_scale * (surprise - offset), {"state_entropy": state.entropy}
