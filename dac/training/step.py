"""What one member does in one step, the same in the device loop and in the host loop.

Step t, in both loops:

    1. the transition of step t - 1 goes into the replay buffer, a ring     (`remember`)
    2. the policy chooses the action of step t              (`choose_actions`)
    3. the networks learn from the ring                     (`learn`; before it `watch`, for running statistics)
    4. the environment moves                                (the loop)

3 does not need 4, so on the host the networks learn while the environment moves. What learns on-policy swaps 2 and 3,
and does 3 only when a rollout is complete: the first action of the next one must be the new policy's.
"""

from __future__ import annotations

import functools
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm, AbstractOffPolicy, AbstractOnPolicy, Batch, Following, Recent
from dac.core import replay
from dac.core.keys import INIT, MEASURE, RECENT, side_key, step_keys, stream
from dac.core.networks import AbstractPolicy
from dac.core.population import each_member
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec, Metrics, PRNGKey, float_dtype, row_size, unpack

State = TypeVar("State", bound=eqx.Module)
Step = Int[Array, ""]
MEASURED_BATCHES = 8


def fresh_state(algorithm: AbstractAlgorithm[State], key: PRNGKey, spec: EnvSpec) -> State:
    """The state of one member before its first step."""
    return algorithm.init(stream(key, INIT), spec)


def remember(ring: replay.Ring, step: Step, rows: Float[Array, "env row"]) -> replay.Ring:
    """Insert the rows of step - 1. At step 0 they are empty, and are overwritten before anything reads them."""
    return replay.insert(ring, (step - 1) * rows.shape[0], rows)


class ActionNoise(eqx.Module):
    """The randomness of one step's actions: known before the observation is, so it can be drawn ahead of time."""

    policy_keys: Key[Array, " env"]
    uniform: Float[Array, "env action"]
    explore_uniformly: Bool[Array, ""]


def draw_noise(key: PRNGKey, step: Step, envs: int, spec: EnvSpec, random_steps: int) -> ActionNoise:
    """Draw the randomness of the actions of step `step`."""
    keys = step_keys(key, step)
    uniform = jax.random.uniform(keys.uniform, (envs, spec.action_size), float_dtype(), -1.0, 1.0)
    return ActionNoise(jax.random.split(keys.policy, envs), uniform, step * envs < random_steps)


def choose_actions(
    policy: AbstractPolicy, obs: Float[Array, "env obs"], noise: ActionNoise
) -> Float[Array, "env action"]:
    """Actions of the policy, or uniform ones during the first `random_steps` environment steps."""
    actions = jax.vmap(lambda o, k: policy.act(o, k, explore=True))(obs, noise.policy_keys)
    return jnp.where(noise.explore_uniformly, noise.uniform, actions)


def batch_positions(
    algorithm: AbstractOffPolicy, capacity: int, stored: Step, key: PRNGKey, envs: int, mix: replay.Mix | None = None
) -> Int[Array, " rows"]:
    """Positions of one batch in the ring, or in the dataset behind it if there is one.

    They are followed by those of its recent batch, all in the ring, if the algorithm wants one, and by those of the
    steps after the batch, step by step, if it looks ahead.
    """
    if mix is None:
        drawn = replay.sample_indices(capacity, stored, key, algorithm.batch_size)
    else:
        drawn = replay.sample_mixed(capacity, stored, key, algorithm.batch_size, mix)
    parts = [drawn]
    if algorithm.recent:
        recent_key = side_key(key, RECENT)  # leaves the batch itself as it would be without
        parts.append(replay.sample_indices(capacity, stored, recent_key, algorithm.batch_size, algorithm.recent))
    if algorithm.lookahead:
        parts.append(replay.following(capacity, stored, drawn, algorithm.lookahead, envs, mix).T.ravel())
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def rows_per_batch(algorithm: AbstractOffPolicy) -> int:
    """How many positions `batch_positions` has."""
    return algorithm.batch_size * (1 + (algorithm.recent > 0) + algorithm.lookahead)


def learning_positions(
    algorithm: AbstractOffPolicy,
    capacity: int,
    key: PRNGKey,
    step: Step,
    stored: Step,
    updates: int,
    envs: int,
    mix: replay.Mix | None = None,
) -> Int[Array, "update rows"]:
    """Positions of the batches of step `step`."""
    keys = jax.random.split(step_keys(key, step).learn, updates)
    return jax.vmap(lambda k: batch_positions(algorithm, capacity, stored, jax.random.split(k)[0], envs, mix))(keys)


