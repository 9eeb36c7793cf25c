"""MaxEnt(State) (Hazan et al., ICML 2019, as Han & Sung 2021 use it): a bonus for states of low density in the ring."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dac.algorithms.base import number, static
from dac.algorithms.bonuses.window import AbstractWindowBonus
from dac.algorithms.parts import density
from dac.core.types import Metrics, Scalar, Transition, float_dtype

SAMPLE = 4096
"""States of the window that its entropy is estimated from."""


class StateEntropyState(eqx.Module):
    projection: Float[Array, "obs axis"]
    """Drawn once."""
    density: density.ShiftedHistograms | density.KernelDensity
    entropy: Scalar
    """-E log d over the window."""


class StateEntropy(AbstractWindowBonus[StateEntropyState]):
    """State-entropy bonus: a bonus for states that are rare among the latest in the ring."""

    bonus_scale: float = number(0.02, 0)
    """The paper's c_int: what -(log d + c_s) is multiplied by."""
    bonus_centre: bool = static(True)
    """c_s is the entropy of the window, which makes the mean bonus 0; otherwise c_s = 0."""

    def fit(
        self, projection: Float[Array, "obs axis"], states: Float[Array, "rows obs"], valid: Bool[Array, " rows"]
    ) -> StateEntropyState:
        found, rows = self.estimate(projection, states, valid), states.shape[0]
        if rows == 0:
            return StateEntropyState(projection, found, jnp.zeros((), float_dtype()))
        # evenly over the window: a sample of it that needs no key
        size, count = min(SAMPLE, rows), jnp.sum(valid)
        even = (jnp.arange(size) * (count.astype(float_dtype()) / size)).astype(jnp.int32)
        return StateEntropyState(projection, found, -jnp.mean(found.log_density(states[even])))

    def update(
        self, state: StateEntropyState, batch: Transition
    ) -> tuple[StateEntropyState, Float[Array, " batch"], Metrics]:
        """c_int * -(log d(s') + c_s)."""
        surprise = -state.density.log_density(batch.next_obs)
        offset = state.entropy if self.bonus_centre else 0.0
        return state, self.bonus_scale * (surprise - offset), {"state_entropy": state.entropy}
