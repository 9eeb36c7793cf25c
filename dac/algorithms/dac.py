"""Diversity Actor-Critic (Han & Sung, ICML 2021): maximise return + beta * H(alpha pi + (1 - alpha) q).

Read `update` beside Algorithm 1 of the paper. `diff` this file with `sac.py`: what remains is the contribution.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac import entropy
from dac.algorithms.base import AbstractOffPolicy, Recent, count, number, static
from dac.learner import Learner, moving_average, value_and_grad
from dac.networks import (
    ActionValue,
    MixingWeight,
    SquashedGaussianPolicy,
    StateValue,
    policy_values,
    sigma_saturation,
    twin_values,
)
from dac.types import AUTO_ENCODER, EnvSpec, Metrics, PRNGKey, Transition, side_key
from dac.vae import ConditionalVAE, learn_and_draw


class DACState(eqx.Module):
    policy: Learner[SquashedGaussianPolicy]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue
    ratio: Learner[ActionValue]
    mixing: Learner[MixingWeight] | None
    vae: Learner[ConditionalVAE] | None


class DAC(AbstractOffPolicy[DACState]):
    """Sample-aware entropy regularisation, with a fixed or a state-dependent alpha."""

    alpha: float = number(0.5, 0, 1)
    """Weight of the policy in the mixture whose entropy is maximised, 0 to 1. 1 is SAC."""
    beta: float = number(1.0, 1e-6)
    """Entropy coefficient; rewards are divided by it."""
    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for every network but as ratio_rate says."""
    ratio_rate: float = number(1.0, 0, 100)
    """Adam's step size for the ratio network, in multiples of the others'."""
    tau: float = number(0.005, 0, 1)
    """Rate of the moving average that makes the target value network."""
    clip: float = number(1.0, 0)
    """Range of the ring's entropy term in the value target, in multiples of the action size; inf turns it off."""
    control: float = number(-2.0)
    """The paper's c for alpha-adaptation, in multiples of the action size."""
    regularisation: float = number(1e-3, 0)
    """L2 coefficient on the parameters of the alpha network."""
    q_kl_weight: float = number(0.5, 0)
    """Weight of the latent's KL in the auto-encoder of --q-window, BCQ's; smaller is sharper, with modes less exact."""
    q_noise: float = number(1.0, 0)
    """Noise on the actions drawn with --q-window, in multiples of the reconstruction error; BCQ's is 0."""
    adapt: bool = static(False)
    """Learn alpha(s) instead of keeping it fixed."""
    alpha_gradient: Literal["paper", "code"] = static("paper")
    """Eq. C.3, or the authors' code, which differentiates -log alpha too."""
    policy_q: Literal["first", "min"] = static("first")
    """Q-value in the policy objective: the first network's (the authors' code), or the smaller one (the paper)."""
    hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes, for every network."""
    batch_size: int = count(256)
    """Transitions per update."""
    q_window: int = count(0, 0, 2**31 - 1)
    """Let q be the actions of so many of the latest transitions, by an auto-encoder; 0 for the whole ring."""

    @property
    def recent(self) -> int:
        return self.q_window

    def init(self, key: PRNGKey, spec: EnvSpec) -> DACState:
        policy_key, critics_key, value_key, ratio_key, mixing_key = jax.random.split(key, 5)
        sizes = spec.obs_size, spec.action_size, self.hidden
        value = StateValue(value_key, spec.obs_size, self.hidden)
        return DACState(
            policy=Learner.create(SquashedGaussianPolicy(policy_key, *sizes)),
            critics=Learner.create(ActionValue.twins(critics_key, *sizes)),
            value=Learner.create(value),
            value_target=value,  # the authors' code starts from one EMA step towards another network; we copy
            ratio=Learner.create(ActionValue(ratio_key, *sizes)),
            mixing=Learner.create(MixingWeight(mixing_key, spec.obs_size, self.hidden)) if self.adapt else None,
            vae=Learner.create(ConditionalVAE(side_key(key, AUTO_ENCODER), *sizes)) if self.q_window else None,
        )

    def policy(self, state: DACState) -> SquashedGaussianPolicy:
        return state.policy.model

    def update(
        self, state: DACState, batch: Transition, key: PRNGKey, recent: Recent | None = None
    ) -> tuple[DACState, Metrics]:
        """Algorithm 1: every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        action_size = batch.action.shape[-1]
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)
        alpha = self._alpha(state, obs)
        vae, action_q, vae_metrics = self._ring_actions(state, batch, key, recent)

        # policy, Eq. 17: the ratio and the critics are frozen, the gradient flows through the action
        def policy_loss(policy: SquashedGaussianPolicy):
            action, log_pi = jax.vmap(lambda o, n: policy(o).squash(n))(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            f = jax.vmap(state.ratio.model)(obs, action)
            objective = entropy.policy_objective(q_value, f, log_pi, alpha)
            return -jnp.mean(objective), (action, log_pi, q_min, f)

        (loss_pi, (action_pi, log_pi, q_pi, f_pi)), grad_pi = value_and_grad(policy_loss)(state.policy.model)

        # ratio, Eq. 18: tell actions of the policy from those in the ring
        def ratio_loss(ratio: ActionValue):
            f_pi = jax.vmap(ratio)(obs, action_pi)
            f_q = jax.vmap(ratio)(obs, action_q)
            return -jnp.mean(entropy.ratio_objective(f_pi, f_q, alpha)), f_q

        (loss_ratio, f_q), grad_ratio = value_and_grad(ratio_loss)(state.ratio.model)

        # value, Eq. C.1: Q plus the entropy of the mixture
        log_pi_q = jax.vmap(lambda o, a: state.policy.model(o).log_prob(a))(obs, action_q)
        at_pi = entropy.minus_log_mix(f_pi, log_pi, alpha)
        raw_at_q = entropy.minus_log_mix(f_q, log_pi_q, alpha)
        at_q = entropy.clip_q_term(raw_at_q, self.clip * action_size)
        target_v = entropy.value_target(q_pi, at_pi, at_q, alpha)

        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = value_and_grad(value_loss)(state.value.model)

        # critics, Eq. 21: a time-out is not a termination, so it bootstraps
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = batch.reward / self.beta + self.gamma * (1 - batch.terminated) * next_v

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = value_and_grad(critics_loss)(state.critics.model)

        value = state.value.descend(grad_v, self.learning_rate)
        new_state = DACState(
            policy=state.policy.descend(grad_pi, self.learning_rate),
            critics=state.critics.descend(grad_q, self.learning_rate),
            value=value,
            value_target=moving_average(state.value_target, value.model, self.tau),
            ratio=state.ratio.descend(grad_ratio, self.ratio_rate * self.learning_rate),
            mixing=self._adapt(state, obs, at_pi, raw_at_q, action_size),
            vae=vae,
        )
        weight = entropy.ratio_weight(alpha)
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
            "mixture_entropy": jnp.mean(entropy.mixture_entropy(at_pi, at_q, alpha)),
            "js_divergence": jnp.mean(entropy.js_divergence(f_pi, f_q, weight)),
            "ratio_saturation": entropy.saturation(f_pi, f_q),
        }
        return new_state, metrics | vae_metrics

    def _ring_actions(
        self, state: DACState, batch: Transition, key: PRNGKey, recent: Recent | None
    ) -> tuple[Learner[ConditionalVAE] | None, Float[Array, "batch action"], Metrics]:
        """Actions of q at the batch's states: its own, or with a window those of the latest transitions. Section 6.3.

        While the window holds all there is, they are the batch's own too.
        """
        if state.vae is None:
            return None, batch.action, {}
        assert recent is not None
        vae, drawn, metrics = learn_and_draw(
            state.vae,
            recent.batch,
            batch.obs,
            side_key(key, AUTO_ENCODER),
            self.learning_rate,
            self.q_kl_weight,
            self.q_noise,
        )
        return vae, jnp.where(recent.whole, batch.action, drawn), metrics

    def _alpha(self, state: DACState, obs: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
        if state.mixing is None:
            return jnp.broadcast_to(jnp.asarray(self.alpha, obs.dtype), obs.shape[:1])
        return jax.vmap(state.mixing.model)(obs)

    def _adapt(
        self,
        state: DACState,
        obs: Float[Array, "batch obs"],
        at_pi: Float[Array, " batch"],
        at_q: Float[Array, " batch"],
        action_size: int,
    ) -> Learner[MixingWeight] | None:
        """Minimise H(m) - alpha c over the alpha network. Eq. C.2."""
        if state.mixing is None:
            return None

        def mixing_loss(mixing: MixingWeight):
            loss = entropy.alpha_loss(
                at_pi,
                at_q,
                jax.vmap(mixing)(obs),
                self.control * action_size,
                self.clip * action_size,
                differentiate_log=self.alpha_gradient == "code",
            )
            # biases included, as in the authors' code
            norm = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(mixing))
            return jnp.mean(loss) + self.regularisation * 0.5 * norm

        return state.mixing.descend(jax.grad(mixing_loss)(state.mixing.model), self.learning_rate)
