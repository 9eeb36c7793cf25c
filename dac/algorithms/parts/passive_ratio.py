"""A ratio network that only watches: it measures how far a policy is from the replay buffer, and nothing reads it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.core import entropy
from dac.core.learner import Learner, gradient_with_values
from dac.core.networks import ActionValue
from dac.core.types import Metrics, Transition


def watch_divergence(
    ratio: Learner[ActionValue] | None,
    batch: Transition,
    action_pi: Float[Array, "batch action"],
    learning_rate: Float[Array, ""] | float,
) -> tuple[Learner[ActionValue] | None, Metrics]:
    """Train the ratio network at alpha = 1/2 and measure D_JS with it, if there is one. Eq. 18, Han & Sung 2021."""
    if ratio is None:
        return None, {}

    def ratio_loss(ratio: ActionValue):
        f_pi = jax.vmap(ratio)(batch.obs, action_pi)
        f_q = jax.vmap(ratio)(batch.obs, batch.action)
        return -jnp.mean(entropy.ratio_objective(f_pi, f_q, 0.5)), (f_pi, f_q)

    (loss, (f_pi, f_q)), gradient = gradient_with_values(ratio_loss)(ratio.model)
    metrics = {
        "ratio_loss": loss,
        "js_divergence": jnp.mean(entropy.js_divergence(f_pi, f_q, 0.5)),
        "ratio_saturation": entropy.saturation(f_pi, f_q),
    }
    return ratio.descend(gradient, learning_rate), metrics
