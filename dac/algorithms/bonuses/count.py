"""Visit counts (Strehl & Littman 2008; Bellemare et al., NeurIPS 2016): a bonus that falls with visits.

-log d, which MaxEnt(State) pays, falls by as much from 10 visits to 20 as from 1000 to 2000. 1 / sqrt(n) hardly pays
for what is known, and keeps the difference where little is.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dac.algorithms.base import number
from dac.algorithms.bonuses.window import AbstractWindowBonus
from dac.algorithms.parts import density
from dac.core.types import Metrics, Transition


class VisitCountState(eqx.Module):
    projection: Float[Array, "obs axis"]
    """Drawn once."""
    density: density.ShiftedHistograms | density.KernelDensity


class VisitCount(AbstractWindowBonus[VisitCountState]):
    """Visit counts: a bonus of one over the square root of how often the latest states in the ring were near."""

    bonus_scale: float = number(0.5, 0)
    """The bonus of a state that was entered once or never."""

    def fit(
        self, projection: Float[Array, "obs axis"], states: Float[Array, "rows obs"], valid: Bool[Array, " rows"]
    ) -> VisitCountState:
        return VisitCountState(projection, self.estimate(projection, states, valid))

    def update(
        self, state: VisitCountState, batch: Transition
    ) -> tuple[VisitCountState, Float[Array, " batch"], Metrics]:
        """c / sqrt(n(s')), n the number of states of the window in the cell of s', or as the kernel has it."""
        visits = state.density.hits(batch.next_obs)
        return state, self.bonus_scale / jnp.sqrt(jnp.maximum(visits, 1)), {"visits_mean": jnp.mean(visits)}
