"""Twin Delayed DDPG (Fujimoto, van Hoof & Meger, ICML 2018): a deterministic policy and two pessimistic critics.

Read `update` beside Algorithm 1 of that paper.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.algorithms.base import AbstractDescent, AbstractOffPolicy, count, number
from dac.core.architectures import AbstractNetwork
from dac.core.learner import Learner, gradient_with_values, moving_average, replace_if
from dac.core.networks import AbstractPolicy, ActionValue, action_saturation, mean_network, policy_values, twin_values
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, float_dtype


class DeterministicPolicy(AbstractPolicy):
    """pi(s) = tanh(network(s)), with Gaussian noise on top where it explores."""

    mlp: AbstractNetwork
    noise: Scalar

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """pi(s) + N(0, noise^2) clipped to the bounds, or pi(s) itself."""
        action = jnp.tanh(self.mlp(obs))
        if not explore:
            return action
        return jnp.clip(action + self.noise * jax.random.normal(key, action.shape, action.dtype), -1, 1)


class State(eqx.Module):
    policy: Learner[AbstractNetwork]
    policy_target: AbstractNetwork
    critics: Learner[ActionValue]
    critics_target: ActionValue
    updates: Int[Array, ""]
    """Updates taken, since the policy learns in every second one only."""


class TD3(AbstractDescent[State], AbstractOffPolicy[State]):
    """Deterministic policy, smoothed and clipped double Q-learning; no entropy."""

    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for every network."""
    tau: float = number(0.005, 0, 1)
    """Rate of the moving averages that make the target networks."""
    noise: float = number(0.1, 0)
    """Standard deviation of the Gaussian noise on actions while exploring; actions are in [-1, 1]."""
    target_noise: float = number(0.2, 0)
    """Standard deviation of the noise on the target policy's actions."""
    noise_clip: float = number(0.5, 0)
    """Largest noise on the target policy's actions."""
    policy_every: int = count(2)
    """Updates of the critics per update of the policy and of all targets."""
    batch_size: int = count(256)
    """Transitions per update."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        policy_key, critics_key = jax.random.split(key)
        policy = self.learner(mean_network, policy_key, spec)
        critics = self.learner(ActionValue.twins, critics_key, spec)
        return State(
            policy=policy,
            policy_target=policy.model,
            critics=critics,
            critics_target=critics.model,
            updates=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: State) -> DeterministicPolicy:
        return DeterministicPolicy(state.policy.model, jnp.asarray(self.noise, float_dtype()))

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Algorithm 1: the critics learn; then, every second time, the policy from the new critics, and the targets."""
        obs = batch.obs
        updates = state.updates + 1

        # target policy smoothing, Eq. 14: similar actions should have similar values
        noise = self.target_noise * jax.random.normal(key, batch.action.shape, batch.action.dtype)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_action = jnp.clip(greedy(state.policy_target, batch.next_obs) + noise, -1, 1)

        # clipped double Q-learning, Eq. 10: a time-out is not a termination, so it bootstraps
        next_q = jnp.min(twin_values(state.critics_target, batch.next_obs, next_action), axis=0)
        target_q = batch.reward + self.gamma * (1 - batch.terminated) * next_q

        def critics_loss(critics: ActionValue):
            twins = twin_values(critics, obs, batch.action)
            # the sum of both mean squared errors, without the 1/2 that the SAC family has
            return jnp.sum(jnp.mean((twins - target_q[None]) ** 2, axis=1)), twins

        (loss_q, twins), grad_q = gradient_with_values(critics_loss)(state.critics.model)
        critics = state.critics.descend(grad_q, self.learning_rate)

        # deterministic policy gradient: climb the first critic, as it is after its step
        def policy_loss(policy: AbstractNetwork):
            action = greedy(policy, obs)
            return -jnp.mean(policy_values(critics.model, obs, action, "first")[0]), action

        (loss_pi, action_pi), grad_pi = gradient_with_values(policy_loss)(state.policy.model)
        policy = state.policy.descend(grad_pi, self.learning_rate)

        # delayed: the policy and all targets wait for the critics to settle
        policy_target = moving_average(state.policy_target, policy.model, self.tau)
        critics_target = moving_average(state.critics_target, critics.model, self.tau)
        due = updates % self.policy_every == 0
        new_state = State(
            policy=replace_if(due, policy, state.policy),
            policy_target=replace_if(due, policy_target, state.policy_target),
            critics=critics,
            critics_target=replace_if(due, critics_target, state.critics_target),
            updates=updates,
        )
        metrics = {
            "policy_loss": loss_pi,
            "critic_loss": loss_q,
            "q_mean": jnp.mean(twins),
            "q_difference": jnp.mean(jnp.abs(twins[0] - twins[1])),
            "action_saturation": action_saturation(action_pi),
        }
        return new_state, metrics


def greedy(policy: AbstractNetwork, obs: Float[Array, "batch obs"]) -> Float[Array, "batch action"]:
    """pi(s) of a batch."""
    return jnp.tanh(jax.vmap(policy)(obs))
