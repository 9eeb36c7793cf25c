"""Soft Actor-Critic with a value network (Haarnoja et al., ICML 2018): maximise return + beta * H(pi).

This is DAC at alpha = 1, written on its own; a test holds the two together. The ratio network is passive: it is
trained only so that D_JS can be plotted beside DAC's, and nothing reads it.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from dac import entropy
from dac.algorithms.base import AbstractOffPolicy, Recent, count, number, static
from dac.learner import Learner, moving_average, value_and_grad
from dac.networks import ActionValue, SquashedGaussianPolicy, StateValue, policy_values, sigma_saturation, twin_values
from dac.types import EnvSpec, Metrics, PRNGKey, Transition


class SACState(eqx.Module):
    policy: Learner[SquashedGaussianPolicy]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue
    ratio: Learner[ActionValue] | None


class SAC(AbstractOffPolicy[SACState]):
    """Policy entropy regularisation; the paper's first baseline."""

    beta: float = number(1.0, 1e-6)
    """Entropy coefficient; rewards are divided by it."""
    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for every network."""
    tau: float = number(0.005, 0, 1)
    """Rate of the moving average that makes the target value network."""
    passive_ratio: bool = static(False)
    """Train a ratio network beside the rest, so that D_JS can be logged; it changes nothing else."""
    policy_q: Literal["first", "min"] = static("first")
    """Q-value in the policy objective: the first network's, or the smaller one."""
    hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes, for every network."""
    batch_size: int = count(256)
    """Transitions per update."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> SACState:
        # the same split as DAC's, so that the two start from the same networks
        policy_key, critics_key, value_key, ratio_key, _ = jax.random.split(key, 5)
        sizes = spec.obs_size, spec.action_size, self.hidden
        value = StateValue(value_key, spec.obs_size, self.hidden)
        return SACState(
            policy=Learner.create(SquashedGaussianPolicy(policy_key, *sizes)),
            critics=Learner.create(ActionValue.twins(critics_key, *sizes)),
            value=Learner.create(value),
            value_target=value,
            ratio=Learner.create(ActionValue(ratio_key, *sizes)) if self.passive_ratio else None,
        )

    def policy(self, state: SACState) -> SquashedGaussianPolicy:
        return state.policy.model

    def update(
        self, state: SACState, batch: Transition, key: PRNGKey, recent: Recent | None = None
    ) -> tuple[SACState, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

        # policy: the gradient flows through the action
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            return -jnp.mean(q_value - log_pi), (action, log_pi, q_min)

        (loss_pi, (action_pi, log_pi, q_pi)), grad_pi = value_and_grad(policy_loss)(state.policy.model)

        # value: Q plus the entropy of the policy
        target_v = q_pi - log_pi

        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = value_and_grad(value_loss)(state.value.model)

        # critics: a time-out is not a termination, so it bootstraps
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = batch.reward / self.beta + self.gamma * (1 - batch.terminated) * next_v

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = value_and_grad(critics_loss)(state.critics.model)

        ratio, ratio_metrics = self._watch(state, batch, action_pi)
        value = state.value.descend(grad_v, self.learning_rate)
        new_state = SACState(
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

    def _watch(self, state: SACState, batch: Transition, action_pi) -> tuple[Learner[ActionValue] | None, Metrics]:
        """Train the passive ratio network at alpha = 1/2 and measure D_JS with it."""
        if state.ratio is None:
            return None, {}

        def ratio_loss(ratio: ActionValue):
            f_pi = jax.vmap(ratio)(batch.obs, action_pi)
            f_q = jax.vmap(ratio)(batch.obs, batch.action)
            return -jnp.mean(entropy.ratio_objective(f_pi, f_q, 0.5)), (f_pi, f_q)

        (loss, (f_pi, f_q)), gradient = value_and_grad(ratio_loss)(state.ratio.model)
        metrics = {
            "ratio_loss": loss,
            "js_divergence": jnp.mean(entropy.js_divergence(f_pi, f_q, 0.5)),
            "ratio_saturation": entropy.saturation(f_pi, f_q),
        }
        return state.ratio.descend(gradient, self.learning_rate), metrics
