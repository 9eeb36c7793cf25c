"""Networks, each for one example; callers map the batch, `population.py` maps the members."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.normalise import Moments
from dac.types import PRNGKey, Scalar, float_dtype

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
ACTION_BOUND = 1 - 1e-3
"""Stored actions are pulled inside this before atanh: the density of a squashed Gaussian is infinite at +-1."""
SATURATED = 0.99
"""An action entry beyond this is at its bound: what is left of a gradient behind tanh is 2% or less."""
OBS_BOUND = 10.0
"""Normalised observations are clipped here."""


class AbstractPolicy(eqx.Module):
    """What acts, and what a run saves."""

    @abc.abstractmethod
    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """An action for one observation: a sample, or the best guess if not `explore`. Environments clip to [-1, 1]."""


class MLP(eqx.Module):
    """Fully connected layers, zero biases, linear output; Xavier-uniform weights and ReLU unless told otherwise.

    Weights are stored (in, out), so that a mapped batch is one plain matrix product.
    """

    weights: tuple[Float[Array, "in out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKey,
        in_size: int,
        hidden: tuple[int, ...],
        out_size: int,
        *,
        activation: Callable[[Array], Array] = jax.nn.relu,
        last_scale: float | None = None,
    ):
        """With `last_scale`: orthogonal weights, scaled by sqrt(2) in hidden layers and by `last_scale` at the end."""
        sizes = (in_size, *hidden, out_size)
        keys = jax.random.split(key, len(sizes) - 1)
        if last_scale is None:
            initialisers = [jax.nn.initializers.glorot_uniform()] * len(keys)
        else:
            scales = [2**0.5] * len(hidden) + [last_scale]
            initialisers = [jax.nn.initializers.orthogonal(scale) for scale in scales]
        shapes = itertools.pairwise(sizes)
        drawn = zip(initialisers, keys, shapes, strict=True)
        self.weights = tuple(initialise(k, shape, float_dtype()) for initialise, k, shape in drawn)
        self.biases = tuple(jnp.zeros(o, float_dtype()) for o in sizes[1:])
        self.activation = activation

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = self.activation(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


class StateValue(eqx.Module):
    """V(s)."""

    mlp: MLP

    def __init__(self, key: PRNGKey, obs_size: int, hidden: tuple[int, ...]):
        self.mlp = MLP(key, obs_size, hidden, 1)

    def __call__(self, obs: Float[Array, " obs"]) -> Scalar:
        return self.mlp(obs)[0]


class ActionValue(eqx.Module):
    """A number for a state and an action: Q(s, a), or the log-ratio f(s, a) = log pi/q."""

    mlp: MLP

    def __init__(self, key: PRNGKey, obs_size: int, action_size: int, hidden: tuple[int, ...]):
        self.mlp = MLP(key, obs_size + action_size, hidden, 1)

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Scalar:
        return self.mlp(jnp.concatenate([obs, action]))[0]

    @classmethod
    def twins(cls, key: PRNGKey, obs_size: int, action_size: int, hidden: tuple[int, ...]) -> Self:
        """Two independent networks, stacked along a leading axis; evaluate them with `twin_values`."""
        return jax.vmap(lambda k: cls(k, obs_size, action_size, hidden))(jax.random.split(key))


def twin_values(
    twins: ActionValue, obs: Float[Array, "batch obs"], action: Float[Array, "batch action"]
) -> Float[Array, "twin batch"]:
    """Both Q-values of a batch. The twin axis is outside the batch: two matrix products, not one strided one."""
    return jax.vmap(lambda q: jax.vmap(q)(obs, action))(twins)


def policy_values(
    twins: ActionValue, obs: Float[Array, "batch obs"], action: Float[Array, "batch action"], which: str
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """The Q-value a policy climbs, the `first` or the `min`, and the smaller of the two.

    Where only the first is climbed, no gradient is computed through the second.
    """
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], twins) for i in range(2))
    q1 = jax.vmap(first)(obs, action)
    q2 = jax.vmap(second)(obs, action if which == "min" else jax.lax.stop_gradient(action))
    smaller = jnp.minimum(q1, q2)
    return (q1 if which == "first" else smaller), smaller


def action_saturation(action: Float[Array, "*axes"]) -> Scalar:
    """Share of action entries at their bounds."""
    return jnp.mean(jnp.abs(action) > SATURATED)


class MixingWeight(eqx.Module):
    """State-dependent alpha(s) in [0.5, 0.99]. Appendix C.1, Han & Sung 2021."""

    mlp: MLP

    def __init__(self, key: PRNGKey, obs_size: int, hidden: tuple[int, ...]):
        self.mlp = MLP(key, obs_size, hidden, 1)

    def __call__(self, obs: Float[Array, " obs"]) -> Scalar:
        return 0.5 + 0.49 * jax.nn.sigmoid(self.mlp(obs)[0])


class Gaussian(eqx.Module):
    """A diagonal Gaussian over u, squashed: the action is tanh(u)."""

    mean: Float[Array, " action"]
    log_std: Float[Array, " action"]

    def squash(self, noise: Float[Array, " action"]) -> tuple[Float[Array, " action"], Scalar]:
        """The action for a standard normal draw, with its log-density."""
        u = self.mean + jnp.exp(self.log_std) * noise
        return jnp.tanh(u), self._log_density(noise, u)

    def log_prob(self, action: Float[Array, " action"]) -> Scalar:
        """log pi(a|s) of a stored action, finite with the right gradient for actions at +-1 too."""
        u = jnp.arctanh(jnp.clip(action, -ACTION_BOUND, ACTION_BOUND))
        return self._log_density((u - self.mean) * jnp.exp(-self.log_std), u)

    def _log_density(self, noise: Float[Array, " action"], u: Float[Array, " action"]) -> Scalar:
        normal = -0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - self.log_std
        # log(1 - tanh(u)^2) without cancellation for large |u|
        squash = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
        return jnp.sum(normal - squash)


class SquashedGaussianPolicy(AbstractPolicy):
    """pi(a|s): a network for mean and log standard deviation of a tanh-squashed Gaussian."""

    mlp: MLP

    def __init__(self, key: PRNGKey, obs_size: int, action_size: int, hidden: tuple[int, ...]):
        self.mlp = MLP(key, obs_size, hidden, 2 * action_size)

    def __call__(self, obs: Float[Array, " obs"]) -> Gaussian:
        mean, log_std = jnp.split(self.mlp(obs), 2)
        return Gaussian(mean, jnp.clip(log_std, LOG_STD_MIN, LOG_STD_MAX))

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """A sample of the policy, or its mode's image tanh(mean)."""
        gaussian = self(obs)
        if not explore:
            return jnp.tanh(gaussian.mean)
        noise = jax.random.normal(key, gaussian.mean.shape, gaussian.mean.dtype)
        return gaussian.squash(noise)[0]


def sigma_saturation(policy: SquashedGaussianPolicy, obs: Float[Array, "batch obs"]) -> Scalar:
    """Share of log sigmas at their bounds, where no gradient moves them: near 1 the policy is dead."""
    log_std = jax.vmap(lambda o: policy(o).log_std)(obs)
    return jnp.mean((log_std <= LOG_STD_MIN) | (log_std >= LOG_STD_MAX))


class NormalisedGaussianPolicy(AbstractPolicy):
    """pi(a|s) = N(mean(s), sigma^2) without bounds, of normalised observations; sigma is the same in every state."""

    mlp: MLP
    log_std: Float[Array, " action"]
    moments: Moments
    """Of the observations seen in training: part of what a run saves."""

    def mean(self, obs: Float[Array, " obs"]) -> Float[Array, " action"]:
        return self.mlp(self.moments.whiten(obs, OBS_BOUND))

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """A sample of the policy, or its mean."""
        mean = self.mean(obs)
        if not explore:
            return mean
        return mean + jnp.exp(self.log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Scalar:
        """log pi(a|s) of an action before it is clipped."""
        noise = (action - self.mean(obs)) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - self.log_std)

    def entropy(self) -> Scalar:
        """The same in every state."""
        return jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
