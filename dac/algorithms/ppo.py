"""Proximal Policy Optimisation (Schulman et al., 2017), as OpenAI Baselines' `ppo2` runs it on MuJoCo.

The order within `update`: the rollout is judged by the networks and the observation statistics that collected it, the
networks take epochs x minibatches steps with these statistics, and only then the rollout's observations are counted in.
So the policy in the ratio is the one that acted, and the ratio starts at 1.
"""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from dac.algorithms.base import AbstractNetworkSettings, AbstractOnPolicy, choice, count, number, static
from dac.algorithms.parts.advantage import generalised_advantages
from dac.core.architectures import ACTIVATIONS, AbstractNetwork, Architecture
from dac.core.learner import Learner, gradient_with_values
from dac.core.networks import OBS_BOUND, NormalisedGaussianPolicy, log_density
from dac.core.normalise import Moments
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, UsageError, float_dtype

REWARD_BOUND = 10.0
"""Scaled rewards are clipped here."""
ADAM = optax.scale_by_adam(eps=1e-5)
METRICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "learning_rate",
    "sigma",
)


class Networks(eqx.Module):
    """All that is learned, of whitened observations: one model, because one norm bounds the gradient of the whole."""

    mean: AbstractNetwork
    log_sigma: Float[Array, " action"]
    value: AbstractNetwork

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        mean_key, value_key = jax.random.split(key)
        self.mean = architecture(mean_key, spec.obs_size, spec.action_size, last_scale=0.01)
        self.log_sigma = jnp.zeros(spec.action_size, float_dtype())
        self.value = architecture(value_key, spec.obs_size, 1, last_scale=1.0)

    def log_pi(self, obs: Float[Array, " obs"], action: Float[Array, " action"]) -> Scalar:
        """log pi(a|s) of an action before it is clipped."""
        return log_density(self.mean(obs), self.log_sigma, action)


class Samples(eqx.Module):
    """What the losses read: whitened observations, and what was known of them before the first step."""

    obs: Float[Array, "*axes obs"]
    action: Float[Array, "*axes action"]
    log_pi: Float[Array, "*axes"]
    value: Float[Array, "*axes"]
    advantage: Float[Array, "*axes"]

    @property
    def target(self) -> Float[Array, "*axes"]:
        """The lambda-return, which the value is to become."""
        return self.advantage + self.value


class State(eqx.Module):
    learner: Learner[Networks]
    observations: Moments
    returns: Moments
    """Of the running discounted return; its standard deviation scales the rewards."""
    running: Float[Array, " rollout"]
    """The running return of each environment where the last rollout ended; the entries beyond them stay 0."""
    seen: Int[Array, ""]
    """Transitions learned from."""
    measured: Metrics


