"""The auto-encoder: its loss against the formulas, both modes of a density, widths from narrow to uniform."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dac.algorithms.parts.vae import ConditionalVAE, learn_and_draw
from dac.core.architectures import Architecture
from dac.core.keys import AUTO_ENCODER, BONUS, RECENT, side_key
from dac.core.learner import Learner
from dac.core.types import EnvSpec, Transition

KL_WEIGHT, NOISE = 0.5, 1.0  # DAC's defaults


def transitions(obs, action):
    zeros = jnp.zeros(obs.shape[0], obs.dtype)
    return Transition(obs, action, zeros, zeros, zeros, obs)


def two_modes(key, obs, size):
    """Modes at +-0.6 in every entry; the upper one has mass 0.7 where s > 0 and 0.3 where s < 0."""
    mode_key, noise_key = jax.random.split(key)
    upper = jax.random.uniform(mode_key, obs.shape[:1]) < 0.5 + 0.2 * jnp.sign(obs[:, 0])
    action = jnp.where(upper, 0.6, -0.6)[:, None] + 0.1 * jax.random.normal(noise_key, (obs.shape[0], size))
    return jnp.clip(action, -1, 1)


def gaussian(key, obs, size, std):
    return jnp.clip(0.4 * obs + std * jax.random.normal(key, (obs.shape[0], size)), -1, 1)


def uniform(key, obs, size):
    return jax.random.uniform(key, (obs.shape[0], size), obs.dtype, -1.0, 1.0)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def train_and_draw(key, density, size, steps, at, kl_weight=KL_WEIGHT, noise=NOISE):
    """Train with fresh states in [-1, 1], then draw for the states `at`; what is drawn, and the density's own."""
    init_key, train_key, draw_key, own_key = jax.random.split(key, 4)
    learner = Learner.create(ConditionalVAE(init_key, EnvSpec(1, size), Architecture((32, 32))))

    def one(learner, key):
        obs_key, action_key, vae_key = jax.random.split(key, 3)
        obs = jax.random.uniform(obs_key, (256, 1), minval=-1.0, maxval=1.0)
        recent = transitions(obs, density(action_key, obs, size))
        return learn_and_draw(learner, recent, obs, vae_key, 1e-3, kl_weight, noise)[0], None

    learner = jax.lax.scan(one, learner, jax.random.split(train_key, steps))[0]
    own = density(own_key, at, size)
    return learn_and_draw(learner, transitions(at, own), at, draw_key, 0.0, kl_weight, noise)[1], own


def constant_states(value, count=20_000):
    return jnp.full((count, 1), value)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_both_modes_have_their_mass(size):
    """Each within 10% of itself, that is the smaller one within 0.03. Some samples fall between the two."""
    at = jnp.concatenate([constant_states(-0.5), constant_states(0.5)])
    drawn = train_and_draw(jax.random.key(0), two_modes, size, 3000, at)[0].mean(axis=1)
    below, above = drawn[:20_000], drawn[20_000:]
    assert float((below > 0).mean()) == pytest.approx(0.3, abs=0.03)
    assert float((above < 0).mean()) == pytest.approx(0.3, abs=0.03)
    assert (
        float((jnp.abs(drawn) > 0.3).mean()) > 0.7
    )  # the density itself has 1.0 there, a Gaussian of its moments 0.62


@pytest.mark.parametrize(
    "density", [functools.partial(gaussian, std=0.1), functools.partial(gaussian, std=0.3), uniform]
)
def test_width_and_place_follow_the_state(density):
    """Wasserstein distance to the density itself; two draws of the density are 0.005 apart, so are other places 0.4."""
    key = jax.random.key(0)
    drawn, own = train_and_draw(key, density, 1, 2000, constant_states(-0.5))
    assert float(drawn.std() / own.std()) == pytest.approx(1, abs=0.1)
    assert float(jnp.abs(jnp.sort(drawn[:, 0]) - jnp.sort(own[:, 0])).mean()) < 0.07


def test_without_the_noise_a_narrow_density_becomes_a_point():
    """Why we do not stop where BCQ does: below a standard deviation of sqrt(0.5) / 2 = 0.35 the latent goes unused."""
    narrow = functools.partial(gaussian, std=0.3)
    drawn, own = train_and_draw(jax.random.key(0), narrow, 1, 2000, constant_states(-0.5), noise=0.0)
    assert float(drawn.std() / own.std()) < 0.2


def test_loss_and_step_against_loops(x64):
    """MSE over batch and action entries, KL over batch and latent entries, one step of optax.adam."""
    vae = ConditionalVAE(jax.random.key(0), EnvSpec(3, 2), Architecture((8, 8)))
    obs, action = (jax.random.uniform(jax.random.key(k), (5, n), minval=-1.0) for k, n in ((1, 3), (2, 2)))
    train_key = jax.random.split(jax.random.key(3), 3)[2]
    noise = jax.random.normal(train_key, (5, 4))

    def reference(vae):
        error, divergence = [], []
        for i in range(5):
            out = vae.encoder(jnp.concatenate([obs[i], action[i]]))
            mean, std = out[:4], jnp.exp(out[4:])
            decoded = jnp.tanh(vae.decoder(jnp.concatenate([obs[i], mean + std * noise[i]])))
            error += [(decoded[j] - action[i, j]) ** 2 for j in range(2)]
            divergence += [-0.5 * (1 + jnp.log(std[k] ** 2) - mean[k] ** 2 - std[k] ** 2) for k in range(4)]
        return sum(error) / 10 + 0.7 * sum(divergence) / 20

    learner, drawn, metrics = learn_and_draw(
        Learner.create(vae), transitions(obs, action), obs, jax.random.key(3), 1e-2, 0.7, NOISE
    )
    loss, gradient = jax.jit(jax.value_and_grad(reference))(vae)
    assert float(metrics["vae_loss"]) == pytest.approx(float(loss), rel=1e-9)
    total = metrics["vae_reconstruction"] + 0.7 * metrics["vae_kl"]
    assert float(total) == pytest.approx(float(loss), rel=1e-9)
    adam = optax.adam(1e-2)
    expected = optax.apply_updates(vae, adam.update(gradient, adam.init(vae), vae)[0])
    for one, other in zip(jax.tree.leaves(learner.model), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    assert (jnp.abs(drawn) <= 1).all()


def test_the_side_key_is_none_of_the_splits():
    """`fold_in(key, i)` with a small i would be one of them."""
    key = jax.random.key(4)
    splits = {tuple(k) for k in np.asarray(jax.random.key_data(jax.random.split(key, 64))).tolist()}
    assert tuple(np.asarray(jax.random.key_data(jax.random.fold_in(key, 1))).tolist()) in splits
    sides = {tuple(np.asarray(jax.random.key_data(side_key(key, p))).tolist()) for p in (AUTO_ENCODER, BONUS, RECENT)}
    assert len(sides) == 3
    assert not sides & splits
