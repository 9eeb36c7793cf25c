"""What one member does in one step, the same in the device loop and in the host loop.

Step t, in both loops:

    1. the transition of step t - 1 goes into the ring     (`remember`)
    2. the policy chooses the action of step t              (`choose_actions`)
    3. the networks learn from the ring                     (`learn`)
    4. the environment moves                                (the loop)

3 does not need 4, so on the host the networks learn while the environment moves.
"""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from dac import replay
from dac.algorithms.base import AbstractAlgorithm
from dac.population import MEASURE, TRAIN, stream
from dac.types import EnvSpec, Metrics, PRNGKey

State = TypeVar("State", bound=eqx.Module)
Step = Int[Array, ""]


def remember(ring: replay.Ring, step: Step, rows: Float[Array, "env row"]) -> replay.Ring:
    """Insert the rows of step - 1. At step 0 they are empty, and land where they are overwritten before being read."""
    return replay.insert(ring, (step - 1) * rows.shape[0], rows)


def choose_actions(
    algorithm: AbstractAlgorithm[State],
    state: State,
    obs: Float[Array, "env obs"],
    key: PRNGKey,
    step: Step,
    spec: EnvSpec,
    random_steps: int,
) -> Float[Array, "env action"]:
    """Actions of the policy, or uniform ones during the first `random_steps` environment steps."""
    envs = obs.shape[0]
    policy_key, uniform_key, _, _ = step_keys(key, step)
    policy = algorithm.policy(state)
    actions = jax.vmap(lambda o, k: policy.act(o, k, explore=True))(obs, jax.random.split(policy_key, envs))
    uniform = jax.random.uniform(uniform_key, (envs, spec.action_size), obs.dtype, -1.0, 1.0)
    return jnp.where(step * envs < random_steps, uniform, actions)


def learn(
    algorithm: AbstractAlgorithm[State],
    state: State,
    ring: replay.Ring,
    key: PRNGKey,
    step: Step,
    stored: Step,
    spec: EnvSpec,
    updates: int,
) -> State:
    """Update `updates` times, each on a fresh batch. What the updates measure is dropped here: see `measure`."""
    _, _, learn_key, _ = step_keys(key, step)

    def one(state: State, key: PRNGKey) -> tuple[State, None]:
        sample_key, update_key = jax.random.split(key)
        batch = replay.sample(ring, stored, sample_key, algorithm.batch_size, spec)
        return algorithm.update(state, batch, update_key)[0], None

    if updates == 1:
        return one(state, learn_key)[0]
    return jax.lax.scan(one, state, jax.random.split(learn_key, updates))[0]


def measure(
    algorithm: AbstractAlgorithm[State],
    state: State,
    ring: replay.Ring,
    key: PRNGKey,
    step: Step,
    stored: Step,
    spec: EnvSpec,
    batches: int,
) -> Metrics:
    """What an update would measure now, averaged over fresh batches; nothing is changed.

    Measuring once per evaluation instead of in every update keeps two dozen small reductions out of the hot loop.
    """

    def one(key: PRNGKey) -> Metrics:
        sample_key, update_key = jax.random.split(key)
        batch = replay.sample(ring, stored, sample_key, algorithm.batch_size, spec)
        return algorithm.update(state, batch, update_key)[1]

    metrics = jax.lax.map(one, jax.random.split(stream(key, MEASURE, step), batches))
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)


def step_keys(key: PRNGKey, step: Step) -> tuple[PRNGKey, PRNGKey, PRNGKey, PRNGKey]:
    """Keys of one member at one step: for the policy, for uniform actions, for learning, for the environment."""
    policy_key, uniform_key, learn_key, env_key = jax.random.split(stream(key, TRAIN, step), 4)
    return policy_key, uniform_key, learn_key, env_key
