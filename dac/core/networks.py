"""What the networks are for: policies and values, each for one example.

Callers map the batch, `population.py` maps the members. How a network looks inside is `architectures.py`'s. The field
that holds it is called `mlp` whatever it is, because saved policies and checkpoints know it by that name.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.core.architectures import AbstractNetwork, Architecture
from dac.core.normalise import Moments
from dac.core.types import EnvSpec, PRNGKey, Scalar

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


class StateValue(eqx.Module):
    """V(s)."""

    mlp: AbstractNetwork
    """Maps an observation to one number."""

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        self.mlp = architecture(key, spec.obs_size, 1)

    def __call__(self, obs: Float[Array, " obs"]) -> Scalar:
        return self.mlp(obs)[0]


class ActionValue(eqx.Module):
    """A number for a state and an action: Q(s, a), or the log-ratio f(s, a) = log pi/q."""

    mlp: AbstractNetwork
    """Maps an observation and an action to one number."""

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        self.mlp = architecture(key, spec.obs_size + spec.action_size, 1)

    def __call__(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Scalar:
        return self.mlp(jnp.concatenate([obs, action]))[0]

    @classmethod
    def twins(cls, key: PRNGKey, spec: EnvSpec, architecture: Architecture) -> ActionValue:
        """Two independent networks, stacked along a leading axis; evaluate them with `twin_values`."""
        return jax.vmap(lambda k: cls(k, spec, architecture))(jax.random.split(key))


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


def mean_network(key: PRNGKey, spec: EnvSpec, architecture: Architecture) -> AbstractNetwork:
    """A network from an observation to an action before it is squashed."""
    return architecture(key, spec.obs_size, spec.action_size)


class MixingWeight(eqx.Module):
    """State-dependent alpha(s) in [0.5, 0.99]. Appendix C.1, Han & Sung 2021."""

    mlp: AbstractNetwork
    """Maps an observation to one number, which a sigmoid squashes."""

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        self.mlp = architecture(key, spec.obs_size, 1)

    def __call__(self, obs: Float[Array, " obs"]) -> Scalar:
        return 0.5 + 0.49 * jax.nn.sigmoid(self.mlp(obs)[0])


class Gaussian(eqx.Module):
    """A diagonal Gaussian over u, squashed: the action is tanh(u)."""

    mean: Float[Array, " action"]
    """Mean of every action entry."""
    log_std: Float[Array, " action"]
    """Logarithm of the standard deviation of every action entry."""

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

    mlp: AbstractNetwork
    """Maps an observation to means and log standard deviations."""

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        self.mlp = architecture(key, spec.obs_size, 2 * spec.action_size)

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


def log_density(
    mean: Float[Array, " action"], log_std: Float[Array, " action"], action: Float[Array, " action"]
) -> Scalar:
    """log N(action; mean, sigma^2), before the environment clips the action."""
    noise = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - log_std)


class WhitenedPolicy(AbstractPolicy):
    """Any policy, of normalised observations."""

    policy: AbstractPolicy
    """What acts."""
    moments: Moments
    """Of the observations seen in training: part of what a run saves."""

    def __call__(self, obs: Float[Array, " obs"], *noise: Float[Array, " action"]) -> Any:
        """What the policy itself says of the normalised observation."""
        policy: Any = self.policy
        return policy(self.moments.whiten(obs, OBS_BOUND), *noise)

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        return self.policy.act(self.moments.whiten(obs, OBS_BOUND), key, explore=explore)


class NormalisedGaussianPolicy(AbstractPolicy):
    """pi(a|s) = N(mean(s), sigma^2) without bounds, of normalised observations; sigma is the same in every state."""

    mlp: AbstractNetwork
    """Maps a whitened observation to means."""
    log_std: Float[Array, " action"]
    """One per action entry, the same in every state."""
    moments: Moments
    """Of the observations seen in training: part of what a run saves."""

    def mean(self, obs: Float[Array, " obs"]) -> Float[Array, " action"]:
        """The action without exploration, before it is clipped."""
        return self.mlp(self.moments.whiten(obs, OBS_BOUND))

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """A sample of the policy, or its mean."""
        mean = self.mean(obs)
        if not explore:
            return mean
        return mean + jnp.exp(self.log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def log_prob(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Scalar:
        """log pi(a|s) of an action before it is clipped."""
        return log_density(self.mean(obs), self.log_std, action)

    def entropy(self) -> Scalar:
        """The same in every state."""
        return jnp.sum(self.log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