def learn_from_rows(
    algorithm: AbstractOffPolicy[State],
    state: State,
    rows: Float[Array, "update rows row"],
    positions: Int[Array, "update rows"],
    key: PRNGKey,
    step: Step,
    stored: Step,
    capacity: int,
    spec: EnvSpec,
    mixed: bool = False,
) -> State:
    """One update per batch. What the updates measure is dropped here: see `measure`."""
    updates = rows.shape[0]
    keys = jax.random.split(step_keys(key, step).learn, updates)

    def one(state: State, now: tuple[Array, Array, PRNGKey]) -> tuple[State, None]:
        rows, positions, key = now
        update_key = jax.random.split(key)[1]
        return update_from_rows(algorithm, state, rows, positions, update_key, stored, capacity, spec, mixed)[0], None

    if updates == 1:  # no loop in the program, so that one update fuses with what surrounds it
        return one(state, (rows[0], positions[0], keys[0]))[0]
    return jax.lax.scan(one, state, (rows, positions, keys))[0]


def update_from_rows(
    algorithm: AbstractOffPolicy[State],
    state: State,
    rows: Float[Array, "rows row"],
    positions: Int[Array, " rows"],
    key: PRNGKey,
    stored: Step,
    capacity: int,
    spec: EnvSpec,
    mixed: bool = False,
) -> tuple[State, Metrics]:
    """One update from the rows at `batch_positions`; `mixed` says that some may come from a dataset."""
    size, steps, recent, following = algorithm.batch_size, algorithm.lookahead, None, None
    if algorithm.recent:
        whole = jnp.zeros((), bool) if mixed else jnp.minimum(stored, capacity) <= algorithm.recent
        recent = Recent(unpack(rows[size : 2 * size], spec), whole)
    if steps:
        later = rows[-size * steps :].reshape(steps, size, -1).swapaxes(0, 1)
        where = jnp.concatenate([positions[:size], positions[-size * steps :]]).reshape(steps + 1, size)
        following = Following(unpack(later, spec), (where[1:] != where[:-1]).T)
    batch = Batch(**vars(unpack(rows[:size], spec)), recent=recent, following=following)
    return algorithm.update(state, batch, key)


def learn(
    algorithm: AbstractOffPolicy[State],
    state: State,
    ring: replay.Ring,
    key: PRNGKey,
    step: Step,
    stored: Step,
    spec: EnvSpec,
    updates: int,
    envs: int,
    share: float = 0.0,
    dataset: replay.Dataset | None = None,
) -> State:
    """Draw a fresh batch per update, a share of it from the dataset if there is one, and learn from them."""
    mix, capacity = mix_with(dataset, share), ring.shape[0]
    drawn = learning_positions(algorithm, capacity, key, step, stored, updates, envs, mix)
    rows = replay.gather(ring, drawn, dataset)
    return learn_from_rows(algorithm, state, rows, drawn, key, step, stored, capacity, spec, mixed=mix is not None)


def mix_with(dataset: replay.Dataset | None, share: float) -> replay.Mix | None:
    """How batches are mixed with a dataset, or None where there is none."""
    return None if dataset is None else replay.Mix(share, dataset.shape[0])


def watch(
    algorithm: AbstractOffPolicy[State], state: State, rows: Float[Array, "env row"], step: Step, spec: EnvSpec
) -> State:
    """Show the algorithm the rows of step - 1, which `remember` has inserted; at step 0 there are none."""
    return algorithm.watch(state, unpack(rows, spec), step > 0)


def learn_from_rollout(
    algorithm: AbstractOnPolicy[State],
    state: State,
    ring: replay.Ring,
    key: PRNGKey,
    step: Step,
    envs: int,
    spec: EnvSpec,
) -> State:
    """Learn from the whole ring, which holds one rollout, its oldest row first."""
    rows = ring.reshape(-1, envs, ring.shape[1])
    return algorithm.update(state, unpack(rows, spec), step_keys(key, step).learn)


def refresh(
    algorithm: AbstractOffPolicy[State], state: State, rows: Float[Array, "window row"], stored: Step, spec: EnvSpec
) -> State:
    """Show the algorithm the latest rows, at `window_positions`."""
    return algorithm.refresh(state, unpack(rows, spec), jnp.minimum(stored, rows.shape[0]))


