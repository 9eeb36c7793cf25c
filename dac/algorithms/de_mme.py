"""Disentangled max-min entropy (Han & Sung, NeurIPS 2021): rewards and entropy have values of their own.

In `mme.py` one pair of critics holds both. Here a second policy, the explorer, seeks low entropy and nothing else, with
critics and values of its own. The policy that acts climbs both pairs of critics.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.actor_critic import AbstractMaximumEntropy
from dac.algorithms.base import number
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


class Side(eqx.Module):
    """The critics and values of one kind of reward, and the policy that they are values of or that climbs them."""

    policy: Learner[SquashedGaussianPolicy]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue


class State(eqx.Module):
    task: Side
    """Values of the task's reward; its policy acts."""
    novelty: Side
    """Values of low entropy; its policy is the explorer."""


class DEMME(AbstractMaximumEntropy[State]):
    """Disentangled max-min entropy: values of the reward and of low entropy, and a policy that follows both."""

    beta: float = number(1.0, 1e-6)
    """Entropy coefficient, the paper's alpha_pi: what a nat of entropy is worth in reward."""
    value_entropy: float = number(-2.0)
    """Weight of the explorer's entropy in the values of novelty: minus the paper's alpha_Q."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        keys = jax.random.split(key, 6)
        task, novelty = (self.actor_critic(SquashedGaussianPolicy, spec, *part) for part in (keys[:3], keys[3:]))
        return State(Side(**task), Side(**novelty))

    def policy(self, state: State) -> SquashedGaussianPolicy:
        return state.task.policy.model

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Every loss from the old parameters and one action sample per policy, then all Adam steps."""
        obs = batch.obs
        noise_task, noise_novelty = jax.random.normal(key, (2, *batch.action.shape), batch.action.dtype)

        def sample(policy: SquashedGaussianPolicy, noise: Float[Array, "batch action"]):
            return jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)

        # the policy that acts climbs both values
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = sample(policy, noise_task)
            reward_q, reward_min = policy_values(state.task.critics.model, obs, action, self.policy_q)
            novelty_q, _ = policy_values(state.novelty.critics.model, obs, action, self.policy_q)
            return -jnp.mean(reward_q / self.price + novelty_q - log_pi), (log_pi, reward_min)

        # the explorer climbs those of novelty alone
        def explorer_loss(policy: SquashedGaussianPolicy):
            action, log_pi = sample(policy, noise_novelty)
            novelty_q, novelty_min = policy_values(state.novelty.critics.model, obs, action, self.policy_q)
            return -jnp.mean(novelty_q - log_pi), (log_pi, novelty_min)

        (loss_pi, (log_pi, reward_q)), grad_pi = gradient_with_values(policy_loss)(state.task.policy.model)
        (loss_e, (log_pi_e, novelty_q)), grad_e = gradient_with_values(explorer_loss)(state.novelty.policy.model)

        # values: of rewards without entropy; of novelty with the explorer's entropy and no reward
        task, loss_v, loss_q, q = self._fit(state.task, batch, reward_q, self.in_units(batch.reward))
        paid = entropy.value_reward(-log_pi_e, self.value_entropy)
        novelty, loss_v_n, loss_q_n, q_n = self._fit(state.novelty, batch, novelty_q + paid, 0 * batch.reward)

        new_state = State(
            dataclasses.replace(task, policy=state.task.policy.descend(grad_pi, self.learning_rate)),
            dataclasses.replace(novelty, policy=state.novelty.policy.descend(grad_e, self.learning_rate)),
        )
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "value_loss": loss_v,
            "q_mean": jnp.mean(q),
            "policy_entropy": -jnp.mean(log_pi),
            "sigma_saturation": sigma_saturation(state.task.policy.model, obs),
            "explorer_loss": loss_e,
            "novelty_critic_loss": loss_q_n,
            "novelty_value_loss": loss_v_n,
            "novelty_q_mean": jnp.mean(q_n),
            "explorer_entropy": -jnp.mean(log_pi_e),
        }
        return new_state, metrics

    def _fit(
        self, side: Side, batch: Transition, target_v: Float[Array, " batch"], reward: Float[Array, " batch"]
    ) -> tuple[Side, Float[Array, ""], Float[Array, ""], Float[Array, "twin batch"]]:
        """Fit V to its target and the critics to reward + gamma V; a time-out bootstraps, a termination does not."""

        def value_loss(value: StateValue):
            return 0.5 * jnp.mean((jax.vmap(value)(batch.obs) - target_v) ** 2), None

        target_q = reward + self.gamma * (1 - batch.terminated) * jax.vmap(side.value_target)(batch.next_obs)

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, batch.obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q[None]) ** 2, axis=1)), twins

        (loss_v, _), grad_v = gradient_with_values(value_loss)(side.value.model)
        (loss_q, twins), grad_q = gradient_with_values(critics_loss)(side.critics.model)
        value = side.value.descend(grad_v, self.learning_rate)
        fitted = dataclasses.replace(
            side,
            critics=side.critics.descend(grad_q, self.learning_rate),
            value=value,
            value_target=moving_average(side.value_target, value.model, self.tau),
        )
        return fitted, loss_v, loss_q, twins
