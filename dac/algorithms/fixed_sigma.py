"""An actor-critic whose policy explores with a Gaussian of fixed width: what the state bonuses stand on.

This is SAC's architecture without entropy anywhere, so that exploration comes from the bonus alone (Appendix D.1,
Han & Sung 2021). `diff` this file with `sac.py`.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.base import AbstractOffPolicy, Recent, count, number, static
from dac.learner import Learner, moving_average, value_and_grad
from dac.networks import MLP, AbstractPolicy, ActionValue, StateValue, action_saturation, policy_values, twin_values
from dac.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition


class FixedSigmaPolicy(AbstractPolicy):
    """pi(a|s): tanh(mu(s)) + sigma * noise, cut to [-1, 1].

    The noise is added after the tanh. Inside it, as in SAC, a policy that no entropy keeps from saturating would have
    little of it left: in 6 of 8 short runs in the maze, more than 90% of the actions came to stand beyond +-0.99.
    """

    mlp: MLP
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


class FixedSigmaState(eqx.Module):
    policy: Learner[MLP]
    critics: Learner[ActionValue]
    value: Learner[StateValue]
    value_target: StateValue


class FixedSigma(AbstractOffPolicy[FixedSigmaState]):
    """A Gaussian policy of fixed width and no entropy: the actor-critic of the paper's state-based baselines."""

    sigma: float = number(0.3, 0)
    """Standard deviation of the exploration noise, in units of the action."""
    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for every network."""
    tau: float = number(0.005, 0, 1)
    """Rate of the moving average that makes the target value network."""
    policy_q: Literal["first", "min"] = static("first")
    """Q-value in the policy objective: the first network's, or the smaller one."""
    hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes, for every network."""
    batch_size: int = count(256)
    """Transitions per update."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> FixedSigmaState:
        policy_key, critics_key, value_key = jax.random.split(key, 3)
        value = StateValue(value_key, spec.obs_size, self.hidden)
        return FixedSigmaState(
            policy=Learner.create(MLP(policy_key, spec.obs_size, self.hidden, spec.action_size)),
            critics=Learner.create(ActionValue.twins(critics_key, spec.obs_size, spec.action_size, self.hidden)),
            value=Learner.create(value),
            value_target=value,
        )

    def policy(self, state: FixedSigmaState) -> FixedSigmaPolicy:
        return FixedSigmaPolicy(state.policy.model, self.sigma)

    def update(
        self, state: FixedSigmaState, batch: Transition, key: PRNGKey, recent: Recent | None = None
    ) -> tuple[FixedSigmaState, Metrics]:
        """Every loss from the old parameters and one shared action sample, then all Adam steps."""
        obs = batch.obs
        noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

        # policy: the gradient flows through the action
        def policy_loss(mlp: MLP):
            action = jax.vmap(FixedSigmaPolicy(mlp, self.sigma).perturb)(obs, noise)
            q_value, q_min = policy_values(state.critics.model, obs, action, self.policy_q)
            return -jnp.mean(q_value), q_min

        (loss_pi, target_v), grad_pi = value_and_grad(policy_loss)(state.policy.model)

        # value: Q alone
        def value_loss(value: StateValue):
            v = jax.vmap(value)(obs)
            return 0.5 * jnp.mean((v - target_v) ** 2), v

        (loss_v, v), grad_v = value_and_grad(value_loss)(state.value.model)

        # critics: a time-out is not a termination, so it bootstraps; the reward is not scaled, there is no beta
        next_v = jax.vmap(state.value_target)(batch.next_obs)
        target_q = batch.reward + self.gamma * (1 - batch.terminated) * next_v

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            return 0.5 * jnp.sum(jnp.mean((twins - target_q) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = value_and_grad(critics_loss)(state.critics.model)

        value = state.value.descend(grad_v, self.learning_rate)
        new_state = FixedSigmaState(
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