def refreshes(algorithm: AbstractAlgorithm, schedule: Schedule, step: int) -> bool:
    """Whether `refresh` comes before iteration `step`: at the first update, and then every so many steps."""
    every = algorithm.refresh_every if isinstance(algorithm, AbstractOffPolicy) else 0
    return (
        bool(every)
        and step >= schedule.first_update
        and (step == schedule.first_update or step % max(1, every // schedule.envs) == 0)
    )


def iterations_to_refresh(algorithm: AbstractAlgorithm, schedule: Schedule, step: int) -> int:
    """Iterations from `step` to the next refresh."""
    every = algorithm.refresh_every if isinstance(algorithm, AbstractOffPolicy) else 0
    if not every:
        return schedule.iterations
    period = max(1, every // schedule.envs)
    return period - step % period


def window_positions(capacity: int, window: int, stored: Step) -> Int[Array, " window"]:
    """Where the latest rows stand in the ring, newest first; those never written come last."""
    return (stored - 1 - jnp.arange(min(window, capacity))) % capacity


def measuring_positions(
    algorithm: AbstractOffPolicy,
    capacity: int,
    key: PRNGKey,
    step: Step,
    stored: Step,
    envs: int,
    mix: replay.Mix | None = None,
) -> Int[Array, "batches rows"]:
    """Positions of the batches that `measure_from_rows` looks at."""
    keys = jax.random.split(stream(key, MEASURE, step), MEASURED_BATCHES)
    return jax.vmap(lambda k: batch_positions(algorithm, capacity, stored, jax.random.split(k)[0], envs, mix))(keys)


def measure_from_rows(
    algorithm: AbstractOffPolicy[State],
    state: State,
    rows: Float[Array, "batches rows row"],
    positions: Int[Array, "batches rows"],
    key: PRNGKey,
    step: Step,
    stored: Step,
    capacity: int,
    spec: EnvSpec,
    mixed: bool = False,
) -> Metrics:
    """What an update would measure now, averaged over fresh batches; nothing is changed.

    Measuring once per evaluation instead of in every update keeps two dozen small reductions out of the hot loop.
    """

    def one(now: tuple[Array, Array, PRNGKey]) -> Metrics:
        rows, positions, key = now
        update_key = jax.random.split(key)[1]
        return update_from_rows(algorithm, state, rows, positions, update_key, stored, capacity, spec, mixed)[1]

    metrics = jax.lax.map(one, (rows, positions, jax.random.split(stream(key, MEASURE, step), MEASURED_BATCHES)))
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)


@functools.partial(jax.jit, static_argnames=("spec", "envs", "share"))
def measure_members(
    algorithms: AbstractAlgorithm,
    states: PyTree,
    rings: Float[Array, "member capacity row"],
    keys: Key[Array, " member"],
    step: Step,
    stored: Step,
    spec: EnvSpec,
    envs: int,
    share: float = 0.0,
    dataset: replay.Dataset | None = None,
) -> dict[str, Float[Array, " member"]]:
    """What every member measures now. On-policy there are no fresh batches: it is what the last update saw."""

    def one(algorithm, state, ring, key, step, stored):
        if isinstance(algorithm, AbstractOnPolicy):
            return algorithm.metrics(state)
        mix, capacity = mix_with(dataset, share), ring.shape[0]
        drawn = measuring_positions(algorithm, capacity, key, step, stored, envs, mix)
        rows = replay.gather(ring, drawn, dataset)
        return measure_from_rows(
            algorithm, state, rows, drawn, key, step, stored, capacity, spec, mixed=mix is not None
        )

    return each_member(one, shared=(4, 5))(algorithms, states, rings, keys, step, stored)


def metric_names(
    algorithms: AbstractAlgorithm, states: PyTree, keys: Key[Array, " member"], spec: EnvSpec
) -> list[str]:
    """The names of what is measured, known before anything was."""

    def one(algorithm, state, key):
        if isinstance(algorithm, AbstractOnPolicy):
            return algorithm.metrics(state)
        positions = jnp.zeros(rows_per_batch(algorithm), jnp.int32)
        rows = jnp.zeros((*positions.shape, row_size(spec)), float_dtype())
        return update_from_rows(algorithm, state, rows, positions, key, jnp.int32(1), 1, spec)[1]

    return list(eqx.filter_eval_shape(each_member(one), algorithms, states, keys))


@jax.jit
def policies_of(algorithms: AbstractAlgorithm, states: PyTree) -> PyTree:
    """The policies of every member, stacked."""
    return each_member(lambda algorithm, state: algorithm.policy(state))(algorithms, states)