class PPO(AbstractNetworkSettings[State], AbstractOnPolicy[State]):
    """Clipped policy ratio; on-policy."""

    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    lam: float = number(0.95, 0, 1)
    """Weight of longer returns in the advantage: GAE's lambda."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size at the start; falls to 0 along a line."""
    total_steps: float = number(1e6, 1, follows="steps")
    """Environment steps after which the learning rate is 0; inf keeps it constant (default: the run's)."""
    clip: float = number(0.2, 0)
    """How far the ratio to the old policy may move from 1 before its gradient stops."""
    value_clip: float = number(0.2, 0)
    """How far a value may move from its old one before its gradient stops; inf turns it off."""
    value_coefficient: float = number(0.5, 0)
    """Weight of the value loss."""
    entropy_coefficient: float = number(0.0, 0)
    """Weight of the policy's entropy."""
    max_norm: float = number(0.5, 0)
    """Bound of the gradient's norm, over policy and value together; inf turns it off."""
    rollout: int = count(2048, 2)
    """Environment steps between updates, over all parallel environments of a member."""
    minibatches: int = count(32)
    """Parts that a rollout is cut into, one gradient step each."""
    epochs: int = count(10)
    """Passes over a rollout."""
    hidden: tuple[int, ...] = static((64, 64))
    """Hidden layer sizes, for both networks."""
    activation: str = choice("tanh", ACTIVATIONS, since="0.2")
    """Activation function of hidden layers."""

    def __check_init__(self) -> None:
        # a minibatch of one has no advantage left once its mean is taken away
        if self.rollout % self.minibatches or self.rollout == self.minibatches:
            raise UsageError(
                f"rollout {self.rollout} does not divide into {self.minibatches} minibatches of 2 transitions or more"
            )

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        return State(
            learner=Learner.create(Networks(key, spec, self.architecture), ADAM),
            observations=Moments.create(spec.obs_size),
            returns=Moments.create(1),
            running=jnp.zeros(self.rollout, float_dtype()),
            seen=jnp.zeros((), jnp.int32),
            measured={name: jnp.zeros((), float_dtype()) for name in METRICS},
        )

    def policy(self, state: State) -> NormalisedGaussianPolicy:
        networks = state.learner.model
        return NormalisedGaussianPolicy(networks.mean, networks.log_sigma, state.observations)

    def metrics(self, state: State) -> Metrics:
        """Means over all minibatches of the last update; zeros before the first."""
        return state.measured

    def update(self, state: State, rollout: Transition, key: PRNGKey) -> State:
        """Epochs of minibatch steps on one rollout, then its observations count."""
        returns, running, reward = self._scale_rewards(state, rollout)
        samples = self._judge(state, dataclasses.replace(rollout, reward=reward))
        flat = jax.tree.map(lambda x: x.reshape(self.rollout, *x.shape[2:]), samples)
        # the rate before this rollout was seen, as in Baselines: the first update has all of it
        learning_rate = self.learning_rate * jnp.maximum(0, 1 - state.seen / self.total_steps)

        def minibatch(learner: Learner[Networks], rows: Int[Array, " batch"]):
            batch = jax.tree.map(lambda x: x[rows], flat)
            (_, measured), gradient = gradient_with_values(functools.partial(self.loss, batch=batch))(learner.model)
            return learner.descend(clip_norm(gradient, self.max_norm), learning_rate), measured

        def epoch(learner: Learner[Networks], key: PRNGKey):
            order = jax.random.permutation(key, self.rollout)
            return jax.lax.scan(minibatch, learner, order.reshape(self.minibatches, -1))

        learner, measured = jax.lax.scan(epoch, state.learner, jax.random.split(key, self.epochs))
        target_variance = jnp.var(samples.target)
        unexplained = jnp.var(samples.advantage) / jnp.where(target_variance > 0, target_variance, 1)
        measured = jax.tree.map(jnp.mean, measured) | {
            "explained_variance": jnp.where(target_variance > 0, 1 - unexplained, 0),
            "learning_rate": learning_rate,
            "sigma": jnp.mean(jnp.exp(learner.model.log_sigma)),
        }
        return State(
            learner=learner,
            observations=state.observations.add(rollout.obs.reshape(self.rollout, -1)),
            returns=returns,
            running=running,
            seen=state.seen + self.rollout,
            measured={name: jnp.asarray(measured[name], float_dtype()) for name in METRICS},
        )

    def loss(self, networks: Networks, batch: Samples) -> tuple[Scalar, Metrics]:
        """Clipped policy loss + value loss - entropy. Eq. 9, Schulman et al. 2017."""
        log_pi = jax.vmap(networks.log_pi)(batch.obs, batch.action)
        value = jax.vmap(networks.value)(batch.obs)[:, 0]
        log_ratio = log_pi - batch.log_pi
        ratio = jnp.exp(log_ratio)
        advantage = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
        loss_pi = jnp.mean(policy_loss(ratio, advantage, self.clip))
        loss_v = jnp.mean(value_loss(value, batch.value, batch.target, self.value_clip))
        entropy = jnp.sum(networks.log_sigma + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
        metrics = {
            "policy_loss": loss_pi,
            "value_loss": loss_v,
            "entropy": entropy,
            # KL(old || new): its expectation, never negative (http://joschu.net/blog/kl-approx.html)
            "approx_kl": jnp.mean(ratio - 1 - log_ratio),
            "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > self.clip),
        }
        return loss_pi + self.value_coefficient * loss_v - self.entropy_coefficient * entropy, metrics

    def _judge(self, state: State, rollout: Transition) -> Samples:
        """Densities, values and advantages under the policy that acted, with the statistics it saw through."""
        networks = state.learner.model
        obs = state.observations.whiten(rollout.obs, OBS_BOUND)
        next_obs = state.observations.whiten(rollout.next_obs, OBS_BOUND)
        value, next_value = (jax.vmap(jax.vmap(networks.value))(o)[..., 0] for o in (obs, next_obs))
        return Samples(
            obs=obs,
            action=rollout.action,
            log_pi=jax.vmap(jax.vmap(networks.log_pi))(obs, rollout.action),
            value=value,
            advantage=generalised_advantages(rollout, value, next_value, self.gamma, self.lam),
        )

    def _scale_rewards(
        self, state: State, rollout: Transition
    ) -> tuple[Moments, Float[Array, " rollout"], Float[Array, "time env"]]:
        """Rewards over the standard deviation of the running return.

        Baselines divides each reward by the deviation up to its step; here a whole rollout, itself counted in, has one.
        """
        envs = rollout.reward.shape[1]
        following, totals = running_returns(state.running[:envs], rollout, self.gamma)
        returns = state.returns.add(totals.reshape(-1, 1))
        reward = rollout.reward / jnp.sqrt(returns.variance[0] + 1e-8)
        return returns, state.running.at[:envs].set(following), jnp.clip(reward, -REWARD_BOUND, REWARD_BOUND)


def policy_loss(
    ratio: Float[Array, " batch"], advantage: Float[Array, " batch"], clip: float | Array
) -> Float[Array, " batch"]:
    """-min(ratio A, clip(ratio, 1 - clip, 1 + clip) A). Eq. 7, Schulman et al. 2017."""
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def value_loss(
    value: Float[Array, " batch"], old: Float[Array, " batch"], target: Float[Array, " batch"], clip: float | Array
) -> Float[Array, " batch"]:
    """Half the squared error of the value or of the value held within `clip` of the old one, whichever is larger.

    Not in the paper; it is in Baselines.
    """
    held = old + jnp.clip(value - old, -clip, clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (held - target) ** 2)


def clip_norm(gradient: Networks, bound: float | Array) -> Networks:
    """The gradient, shortened to `bound` where it is longer."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1, bound / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
    return jax.tree.map(lambda g: g * scale, gradient)


def running_returns(
    start: Float[Array, " env"], rollout: Transition, gamma: float | Array
) -> tuple[Float[Array, " env"], Float[Array, "time env"]]:
    """gamma R + r at every step, anew with every episode; and what the next rollout starts from."""
    going_on = (1 - rollout.terminated) * (1 - rollout.truncated)

    def forwards(before: Float[Array, " env"], now: tuple[Float[Array, " env"], Float[Array, " env"]]):
        reward, going_on = now
        total = gamma * before + reward
        return total * going_on, total

    return jax.lax.scan(forwards, start, (rollout.reward, going_on))
