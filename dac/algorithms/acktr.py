"""ACKTR (Wu et al., NeurIPS 2017): an actor-critic whose actor and critic both follow the natural gradient of K-FAC.

Read `update` beside Section 3 of the paper: advantages from one rollout, a critic fitted by Gauss-Newton steps, then
one step of the actor, whose length a trust region holds. What differs from the authors' code is said where it does.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from dac.algorithms.base import AbstractNetworkSettings, AbstractOnPolicy, choice, count, number, static
from dac.algorithms.parts.advantage import generalised_advantages
from dac.algorithms.parts.kfac import KFACState, clip_scale, layer_statistics, scale_by_kfac
from dac.core.architectures import ACTIVATIONS, MLP, NETWORKS
from dac.core.networks import OBS_BOUND, NormalisedGaussianPolicy
from dac.core.normalise import Moments
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, UsageError, float_dtype

MEASURED = ("kl", "policy_loss", "value_loss", "explained_variance", "kl_clip_scale")
STEP_SIZE_MIN, STEP_SIZE_MAX = 1e-8, 1.0
ADAPTATION = 1.5


class Optimiser(eqx.Module):
    """What K-FAC with momentum remembers of one network."""

    kfac: KFACState
    velocity: PyTree
    """Sum of the directions so far, each weighted by momentum^age."""


class State(eqx.Module):
    policy: NormalisedGaussianPolicy
    policy_optimiser: Optimiser
    value: MLP
    value_optimiser: Optimiser
    step_size: Scalar
    measured: Metrics


class ACKTR(AbstractNetworkSettings[State], AbstractOnPolicy[State]):
    """Natural-gradient actor-critic: Kronecker-factored curvature, trust region."""

    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    lam: float = number(0.97, 0, 1)
    """Weight of longer returns in the advantage."""
    target_kl: float = number(0.002, 0)
    """KL divergence of one policy update that the step size is adapted to."""
    step_size: float = number(0.03, STEP_SIZE_MIN, STEP_SIZE_MAX)
    """The policy's first step size."""
    policy_damping: float = number(0.01, 1e-8)
    """Added to the policy's Fisher matrix."""
    policy_decay: float = number(0.99, 0, 1)
    """Rate at which the policy's Kronecker factors forget."""
    policy_clip: float = number(0.01, 0)
    """Bound on twice the KL divergence that a policy update is to make."""
    value_learning_rate: float = number(0.01, 0)
    """The value network's step size; the authors' code has 0.001."""
    value_damping: float = number(0.1, 1e-8)
    """Added to the value network's Fisher matrix."""
    value_decay: float = number(0.95, 0, 1)
    """Rate at which the value network's Kronecker factors forget."""
    value_clip: float = number(0.3, 0)
    """Bound on twice the KL divergence, here the mean squared change of the value, that a value update is to make."""
    momentum: float = number(0.9, 0, 1)
    """Of both networks."""
    value_updates: int = count(25)
    """Value updates per rollout, each on all of it."""
    inverse_every: int = count(5)
    """Value updates between two inversions of the value network's factors."""
    hidden: tuple[int, ...] = static((64, 64))
    """Hidden layer sizes, for both networks."""
    activation: str = choice("tanh", ACTIVATIONS, since="0.2")
    """Activation function of the policy's hidden layers."""
    value_activation: str = choice("elu", ACTIVATIONS, since="0.2")
    """Activation function of the value network's hidden layers."""
    rollout: int = count(2500)
    """Environment steps per update, over all parallel environments."""

    def __check_init__(self) -> None:
        if NETWORKS[self.network] is not MLP or self.norm != "none":
            raise UsageError(
                f"acktr needs network mlp with norm none, not {self.network} with {self.norm}: "
                "K-FAC has no statistics for other architectures"
            )

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        policy_key, value_key = jax.random.split(key)
        # orthogonal weights; the authors' columns are random and of norm 1, scaled by 0.1 at the policy's end
        of_value = dataclasses.replace(self.architecture, activation=self.value_activation)
        mlp = self.architecture(policy_key, spec.obs_size, spec.action_size, last_scale=0.1)
        value = of_value(value_key, spec.obs_size, 1, last_scale=1.0)
        assert isinstance(mlp, MLP)
        assert isinstance(value, MLP)
        log_std = jnp.zeros(spec.action_size, float_dtype())
        return State(
            policy=NormalisedGaussianPolicy(mlp, log_std, Moments.create(spec.obs_size)),
            policy_optimiser=Optimiser(self._policy_kfac.init(mlp), jax.tree.map(jnp.zeros_like, (mlp, log_std))),
            value=value,
            value_optimiser=Optimiser(self._value_kfac.init(value), jax.tree.map(jnp.zeros_like, value)),
            step_size=jnp.asarray(self.step_size, float_dtype()),
            measured={name: jnp.zeros((), float_dtype()) for name in MEASURED},
        )

    def policy(self, state: State) -> NormalisedGaussianPolicy:
        return state.policy

    def update(self, state: State, rollout: Transition, key: PRNGKey) -> State:
        """Fit the value, take one natural step of the policy, adapt the step size."""
        policy_key, value_key = jax.random.split(key)
        # the statistics first, so that what is learnt now and what acts next see the same inputs
        moments = state.policy.moments.add(flat(rollout.obs))
        old = NormalisedGaussianPolicy(state.policy.mlp, state.policy.log_std, moments)
        obs, next_obs = (moments.whiten(x, OBS_BOUND) for x in (rollout.obs, rollout.next_obs))

        # advantages, from the value before it is fitted. The authors roll out whole episodes; ours are cut after
        # `rollout` steps and, like time-outs, bootstrap from next_obs
        value, next_value = values(state.value, obs), values(state.value, next_obs)
        advantage = generalised_advantages(rollout, value, next_value, self.gamma, self.lam)
        returns = value + generalised_advantages(rollout, value, next_value, self.gamma, 1.0)
        weight = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)

        new_value, value_optimiser, value_loss = self._fit_value(state, flat(obs), returns.reshape(-1), value_key)
        new, policy_optimiser, policy_loss, scale = self._improve(
            state, old, flat(rollout.obs), flat(obs), flat(rollout.action), weight.reshape(-1), policy_key
        )
        kl = jnp.mean(jax.vmap(lambda o: divergence(old, new, o))(flat(rollout.obs)))
        return State(
            policy=new,
            policy_optimiser=policy_optimiser,
            value=new_value,
            value_optimiser=value_optimiser,
            step_size=self.adapt(state.step_size, kl),
            measured={
                "kl": kl,
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "explained_variance": 1 - jnp.var(returns - value) / jnp.maximum(jnp.var(returns), 1e-8),
                "kl_clip_scale": scale,
            },
        )

    def adapt(self, step_size: Scalar, kl: Scalar) -> Scalar:
        """Shorter steps after more than twice the wanted KL divergence, longer ones after less than half of it."""
        factor = jnp.where(kl > 2 * self.target_kl, 1 / ADAPTATION, jnp.where(kl < self.target_kl / 2, ADAPTATION, 1.0))
        return jnp.clip(step_size * factor, STEP_SIZE_MIN, STEP_SIZE_MAX)

    def metrics(self, state: State) -> Metrics:
        sigma = jnp.mean(jnp.exp(state.policy.log_std))
        return state.measured | {"step_size": state.step_size, "entropy": state.policy.entropy(), "sigma": sigma}

    def _fit_value(
        self, state: State, obs: Float[Array, "batch obs"], returns: Float[Array, " batch"], key: PRNGKey
    ) -> tuple[MLP, Optimiser, Scalar]:
        """Gauss-Newton steps down 1/2 (V - return)^2: the Fisher matrix is that of N(V, 1). Section 3.1."""

        def loss(value: MLP) -> Scalar:
            return 0.5 * jnp.mean((values(value, obs) - returns) ** 2)

        def one(carry: tuple[MLP, Optimiser], now: tuple[Array, PRNGKey]) -> tuple[tuple[MLP, Optimiser], Scalar]:
            (value, optimiser), (i, key) = carry, now
            error, gradient = jax.value_and_grad(loss)(value)
            statistics = layer_statistics(value, obs, jax.random.normal(key, (*returns.shape, 1), returns.dtype))
            refresh = i % self.inverse_every == 0
            natural, kfac = self._value_kfac.update(gradient, optimiser.kfac, statistics=statistics, refresh=refresh)
            scale = clip_scale(gradient, natural, self.value_learning_rate, self.value_clip)
            new, velocity = self._move(value, optimiser.velocity, natural, scale, self.value_learning_rate)
            return (new, Optimiser(kfac, velocity)), error

        steps = jnp.arange(self.value_updates), jax.random.split(key, self.value_updates)
        (value, optimiser), errors = jax.lax.scan(one, (state.value, state.value_optimiser), steps)
        return value, optimiser, errors[0]

    def _improve(
        self,
        state: State,
        old: NormalisedGaussianPolicy,
        obs: Float[Array, "batch obs"],
        inputs: Float[Array, "batch obs"],
        action: Float[Array, "batch action"],
        weight: Float[Array, " batch"],
        key: PRNGKey,
    ) -> tuple[NormalisedGaussianPolicy, Optimiser, Scalar, Scalar]:
        """One natural step up E[A log pi]; `inputs` are the normalised observations. Section 3.1."""

        def loss(parameters: tuple[MLP, Float[Array, " action"]]) -> Scalar:
            mlp, log_std = parameters
            policy = NormalisedGaussianPolicy(mlp, log_std, old.moments)
            return -jnp.mean(weight * jax.vmap(policy.log_prob)(obs, action))

        parameters = old.mlp, old.log_std
        loss_now, gradient = jax.value_and_grad(loss)(parameters)
        # the true Fisher matrix: fresh actions of the policy, mean + sigma * noise, have the score noise / sigma
        noise = jax.random.normal(key, action.shape, action.dtype)
        assert isinstance(old.mlp, MLP)
        statistics = layer_statistics(old.mlp, inputs, noise * jnp.exp(-old.log_std)[None])
        natural, kfac = self._policy_kfac.update(gradient[0], state.policy_optimiser.kfac, statistics=statistics)
        # log sigma is independent of the mean in the Fisher matrix, with exactly 2 for each of its entries
        direction = natural, gradient[1] / (2 + self.policy_damping)
        scale = clip_scale(gradient, direction, state.step_size, self.policy_clip)
        velocity = state.policy_optimiser.velocity
        (mlp, log_std), velocity = self._move(parameters, velocity, direction, scale, state.step_size)
        return NormalisedGaussianPolicy(mlp, log_std, old.moments), Optimiser(kfac, velocity), loss_now, scale

    def _move(
        self, parameters: PyTree, velocity: PyTree, direction: PyTree, scale: Scalar, learning_rate: Scalar | float
    ) -> tuple[PyTree, PyTree]:
        """A step with momentum; directions that agree add up to the learning rate, as in the authors' code."""
        velocity = jax.tree.map(lambda v, d: self.momentum * v + scale * d, velocity, direction)
        length = learning_rate * (1 - self.momentum)
        return jax.tree.map(lambda p, v: p - length * v, parameters, velocity), velocity

    @property
    def _policy_kfac(self) -> optax.GradientTransformationExtraArgs:
        return scale_by_kfac(self.policy_decay, self.policy_damping)

    @property
    def _value_kfac(self) -> optax.GradientTransformationExtraArgs:
        return scale_by_kfac(self.value_decay, self.value_damping)


def values(value: MLP, inputs: Float[Array, "*axes obs"]) -> Float[Array, "*axes"]:
    """V of normalised observations. The authors' network also sees the time and the policy's output; ours does not."""
    return jax.vmap(value)(flat(inputs)).reshape(inputs.shape[:-1])


def divergence(old: NormalisedGaussianPolicy, new: NormalisedGaussianPolicy, obs: Float[Array, " obs"]) -> Scalar:
    """KL(old || new) of two Gaussians in one state."""
    shift = (old.mean(obs) - new.mean(obs)) * jnp.exp(-new.log_std)
    narrowing = new.log_std - old.log_std
    return jnp.sum(narrowing + 0.5 * (jnp.exp(-2 * narrowing) + shift**2 - 1))


def flat(array: Float[Array, "*axes entry"]) -> Float[Array, "batch entry"]:
    return array.reshape(-1, array.shape[-1])
