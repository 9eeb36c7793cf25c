"""Diversity Actor-Critic (Han & Sung, ICML 2021): maximise return + beta * H(alpha pi + (1 - alpha) q).

Read `update` beside Algorithm 1 of the paper. `diff` this file with `sac.py`: what remains is the contribution.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.actor_critic import AbstractMaximumEntropy
from dac.algorithms.base import number, static
from dac.core import entropy
from dac.core.learner import Learner, gradient_with_values, moving_average
from dac.core.networks import (
    ActionValue,
    MixingWeight,
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
    ratio: Learner[ActionValue]
    mixing: Learner[MixingWeight] | None


class DAC(AbstractMaximumEntropy[State]):
    """Sample-aware entropy regularisation, with a fixed or a state-dependent alpha."""

    alpha: float = number(0.5, 0, 1)
    """Weight of the policy in the mixture whose entropy is maximised, 0 to 1. 1 is SAC."""
    beta: float = number(1.0, 1e-6)
    """Entropy coefficient: what a nat of entropy is worth in reward."""
    value_entropy: float = number(1.0, since="0.2")
    """Weight of the mixture's entropy in the value target: 0 for none, below 0 to seek states where it is low."""
    ratio_rate: float = number(1.0, 0, 100)
    """Adam's step size for the ratio network, in multiples of the others'."""
    clip: float = number(1.0, 0)
    """Bound of the replay buffer's entropy in the value target, in multiples of the action size; inf turns it off."""
    control: float = number(-2.0)
    """The paper's c for alpha-adaptation, in multiples of the action size."""
    regularisation: float = number(1e-3, 0)
    """L2 coefficient on the parameters of the alpha network."""
    adapt: bool = static(False)
    """Learn alpha(s) instead of keeping it fixed."""
    alpha_gradient: Literal["paper", "code"] = static("paper")
    """Eq. C.3, or the authors' code, which differentiates -log alpha too."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        *keys, ratio_key, mixing_key = jax.random.split(key, 5)
        return State(
            **self.actor_critic(SquashedGaussianPolicy, spec, *keys),
            ratio=self.learner(ActionValue, ratio_key, spec),
            mixing=self.learner(MixingWeight, mixing_key, spec) if self.adapt else None,
        )

    def policy(self, state: State) -> SquashedGaussianPolicy:
        return state.policy.model

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Algorithm 1, where the actions of q are those stored with the batch's states."""
        return self.learn(state, batch, batch.action, key)

    def learn(
        self, state: State, batch: Transition, action_q: Float[Array, "batch action"], key: PRNGKey
    ) -> tuple[State, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)
        fixed = jnp.full(obs.shape[:1], self.alpha, obs.dtype)
        alpha = fixed if state.mixing is None else jax.vmap(state.mixing.model)(obs)

        # policy, Eq. 17: the ratio and the critics are frozen, the gradient flows through the action
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            f = jax.vmap(state.ratio.model)(obs, action)
            objective = entropy.policy_objective(q_value / self.price, f, log_pi, alpha)
            return -jnp.mean(objective), (action, log_pi, q_min, f)

        (loss_pi, (action_pi, log_pi, q_pi, f_pi)), grad_pi = gradient_with_values(policy_loss)(state.policy.model)

        # ratio, Eq. 18: tell actions of the policy from those in the replay buffer
        def ratio_loss(ratio: ActionValue):
            f_pi = jax.vmap(ratio)(obs, action_pi)
            f_q = jax.vmap(ratio)(obs, action_q)
            return -jnp.mean(entropy.ratio_objective(f_pi, f_q, alpha)), f_q

        (loss_ratio, f_q), grad_ratio = gradient_with_values(ratio_loss)(state.ratio.model)

        # value, Eq. C.1: Q plus the entropy of the mixture, times its weight
        log_pi_q = jax.vmap(lambda o, a: state.policy.model(o).log_prob(a))(obs, action_q)
        at_pi = entropy.minus_log_mix(f_pi, log_pi, alpha)
        raw_at_q = entropy.minus_log_mix(f_q, log_pi_q, alpha)
        at_q = entropy.clip_q_term(raw_at_q, self.clip * batch.action.shape[-1])
        mixture_entropy = entropy.mixture_entropy(at_pi, at_q, alpha)
        target_v = q_pi + self.price * entropy.value_reward(mixture_entropy, self.value_entropy)

        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = gradient_with_values(value_loss)(state.value.model)

        # critics, Eq. 21: a time-out is not a termination, so it bootstraps
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = self.in_units(batch.reward) + self.gamma * (1 - batch.terminated) * next_v

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
            ratio=state.ratio.descend(grad_ratio, self.ratio_rate * self.learning_rate),
            mixing=None if state.mixing is None else self._adapt(state.mixing, batch, at_pi, raw_at_q),
        )
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "value_loss": loss_v,
            "ratio_loss": loss_ratio,
            "q_mean": jnp.mean(twins),
            "v_mean": jnp.mean(v),
            "alpha_mean": jnp.mean(alpha),
            "alpha_std": jnp.std(alpha),
            "policy_entropy": -jnp.mean(log_pi),
            "sigma_saturation": sigma_saturation(state.policy.model, obs),
            "mixture_entropy": jnp.mean(mixture_entropy),
            "js_divergence": jnp.mean(entropy.js_divergence(f_pi, f_q, entropy.ratio_weight(alpha))),
            "ratio_saturation": entropy.saturation(f_pi, f_q),
        }
        return new_state, metrics

    def _adapt(
        self, mixing: Learner[MixingWeight], batch: Transition, at_pi: entropy.Values, at_q: entropy.Values
    ) -> Learner[MixingWeight]:
        """Minimise H(m) - alpha c over the alpha network. Eq. C.2."""
        control, bound = (factor * batch.action.shape[-1] for factor in (self.control, self.clip))
        code = self.alpha_gradient == "code"

        def mixing_loss(mixing: MixingWeight):
            alpha = jax.vmap(mixing)(batch.obs)
            loss = entropy.alpha_loss(at_pi, at_q, alpha, control, bound, differentiate_log=code)
            norm = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(mixing))  # biases too, as in the authors' code
            return jnp.mean(loss) + self.regularisation * 0.5 * norm

        return mixing.descend(jax.grad(mixing_loss)(mixing.model), self.learning_rate)
