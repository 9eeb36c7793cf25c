"""Soft Q-Learning (Haarnoja et al., ICML 2017): the soft Bellman equation, and a network that samples exp(Q).

There is no density of the policy anywhere: actions come from a network fed with noise, which amortised Stein
variational gradient descent (`dac/svgd.py`) teaches to imitate samples of exp(Q). Read `update` beside Algorithm 1.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac.algorithms.base import AbstractDescent, AbstractOffPolicy, count, number, static
from dac.algorithms.parts import svgd
from dac.core.architectures import AbstractNetwork, Architecture
from dac.core.learner import Learner, gradient_with_values, replace_if
from dac.core.networks import AbstractPolicy, ActionValue, action_saturation
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition

EPSILON = 1e-6
"""Keeps log(1 - a^2) finite for actions that round to +-1; the original's value."""


class Sampler(AbstractPolicy):
    """a = tanh(network(s, xi)) with xi ~ N(0, I): a policy one can sample from, and nothing else."""

    mlp: AbstractNetwork
    action_size: int = eqx.field(static=True)

    def __init__(self, key: PRNGKey, spec: EnvSpec, architecture: Architecture):
        self.mlp = architecture(key, spec.obs_size + spec.action_size, spec.action_size)
        self.action_size = spec.action_size

    def __call__(self, obs: Float[Array, " obs"], noise: Float[Array, " action"]) -> Float[Array, " action"]:
        return jnp.tanh(self.mlp(jnp.concatenate([obs, noise])))

    def act(self, obs: Float[Array, " obs"], key: PRNGKey, *, explore: bool) -> Float[Array, " action"]:
        """A sample, also where the policy does not explore: where exp(Q) has two modes, none is "the" best guess."""
        del explore
        return self(obs, jax.random.normal(key, (self.action_size,), obs.dtype))


class State(eqx.Module):
    sampler: Learner[Sampler]
    critic: Learner[ActionValue]
    critic_target: ActionValue
    updates: Int[Array, ""]
    """Updates taken, since the target is copied every so many."""


