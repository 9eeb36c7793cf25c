"""A conditional variational auto-encoder: samples of q'(a|s) for any state, learned from transitions elsewhere.

The study of Section 6.3, Han & Sung 2021, needs actions of the latest N' transitions at states of the whole ring. The
paper says no more than that a variational auto-encoder draws them; this is the one of BCQ (Fujimoto et al., ICML 2019).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.core.architectures import AbstractNetwork, Architecture
from dac.core.learner import Learner, gradient_with_values
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition

LOG_STD_MIN, LOG_STD_MAX = -4.0, 15.0  # BCQ's


class ConditionalVAE(eqx.Module):
    """q'(a|s): a latent z ~ N(0, I) of twice the action's size, decoded to a = tanh(g(s, z))."""

    encoder: AbstractNetwork
    decoder: AbstractNetwork
    latent_size: int = eqx.field(static=True)

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        encoder_key, decoder_key = jax.random.split(key)
        self.latent_size = 2 * spec.action_size
        self.encoder = architecture(encoder_key, spec.obs_size + spec.action_size, 2 * self.latent_size)
        self.decoder = architecture(decoder_key, spec.obs_size + self.latent_size, spec.action_size)

    def encode(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"]
    ) -> tuple[Float[Array, " latent"], Float[Array, " latent"]]:
        """Mean and log standard deviation of the latent."""
        mean, log_std = jnp.split(self.encoder(jnp.concatenate([obs, action])), 2)
        return mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX)

    def decode(self, obs: Float[Array, " obs"], latent: Float[Array, " latent"]) -> Float[Array, " action"]:
        return jnp.tanh(self.decoder(jnp.concatenate([obs, latent])))

    def terms(
        self, obs: Float[Array, " obs"], action: Float[Array, " action"], noise: Float[Array, " latent"]
    ) -> tuple[Float[Array, " action"], Float[Array, " latent"]]:
        """Error of the reconstruction per action entry, and KL of the latent from N(0, 1) per latent entry."""
        mean, log_std = self.encode(obs, action)
        error = self.decode(obs, mean + jnp.exp(log_std) * noise) - action
        return error, 0.5 * (mean**2 + jnp.exp(2 * log_std) - 1 - 2 * log_std)


def learn_and_draw(
    learner: Learner[ConditionalVAE],
    recent: Transition,
    obs: Float[Array, "batch obs"],
    key: PRNGKey,
    learning_rate: Float[Array, ""] | float,
    kl_weight: Float[Array, ""] | float,
    noise: Float[Array, ""] | float,
) -> tuple[Learner[ConditionalVAE], Float[Array, "batch action"], Metrics]:
    """One step on the recent transitions, and an action of the auto-encoder before it for every state in `obs`.

    The loss is MSE + kl_weight * KL, both means over all entries as in BCQ's code. BCQ decodes a latent and stops
    there; the model it fits has Gaussian noise around that, which we add, as wide as the present reconstruction error
    (times `noise`): without it a q' narrower than sqrt(kl_weight) / 2 is drawn as a single point.
    """
    latent_key, noise_key, train_key = jax.random.split(key, 3)
    vae = learner.model

    def loss(vae: ConditionalVAE):
        drawn = jax.random.normal(train_key, (recent.obs.shape[0], vae.latent_size), obs.dtype)
        error, kl = jax.vmap(vae.terms)(recent.obs, recent.action, drawn)
        square = jnp.mean(error**2, axis=0)
        return jnp.mean(square) + kl_weight * jnp.mean(kl), (square, jnp.mean(kl))

    (value, (square, kl)), gradient = gradient_with_values(loss)(vae)
    latent = jax.random.normal(latent_key, (obs.shape[0], vae.latent_size), obs.dtype)
    action = jax.vmap(vae.decode)(obs, latent)
    action = action + noise * jnp.sqrt(square)[None] * jax.random.normal(noise_key, action.shape, action.dtype)
    metrics = {"vae_loss": value, "vae_reconstruction": jnp.mean(square), "vae_kl": kl}
    return learner.descend(gradient, learning_rate), jnp.clip(action, -1, 1), metrics
