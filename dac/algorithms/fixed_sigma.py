"""An actor-critic whose policy explores with a Gaussian of fixed width: what the state bonuses stand on.

This is SAC's architecture without entropy anywhere, so that exploration comes from the bonus alone (Appendix D.1,
Han & Sung 2021). `diff` this file with `sac.py`.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.actor_critic import AbstractActorCritic
from dac.algorithms.base import number
from dac.core.architectures import AbstractNetwork
from dac.core.learner import Learner, gradient_with_values, moving_average
from dac.core.networks import (
    AbstractPolicy,
    ActionValue,
    StateValue,
    action_saturation,
    mean_network,
    policy_values,
    twin_values,
)
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition


class FixedSigmaPolicy(AbstractPolicy):
    """pi(a|s): tanh(mu(s)) + sigma * noise, cut to [-1, 1].

    The noise is added after the tanh. Inside it, as in SAC, a policy that no entropy keeps from saturating would have
    little of it left: in 6 of 8 short runs in the maze, more than 90% of the actions came to stand beyond +-0.99.
    """

    mlp: AbstractNetwork
    sigma: Scalar | float

    def perturb(self, obs: Float[Array, " obs"], noise: Float[Array, " action"]) -> Float[Array, " action"]:
        """The action for a standard normal draw."""
        return jnp.clip(jnp.tanh(self.mlp(obs)) + self.sigma * noise, -1, 1)

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """A sample of the policy, or tanh(mu)."""
        mean = jnp.tanh(self.mlp(obs))
        if not explore:
            return mean
        return self.perturb(obs, jax.random.normal(key, mean.shape, mean.dtype))


class State(eqx.Module):
    policy: Learner[AbstractNetwork]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue


class FixedSigma(AbstractActorCritic[State]):
    """A Gaussian policy of fixed width and no entropy: the actor-critic of the paper's state-based baselines."""

    sigma: float = number(0.3, 0)
    """Standard deviation of the exploration noise, in units of the action."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        return State(**self.actor_critic(mean_network, spec, *jax.random.split(key, 3)))

    def policy(self, state: State) -> FixedSigmaPolicy:
        return FixedSigmaPolicy(state.policy.model, self.sigma)

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

        # policy: the gradient flows through the action
        def policy_loss(mlp: AbstractNetwork):
            action = jax.vmap(FixedSigmaPolicy(mlp, self.sigma).perturb)(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            return -jnp.mean(q_value), q_min

        (loss_pi, target_v), grad_pi = gradient_with_values(policy_loss)(state.policy.model)

        # value: Q alone
        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = gradient_with_values(value_loss)(state.value.model)

        # critics: a time-out is not a termination, so it bootstraps; the reward is not scaled, there is no beta
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = batch.reward + self.gamma * (1 - batch.terminated) * next_v

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q[None]) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = gradient_with_values(critics_loss)(state.critics.model)

        value = state.value.descend(grad_v, self.learning_rate)
        new_state = dataclasses.replace(
            state,
            policy=state.policy.descend(grad_pi, self.learning_rate),
            critics=state.critics.descend(grad_q, self.learning_rate),
            value=value,
            value_target=moving_average(state.value_target, value.model, self.tau),
        )
        mean = jnp.tanh(jax.vmap(state.policy.model)(obs))
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "value_loss": loss_v,
            "q_mean": jnp.mean(twins),
            "v_mean": jnp.mean(v),
            "action_saturation": action_saturation(mean),
        }
        return new_state, metrics
