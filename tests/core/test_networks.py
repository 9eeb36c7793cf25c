"""Squashed Gaussian densities at the borders, network shapes and initial values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from dac.core.architectures import MLP, Architecture
from dac.core.networks import ActionValue, Gaussian, MixingWeight, SquashedGaussianPolicy, twin_values
from dac.core.types import EnvSpec


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-3.0, 0.5)])
def test_density_integrates_to_one_and_is_the_change_of_variables(x64, mean, log_std):
    gaussian = Gaussian(jnp.array([mean]), jnp.array([log_std]))

    def density(a):
        return float(jnp.exp(gaussian.log_prob(jnp.array([a]))))

    inner = integrate.quad(density, -0.999, 0.999, limit=400)[0]
    tails = 1 - (
        stats.norm.cdf(np.arctanh(0.999), mean, np.exp(log_std))
        - stats.norm.cdf(-np.arctanh(0.999), mean, np.exp(log_std))
    )
    assert inner + tails == pytest.approx(1, abs=1e-6)
    for a in (-0.9, 0.0, 0.5, 0.998):
        expected = stats.norm.pdf(np.arctanh(a), mean, np.exp(log_std)) / (1 - a**2)
        assert density(a) == pytest.approx(expected, rel=1e-9)


def test_sampled_density_is_the_stored_density(x64):
    gaussian = Gaussian(jnp.array([0.3, -0.8]), jnp.array([-0.5, 0.1]))
    noise = jnp.array([0.4, -1.1])
    action, log_pi = gaussian.squash(noise)
    assert float(log_pi) == pytest.approx(float(gaussian.log_prob(action)), abs=1e-9)


@pytest.mark.parametrize("u", [-60.0, -20.0, -9.0, 0.0, 9.0, 20.0, 60.0])
def test_log_density_of_a_sample_is_right_where_tanh_saturates(u):
    """float32, against log(1 - tanh^2 u) = 2 log 2 - 2|u| - 2 log(1 + e^(-2|u|)) in float64."""
    gaussian = Gaussian(jnp.array([u]), jnp.array([0.0]))
    _, log_pi = gaussian.squash(jnp.array([0.0]))
    squash = 2 * np.log(2) - 2 * abs(u) - 2 * np.log1p(np.exp(-2 * abs(u)))
    assert float(log_pi) == pytest.approx(-0.5 * np.log(2 * np.pi) - squash, rel=1e-5)


@pytest.mark.parametrize("action", [-1.0, 1.0, 0.9999, -0.5])
def test_log_prob_and_its_gradient_are_finite_and_right_at_the_borders(action):
    """Stored actions can be exactly +-1; then the density is taken 1e-3 inside, and so is its gradient."""

    def log_prob(mean, log_std):
        return Gaussian(mean[None], log_std[None]).log_prob(jnp.array([action]))

    mean, log_std = 0.4, -0.7
    value, (d_mean, d_log_std) = jax.value_and_grad(log_prob, argnums=(0, 1))(jnp.float32(mean), jnp.float32(log_std))
    u = np.arctanh(np.clip(action, -0.999, 0.999))
    z = (u - mean) / np.exp(log_std)
    expected = stats.norm.logpdf(u, mean, np.exp(log_std)) - np.log(1 - np.tanh(u) ** 2)
    assert float(value) == pytest.approx(expected, rel=1e-4)
    assert float(d_mean) == pytest.approx(z / np.exp(log_std), rel=1e-3)
    assert float(d_log_std) == pytest.approx(z**2 - 1, rel=1e-3)


def test_mlp_is_xavier_uniform_with_zero_biases():
    mlp = MLP(jax.random.key(1), 17, (256, 256), 6)
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        bound = np.sqrt(6 / sum(weight.shape))
        assert np.abs(weight).max() <= bound
        assert np.abs(weight).max() > 0.95 * bound
        assert weight.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)
        assert not bias.any()
    x = np.linspace(-1, 1, 17)
    hidden = x
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        hidden = np.maximum(hidden @ np.asarray(weight) + np.asarray(bias), 0)
    np.testing.assert_allclose(
        mlp(jnp.asarray(x, jnp.float32)), hidden @ np.asarray(mlp.weights[-1]), rtol=1e-4, atol=1e-5
    )


def test_twins_are_two_different_networks_and_each_is_itself():
    twins = ActionValue.twins(jax.random.key(0), EnvSpec(3, 2), Architecture((8,)))
    obs, action = jnp.ones((5, 3)), jnp.zeros((5, 2))
    values = twin_values(twins, obs, action)
    assert values.shape == (2, 5)
    assert (values[0] != values[1]).all()
    second = jax.tree.map(lambda leaf: leaf[1], twins)
    np.testing.assert_allclose(values[1], jax.vmap(second)(obs, action), rtol=1e-6)


def test_mixing_weight_stays_in_the_papers_range():
    net = MixingWeight(jax.random.key(0), EnvSpec(2, 1), Architecture((16,)))
    alpha = jax.vmap(net)(1e3 * jax.random.normal(jax.random.key(1), (200, 2)))
    assert float(alpha.min()) >= 0.5
    assert float(alpha.max()) <= 0.99 + 1e-6
    assert float(alpha.max()) > 0.9 > 0.6 > float(alpha.min())


def test_policy_acts_deterministically_or_not():
    policy = SquashedGaussianPolicy(jax.random.key(0), EnvSpec(3, 2), Architecture((8,)))
    obs = jnp.array([0.1, -0.2, 0.3])
    modes = [policy.act(obs, jax.random.key(k), explore=False) for k in range(2)]
    samples = [policy.act(obs, jax.random.key(k), explore=True) for k in range(2)]
    np.testing.assert_array_equal(modes[0], modes[1])
    np.testing.assert_array_equal(modes[0], jnp.tanh(policy(obs).mean))
    assert (samples[0] != samples[1]).all()
    assert (jnp.abs(jnp.stack(samples)) < 1).all()
