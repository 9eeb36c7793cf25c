"""SAC-Div: SAC pushed away from the ring (Hong et al., NeurIPS 2018): maximise J_SAC(pi) + alpha_d D(pi || q).

The paper's second baseline. The divergence is a term of the policy's objective alone, no part of the return: unlike
DAC, nothing leads the policy to states where it *could* diverge. `diff` this file with `sac.py` to see it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from dac.algorithms.actor_critic import AbstractMaximumEntropy
from dac.algorithms.base import number, static
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
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, float_dtype

GROW, SHRINK = 1.01, 0.99
"""Factors of the distance-based scaling of Hong et al. 2018, one per update."""


class State(eqx.Module):
    policy: Learner[SquashedGaussianPolicy]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue
    ratio: Learner[ActionValue]
    scale: Scalar
    """alpha_d."""


class SACDiv(AbstractMaximumEntropy[State]):
    """SAC with a divergence from the ring's actions added to the policy's objective; the paper's second baseline."""

    beta: float = number(1.0, 1e-6)
    """Entropy coefficient: what a nat of entropy is worth in reward."""
    kl_threshold: float = number(0.2)
    """Divergence below which alpha_d grows and above which it shrinks, with --divergence kl."""
    js_threshold: float = number(0.5)
    """The same with --divergence js, which is at most log 2."""
    scale: float = number(1.0, 0)
    """alpha_d at the start, in units of beta."""
    scale_min: float = number(1e-3, 0)
    """alpha_d never falls below this, so that it can grow again."""
    scale_max: float = number(10.0, 0)
    """alpha_d never rises above this; 0 gives SAC."""
    divergence: Literal["kl", "js"] = static("kl")
    """Kullback-Leibler or Jensen-Shannon divergence of the policy from the ring."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        # the same split as SAC's, so that the two start from the same networks
        *keys, ratio_key, _ = jax.random.split(key, 5)
        return State(
            **self.actor_critic(SquashedGaussianPolicy, spec, *keys),
            ratio=self.learner(ActionValue, ratio_key, spec),
            scale=self._bounded(jnp.asarray(self.scale, float_dtype())),
        )

    def policy(self, state: State) -> SquashedGaussianPolicy:
        return state.policy.model

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

        # policy: SAC's objective plus the divergence, the ratio frozen; the gradient flows through the action
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            f = jax.vmap(state.ratio.model)(obs, action)
            # of D_JS only the half that depends on the action
            away = entropy.kl_divergence(f) if self.divergence == "kl" else 0.5 * entropy.log_pi_over_mix(f, 0.5)
            return -jnp.mean(q_value / self.price - log_pi + state.scale * away), (action, log_pi, q_min, f)

        (loss_pi, (action_pi, log_pi, q_pi, f_pi)), grad_pi = gradient_with_values(policy_loss)(state.policy.model)

        # ratio, Eq. 18 at alpha = 1/2: tell actions of the policy from those in the ring
        def ratio_loss(ratio: ActionValue):
            f_pi = jax.vmap(ratio)(obs, action_pi)
            f_q = jax.vmap(ratio)(obs, batch.action)
            return -jnp.mean(entropy.ratio_objective(f_pi, f_q, 0.5)), f_q

        (loss_ratio, f_q), grad_ratio = gradient_with_values(ratio_loss)(state.ratio.model)

        # value: Q plus the entropy of the policy, without the divergence
        target_v = q_pi - self.price * log_pi

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

        js_divergence = jnp.mean(entropy.js_divergence(f_pi, f_q, 0.5))
        divergence = jnp.mean(entropy.kl_divergence(f_pi)) if self.divergence == "kl" else js_divergence
        value = state.value.descend(grad_v, self.learning_rate)
        new_state = dataclasses.replace(
            state,
            policy=state.policy.descend(grad_pi, self.learning_rate),
            critics=state.critics.descend(grad_q, self.learning_rate),
            value=value,
            value_target=moving_average(state.value_target, value.model, self.tau),
            ratio=state.ratio.descend(grad_ratio, self.learning_rate),
            scale=self._rescale(state.scale, divergence),
        )
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "value_loss": loss_v,
            "ratio_loss": loss_ratio,
            "q_mean": jnp.mean(twins),
            "v_mean": jnp.mean(v),
            "policy_entropy": -jnp.mean(log_pi),
            "sigma_saturation": sigma_saturation(state.policy.model, obs),
            "divergence": divergence,
            "divergence_scale": state.scale,
            "js_divergence": js_divergence,
            "ratio_saturation": entropy.saturation(f_pi, f_q),
        }
        return new_state, metrics

    def _rescale(self, scale: Scalar, divergence: Scalar) -> Scalar:
        """More push while the policy is close to the ring, less where it is far. Distance-based, Hong et al. 2018."""
        threshold = self.kl_threshold if self.divergence == "kl" else self.js_threshold
        return self._bounded(scale * jnp.where(divergence <= threshold, GROW, SHRINK))

    def _bounded(self, scale: Scalar) -> Scalar:
        """Within [scale_min, scale_max]; the original has no bounds. Where they cross, the upper one counts."""
        return jnp.clip(scale, self.scale_min, self.scale_max)
