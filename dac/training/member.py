"""What one member does in one step, the same in the device loop and in the host loop.

Step t, in both loops:

    1. the transition of step t - 1 goes into the ring     (`remember`)
    2. the policy chooses the action of step t              (`choose_actions`)
    3. the networks learn from the ring                     (`learn`)
    4. the environment moves                                (the loop)

3 does not need 4, so on the host the networks learn while the environment moves.
"""

from __future__ import annotations

import functools
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from dac import replay
from dac.algorithms.base import AbstractAlgorithm
from dac.networks import AbstractPolicy
from dac.population import MEASURE, TRAIN, each_member, stream
from dac.types import EnvSpec, Metrics, PRNGKey, float_dtype, unpack

State = TypeVar("State", bound=eqx.Module)
Step = Int[Array, ""]


def remember(ring: replay.Ring, step: Step, rows: Float[Array, "env row"]) -> replay.Ring:
    """Insert the rows of step - 1. At step 0 they are empty, and land where they are overwritten before being read."""
    return replay.insert(ring, (step - 1) * rows.shape[0], rows)


class ActionNoise(eqx.Module):
    """The randomness of one step's actions: known before the observation is, so it can be drawn ahead of time."""

    policy_keys: Key[Array, " env"]
    uniform: Float[Array, "env action"]
    explore_uniformly: Bool[Array, ""]


def draw_noise(key: PRNGKey, step: Step, envs: int, spec: EnvSpec, random_steps: int) -> ActionNoise:
    """For the actions of step `step`."""
    policy_key, uniform_key, _, _ = step_keys(key, step)
    uniform = jax.random.uniform(uniform_key, (envs, spec.action_size), float_dtype(), -1.0, 1.0)
    return ActionNoise(jax.random.split(policy_key, envs), uniform, step * envs < random_steps)


def choose_actions(
    policy: AbstractPolicy, obs: Float[Array, "env obs"], noise: ActionNoise
) -> Float[Array, "env action"]:
    """Actions of the policy, or uniform ones during the first `random_steps` environment steps."""
    actions = jax.vmap(lambda o, k: policy.act(o, k, explore=True))(obs, noise.policy_keys)
    return jnp.where(noise.explore_uniformly, noise.uniform, actions)


def learning_indices(
    capacity: int, key: PRNGKey, step: Step, stored: Step, size: int, updates: int
) -> Int[Array, "update batch"]:
    """Positions in the ring of the batches of step `step`."""
    keys = jax.random.split(step_keys(key, step)[2], updates)
    return jax.vmap(lambda k: replay.sample_indices(capacity, stored, jax.random.split(k)[0], size))(keys)


def learn_from_rows(
    algorithm: AbstractAlgorithm[State],
    state: State,
    rows: Float[Array, "update batch row"],
    key: PRNGKey,
    step: Step,
    spec: EnvSpec,
) -> State:
    """One update per batch. What the updates measure is dropped here: see `measure`."""
    updates = rows.shape[0]
    keys = jax.random.split(step_keys(key, step)[2], updates)

    def one(state: State, now: tuple[Float[Array, "batch row"], PRNGKey]) -> tuple[State, None]:
        rows, key = now
        return algorithm.update(state, unpack(rows, spec), jax.random.split(key)[1])[0], None

    if updates == 1:  # no loop in the program, so that one update fuses with what surrounds it
        return one(state, (rows[0], keys[0]))[0]
    return jax.lax.scan(one, state, (rows, keys))[0]


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
    """Draw a fresh batch per update and learn from them."""
    drawn = learning_indices(ring.shape[0], key, step, stored, algorithm.batch_size, updates)
    return learn_from_rows(algorithm, state, replay.gather(ring, drawn), key, step, spec)


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
        drawn = replay.sample_indices(ring.shape[0], stored, sample_key, algorithm.batch_size)
        return algorithm.update(state, unpack(replay.gather(ring, drawn), spec), update_key)[1]

    metrics = jax.lax.map(one, jax.random.split(stream(key, MEASURE, step), batches))
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)


def step_keys(key: PRNGKey, step: Step) -> tuple[PRNGKey, PRNGKey, PRNGKey, PRNGKey]:
    """Keys of one member at one step: for the policy, for uniform actions, for learning, for the environment."""
    policy_key, uniform_key, learn_key, env_key = jax.random.split(stream(key, TRAIN, step), 4)
    return policy_key, uniform_key, learn_key, env_key


@functools.partial(jax.jit, static_argnames="spec")
def measure_members(
    algorithms: AbstractAlgorithm,
    states: PyTree,
    rings: Float[Array, "member capacity row"],
    keys: Key[Array, " member"],
    step: Step,
    stored: Step,
    spec: EnvSpec,
) -> Metrics:
    """`measure` for every member."""

    def one(algorithm, state, ring, key, step, stored):
        return measure(algorithm, state, ring, key, step, stored, spec, batches=8)

    return each_member(one, shared=(4, 5))(algorithms, states, rings, keys, step, stored)


@jax.jit
def policies_of(algorithms: AbstractAlgorithm, states: PyTree) -> PyTree:
    """The policies of every member, stacked."""
    return each_member(lambda algorithm, state: algorithm.policy(state))(algorithms, states)