class SoftQLearning(AbstractDescent[State], AbstractOffPolicy[State]):
    """Maximum-entropy Q-learning; actions from a sampling network trained by SVGD."""

    beta: float = number(1.0, 1e-6)
    """Entropy coefficient; rewards are divided by it."""
    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for both networks."""
    target_every: int = count(1000)
    """Updates between copies of the Q-network into its target."""
    value_actions: int = count(16)
    """Uniform actions with which the soft value of a state is estimated."""
    particles: int = count(8, 2)
    """Actions per state at which SVGD evaluates the score, and as many again that it moves."""
    hidden: tuple[int, ...] = static((128, 128))
    """Hidden layer sizes, for both networks."""
    batch_size: int = count(128)
    """Transitions per update."""

    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        sampler_key, critic_key = jax.random.split(key)
        critic = self.learner(ActionValue, critic_key, spec)
        return State(
            sampler=self.learner(Sampler, sampler_key, spec),
            critic=critic,
            critic_target=critic.model,
            updates=jnp.zeros((), jnp.int32),
        )

    def policy(self, state: State) -> Sampler:
        return state.sampler.model

    def update(self, state: State, batch: Transition, key: PRNGKey) -> tuple[State, Metrics]:
        """Algorithm 1: both losses from the old parameters, then both Adam steps, then perhaps the target's copy."""
        obs, (size, action_size) = batch.obs, batch.action.shape
        value_key, fixed_key, moved_key = jax.random.split(key, 3)

        # soft Bellman equation, Eq. 11: a time-out is not a termination, so it bootstraps.
        # One set of uniform actions serves the whole batch, as in the authors' code
        uniform = jax.random.uniform(value_key, (self.value_actions, action_size), obs.dtype, -1.0, 1.0)
        next_q = jax.vmap(lambda o: jax.vmap(lambda a: state.critic_target(o, a))(uniform))(batch.next_obs)
        next_v = soft_value(next_q, action_size)
        target_q = batch.reward / self.beta + self.gamma * (1 - batch.terminated) * next_v

        def critic_loss(critic: ActionValue):
            q = jax.vmap(critic)(obs, batch.action)
            return 0.5 * jnp.mean((q - target_q) ** 2), q

        (loss_q, q), grad_q = gradient_with_values(critic_loss)(state.critic.model)

        # amortised SVGD, Eq. 13 and 14: where the particles should go, pulled back to the sampler's parameters
        shape = size, self.particles, action_size
        fixed = samples(state.sampler.model, obs, jax.random.normal(fixed_key, shape, obs.dtype))
        moving_noise = jax.random.normal(moved_key, shape, obs.dtype)
        moved, pull_back = jax.vjp(lambda sampler: samples(sampler, obs, moving_noise), state.sampler.model)
        q_fixed, score = jax.vmap(lambda o, a: scores(state.critic.model, o, a))(obs, fixed)
        direction, bandwidth = jax.vmap(svgd.direction)(score, fixed, moved)
        # the original sums where we average, for which Adam does not care
        (grad_sampler,) = pull_back(-direction / (size * self.particles))

        critic = state.critic.descend(grad_q, self.learning_rate)
        updates = state.updates + 1
        new_state = State(
            sampler=state.sampler.descend(grad_sampler, self.learning_rate),
            critic=critic,
            critic_target=replace_if(updates % self.target_every == 0, critic.model, state.critic_target),
            updates=updates,
        )
        metrics = {
            "critic_loss": loss_q,
            "q_mean": jnp.mean(q),
            "v_mean": jnp.mean(next_v),
            "policy_q": jnp.mean(q_fixed),
            "svgd_norm": jnp.mean(jnp.linalg.norm(direction, axis=-1)),
            "bandwidth": jnp.mean(bandwidth),
            "action_std": jnp.mean(jnp.std(fixed, axis=1)),
            "action_saturation": action_saturation(fixed),
        }
        return new_state, metrics


def soft_value(q: Float[Array, "*batch particle"], action_size: int) -> Float[Array, "*batch"]:
    """V = log of the integral of exp(Q) over [-1, 1]^d, from Q at uniform actions. Eq. 10, Haarnoja et al. 2017.

    The integral is the mean of exp(Q) times the volume 2^d.
    """
    return jax.nn.logsumexp(q, axis=-1) - math.log(q.shape[-1]) + action_size * math.log(2)


def samples(
    sampler: Sampler, obs: Float[Array, "batch obs"], noise: Float[Array, "batch particle action"]
) -> Float[Array, "batch particle action"]:
    """One action per state and draw."""
    return jax.vmap(lambda o, n: jax.vmap(lambda one: sampler(o, one))(n))(obs, noise)


def scores(
    critic: ActionValue, obs: Float[Array, " obs"], actions: Float[Array, "particle action"]
) -> tuple[Float[Array, " particle"], Float[Array, "particle action"]]:
    """Q at some actions of one state, and the gradient there of log p = Q + sum log(1 - a^2).

    Why not Q alone: on the sampler's way back the score is multiplied by tanh'(u) = 1 - a^2. With the second term
    the product is d/du [Q(tanh u) + sum log(1 - tanh(u)^2)], the score of exp(Q) written as a density of the
    unbounded u. Without it nothing would hold a particle for which Q still rises at a bound, and from behind a flat
    tanh no gradient brings it back. The kernel still compares actions, so what particles settle at, as a density of
    actions, is exp(Q) * prod (1 - a^2): exp(Q) but for a rim that is thin where rewards are large beside beta.
    """

    def log_density(action: Float[Array, " action"]) -> tuple[Scalar, Scalar]:
        q = critic(obs, action)
        return q + jnp.sum(jnp.log(1 - action**2 + EPSILON)), q

    score, q = jax.vmap(jax.grad(log_density, has_aux=True))(actions)
    return q, score
