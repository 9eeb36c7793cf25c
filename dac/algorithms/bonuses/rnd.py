"""Random Network Distillation (Burda et al., ICLR 2019): a bonus where a network cannot yet imitate a random one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.base import count, number, static
from dac.algorithms.bonuses.base import AbstractBonus
from dac.core.architectures import MLP
from dac.core.learner import Learner, gradient_with_values
from dac.core.normalise import Moments
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition

BOUND = 5.0
"""Whitened observations are clipped here, as in the original."""


class RandomNetworkDistillationState(eqx.Module):
    predictor: Learner[MLP]
    target: MLP
    """f: random, never trained."""
    moments: Moments
    """Of the observations learnt from so far."""


class RandomNetworkDistillation(AbstractBonus[RandomNetworkDistillationState]):
    """Random network distillation: a bonus for states that a network cannot yet predict the features of."""

    bonus_scale: float = number(5.0, 0)
    """The paper's c_int: what the squared prediction error is multiplied by."""
    bonus_learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size for the predictor."""
    bonus_hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes of predictor and target."""
    bonus_outputs: int = count(20)
    """Features to predict."""

    def init(self, key: PRNGKey, spec: EnvSpec, precision: str = "float32") -> RandomNetworkDistillationState:
        predictor_key, target_key = jax.random.split(key)
        sizes = spec.obs_size, self.bonus_hidden, self.bonus_outputs
        return RandomNetworkDistillationState(
            predictor=Learner.create(MLP(predictor_key, *sizes, precision=precision)),
            target=MLP(target_key, *sizes, precision=precision),
            moments=Moments.create(spec.obs_size),
        )

    def update(
        self, state: RandomNetworkDistillationState, batch: Transition
    ) -> tuple[RandomNetworkDistillationState, Float[Array, " batch"], Metrics]:
        """The bonus c_int |f_hat(s') - f(s')|^2, and one step of f_hat towards f on the same states."""
        moments = state.moments.add(batch.next_obs)
        whitened = moments.whiten(batch.next_obs, BOUND)
        features = jax.vmap(state.target)(whitened)

        def distance(predictor: MLP):
            error = jnp.sum((jax.vmap(predictor)(whitened) - features) ** 2, axis=1)
            return jnp.mean(error), error

        (loss, error), gradient = gradient_with_values(distance)(state.predictor.model)
        new_state = RandomNetworkDistillationState(
            predictor=state.predictor.descend(gradient, self.bonus_learning_rate),
            target=state.target,
            moments=moments,
        )
        return new_state, self.bonus_scale * error, {"bonus_loss": loss}
