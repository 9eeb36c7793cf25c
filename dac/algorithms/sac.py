"""Soft Actor-Critic with a value network (Haarnoja et al., ICML 2018): maximise return + beta * H(pi).

This is DAC at alpha = 1, written on its own; a test holds the two together.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from dac.algorithms.actor_critic import AbstractMaximumEntropy
from dac.algorithms.base import number, static
from dac.algorithms.parts.passive_ratio import watch_divergence
from dac.core import entropy
from dac.core.learner import Learner, gradient_with_values, moving_average
from dac.core.networks import (
    ActionValue,
    SquashedGaussianPolicy,
    StateValue,
    policy_values,
    sigma_saturation,
    twin_values,
)
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition


class State(eqx.Module):
    policy: Learner[SquashedGaussianPolicy]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue
    ratio: Learner[ActionValue] | None


class SAC(AbstractMaximumEntropy[State]):
    """Policy entropy regularisation; the paper's first baseline."""

    beta: float = number(1.0, 1e-6)
    """Entropy coefficient: what a nat of entropy is worth in reward."""
    value_entropy: float = number(1.0, since="0.2")
    """Weight of the policy's entropy in the value target: 0 for none, below 0 to seek states where it is low."""
    passive_ratio: bool = static(False)
    """Train a ratio network beside the rest, so that D_JS can be logged; it changes nothing else."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        *keys, ratio_key, _ = jax.random.split(key, 5)  # as DAC does, so that the two start from the same networks
        return State(
            **self.actor_critic(SquashedGaussianPolicy, spec, *keys),
            ratio=self.learner(ActionValue, ratio_key, spec) if self.passive_ratio else None,
        )

    def policy(self, state: State) -> SquashedGaussianPolicy:
        return state.policy.model

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

        # policy: the gradient flows through the action
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            return -jnp.mean(q_value / self.price - log_pi), (action, log_pi, q_min)

        (loss_pi, (action_pi, log_pi, q_pi)), grad_pi = gradient_with_values(policy_loss)(state.policy.model)

        # value: Q plus the entropy of the policy, times its weight
        target_v = q_pi + self.price * entropy.value_reward(-log_pi, self.value_entropy)

        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = gradient_with_values(value_loss)(state.value.model)

        # critics: a time-out is not a termination, so it bootstraps
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = self.in_units(batch.reward) + self.gamma * (1 - batch.terminated) * next_v

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q[None]) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = gradient_with_values(critics_loss)(state.critics.model)

        ratio, ratio_metrics = watch_divergence(state.ratio, batch, action_pi, self.learning_rate)
        value = state.value.descend(grad_v, self.learning_rate)
        new_state = dataclasses.replace(
            state,
            policy=state.policy.descend(grad_pi, self.learning_rate),
            critics=state.critics.descend(grad_q, self.learning_rate),
            value=value,
            value_target=moving_average(state.value_target, value.model, self.tau),
            ratio=ratio,
        )
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "value_loss": loss_v,
            "q_mean": jnp.mean(twins),
            "v_mean": jnp.mean(v),
            "policy_entropy": -jnp.mean(log_pi),
            "sigma_saturation": sigma_saturation(state.policy.model, obs),
        }
        return new_state, metrics | ratio_metrics
