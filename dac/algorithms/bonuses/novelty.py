"""Novelty: a bonus for states of low density in the replay buffer, where the density is a learned ratio (ours).

DAC learns the ratio of policy and replay buffer instead of the buffer's density. The same trick works for states: a
network that tells states of the buffer from states drawn uniformly in their box has

    g(s) = log d(s) - log u(s),        d the density of the replay buffer, u the uniform one,

at its optimum, and u is a constant. So -g(s') is the surprise -log d(s') without a density model. Its mean over the
buffer, -KL(d || u), is at most 0: where the agent has been it loses, so states without data look better, not worse.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.base import number, static
from dac.algorithms.bonuses.base import AbstractBonus
from dac.core.architectures import MLP
from dac.core.learner import Learner, gradient_with_values
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition, float_dtype

REFERENCES = 256
"""Points of the uniform density per update."""
STEP = 0.618033988749895
"""Every update moves the reference points on by this share of the box, around its edges: they are soon everywhere."""
BOUND = 10.0
"""|g| is held below this where it is paid: a state in e^10 cannot be told from one in more."""


class NoveltyState(eqx.Module):
    """What is known of where the agent has been."""

    ratio: Learner[MLP]
    """g, of a state's place in the box."""
    reference: Float[Array, "points obs"]
    """Uniform in [0, 1): shares of the box."""
    low: Float[Array, " obs"]
    """Smallest observation learnt from so far, entry by entry."""
    high: Float[Array, " obs"]
    """Largest observation learnt from so far."""


class Novelty(AbstractBonus[NoveltyState]):
    """Novelty of states: minus their log-density in the ring, learned as a ratio to the uniform one in their box."""

    bonus_scale: float = number(0.02, 0)
    """What -log d(s)/u(s) is multiplied by."""
    bonus_learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size for the ratio network."""
    bonus_hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes of the ratio network."""

    def init(self, key: PRNGKey, spec: EnvSpec, precision: str = "float32") -> NoveltyState:
        ratio_key, reference_key = jax.random.split(key)
        largest = jnp.finfo(float_dtype()).max  # not infinity: a member whose state is not finite is frozen
        return NoveltyState(
            ratio=Learner.create(MLP(ratio_key, spec.obs_size, self.bonus_hidden, 1, precision=precision)),
            reference=jax.random.uniform(reference_key, (REFERENCES, spec.obs_size), float_dtype()),
            low=jnp.full(spec.obs_size, largest, float_dtype()),
            high=jnp.full(spec.obs_size, -largest, float_dtype()),
        )

    def update(self, state: NoveltyState, batch: Transition) -> tuple[NoveltyState, Float[Array, " batch"], Metrics]:
        """The bonus -c g(s'), and one step of g towards log d/u."""
        low = jnp.minimum(state.low, jnp.min(batch.next_obs, axis=0))
        high = jnp.maximum(state.high, jnp.max(batch.next_obs, axis=0))
        width = jnp.where(high > low, high - low, 1)  # an entry that never varies is no news
        seen = 2 * (batch.next_obs - low[None]) / width[None] - 1
        reference = (state.reference + STEP) % 1
        anywhere = jnp.where((high > low)[None], 2 * reference - 1, -1)

        def ratio_loss(ratio: MLP):
            at_seen = jax.vmap(ratio)(seen)[:, 0]
            at_reference = jax.vmap(ratio)(anywhere)[:, 0]
            loss = jnp.mean(jax.nn.softplus(-at_seen)) + jnp.mean(jax.nn.softplus(at_reference))
            return loss, at_seen

        (loss, at_seen), gradient = gradient_with_values(ratio_loss)(state.ratio.model)
        new_state = NoveltyState(
            ratio=state.ratio.descend(gradient, self.bonus_learning_rate), reference=reference, low=low, high=high
        )
        bonus = -self.bonus_scale * jnp.clip(at_seen, -BOUND, BOUND)
        return new_state, bonus, {"bonus_loss": loss, "state_divergence": jnp.mean(at_seen)}
