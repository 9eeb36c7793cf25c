"""The device loop: environment, ring and updates in one scan, for environments written in JAX."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm, AbstractOffPolicy, AbstractOnPolicy
from dac.core import replay
from dac.core.keys import RESET, step_keys, stream
from dac.core.population import Member, each_member, stack_algorithms, stack_keys
from dac.core.schedule import Schedule
from dac.core.trees import fill, name_leaves
from dac.core.types import EnvSpec, PRNGKey, Transition, float_dtype, pack, row_size
from dac.envs.base import AbstractDeviceEnv, EpisodeState
from dac.training.devices import everywhere, join, on_each, split, spread
from dac.training.evaluate import Evaluation, Moment, evaluate_on_device
from dac.training.health import Health, OnNaN, copy, unless_frozen
from dac.training.loop import AbstractLoop, lay_out, take_rows
from dac.training.step import (
    choose_actions,
    draw_noise,
    fresh_state,
    iterations_to_refresh,
    learn,
    learn_from_rollout,
    measure_members,
    refresh,
    refreshes,
    remember,
    watch,
    window_positions,
)

NEVER = np.iinfo(np.int32).max


class Carry(eqx.Module):
    """Everything of one member that changes with time; between programs, with a leading member axis."""

    state: PyTree
    episodes: EpisodeState
    obs: Float[Array, "*member env obs"]
    pending: Float[Array, "*member env row"]
    ring: Float[Array, "*member capacity row"] | None
    """None only where a carry is saved without its ring."""
    first_visit: Int[Array, "*member cell"] | None
    """Loop step at which each cell was first entered, NEVER where it was not."""
    visits: Int[Array, "*member cell"] | None


class DeviceLoop(AbstractLoop):
    """Trains a population with one dispatch per chunk of steps."""

    def __init__(
        self,
        algorithm: AbstractAlgorithm,
        env: AbstractDeviceEnv,
        members: Sequence[Member],
        schedule: Schedule,
        *,
        on_nan: OnNaN = "freeze",
        dataset: np.ndarray | None = None,
        mesh: Mesh | None = None,
    ):
        """Train on `env`, and on the rows of a dataset, for the schedule's share of every batch, if there is one.

        With a mesh the members are spread over its devices, and the dataset is on each of them.
        """
        self.env, self.schedule, self.mesh = env, schedule, mesh
        self.spec = env.spec
        self.grid, self.walls = env.cells, env.walls
        self.members = list(members)
        self.step = 0
        self._algorithms = spread(stack_algorithms(algorithm, members), mesh)
        self._keys = spread(stack_keys(members), mesh)
        self._dataset = None if dataset is None else everywhere(jnp.asarray(dataset, float_dtype()), mesh)
        parts = on_each(mesh, _start_members, *self._constants(), env, schedule.program)
        self._carry = join(parts, mesh)
        self.health = Health(self.members, on_nan)
        self._good = copy(self._carry.state)

    @property
    def states(self) -> PyTree:
        return self._carry.state

    def _constants(self) -> tuple[Any, Any]:
        """The algorithms and the keys, as programs take them."""
        return split(self._algorithms, self.mesh), split(self._keys, self.mesh)

    def advance(self, until: int) -> None:
        schedule, mesh = self.schedule, self.mesh
        while self.step < until and not self.stopping:
            if refreshes(self._algorithms, schedule, self.step):
                stored = jnp.int32(self.stored)
                algorithms, carry = self._constants()[0], split(self._carry, mesh)
                parts = on_each(mesh, _refresh, algorithms, carry, split(self.health.mask, mesh), stored, self.spec)
                self._carry = join(parts, mesh)
            training = self.step >= schedule.first_update
            end = until if training else min(until, schedule.first_update)
            length = min(schedule.chunk, end - self.step, iterations_to_refresh(self._algorithms, schedule, self.step))
            parts = on_each(
                mesh,
                _run_chunk,
                *self._constants(),
                split(self._carry, mesh),
                split(self.health.mask, mesh),
                jnp.int32(self.step),
                self.env,
                schedule.program,
                training,
                length,
                self._dataset,
            )
            self._carry = join(parts, mesh)
            self.step += length
            self._check_health()

    def replace_states(self, states: PyTree) -> None:
        self._carry = dataclasses.replace(self._carry, state=states)

    def snapshot(self) -> dict[str, Array | np.ndarray]:
        return name_leaves(copy(self._without_ring()))

    def latest_rows(self, start: int) -> Array:
        return take_rows(self._carry.ring, jnp.arange(start, self.stored) % self.schedule.capacity)

    def restore(self, step: int, arrays: Mapping[str, np.ndarray], rows: Iterable[tuple[int, np.ndarray]]) -> None:
        self._carry = spread(fill(self._without_ring(), arrays, "the checkpoint"), self.mesh)
        self._fill_ring(rows)
        self.step = step
        self._good = copy(self._carry.state)

    def _fill_ring(self, rows: Iterable[tuple[int, np.ndarray]]) -> None:
        ring = np.zeros((len(self.members), self.capacity, row_size(self.spec)), float_dtype())
        lay_out(ring, rows)
        self._carry = dataclasses.replace(self._carry, ring=jnp.asarray(spread(ring, self.mesh)))

    def _without_ring(self) -> Carry:
        return dataclasses.replace(self._carry, ring=None)

    def evaluate_moments(self, moments: Sequence[Moment], episodes: int) -> list[Evaluation]:
        return [evaluate_on_device(self.env, moment, self._keys, episodes) for moment in moments]

    def measure(self) -> dict[str, np.ndarray]:
        # the ring holds what was inserted: everything but the pending transition
        algorithms, keys = self._constants()
        carry, mesh = self._carry, self.mesh
        parts = on_each(
            mesh,
            measure_members,
            algorithms,
            split(carry.state, mesh),
            split(carry.ring, mesh),
            keys,
            jnp.int32(self.step),
            jnp.int32(self.stored),
            self.spec,
            self.schedule.envs,
            self.schedule.offline_share,
            self._dataset,
        )
        return {name: np.asarray(value) for name, value in join(parts, mesh).items()}

    def visited(self) -> np.ndarray | None:
        visits = self.visits()
        return None if visits is None else (visits > 0).sum(axis=1)

    def visits(self) -> np.ndarray | None:
        return None if self._carry.visits is None else np.asarray(self._carry.visits)

    def first_visits(self) -> np.ndarray | None:
        """Environment step at which each cell was first entered, -1 where it was not."""
        if self._carry.first_visit is None:
            return None
        first = np.asarray(self._carry.first_visit).astype(np.int64)
        return np.where(first == NEVER, -1, (first + 1) * self.schedule.envs)

    def wait(self) -> None:
        jax.block_until_ready(self._carry.state)

    def close(self) -> None:
        self.__dict__.pop("_carry", None)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _start_members(
    algorithms: AbstractAlgorithm, keys: Key[Array, " member"], env: AbstractDeviceEnv, schedule: Schedule
) -> Carry:
    return each_member(functools.partial(_start, env, schedule))(algorithms, keys)


def _start(env: AbstractDeviceEnv, schedule: Schedule, algorithm: AbstractAlgorithm, key: PRNGKey) -> Carry:
    spec = env.spec
    keys = jax.random.split(stream(key, RESET), schedule.envs)
    episodes, obs = jax.vmap(env.reset)(keys)
    cells = None if env.cells is None else math.prod(env.cells)
    return Carry(
        state=fresh_state(algorithm, key, spec),
        episodes=episodes,
        obs=obs,
        pending=jnp.zeros((schedule.envs, row_size(spec)), float_dtype()),
        ring=replay.empty(schedule.capacity, spec),
        first_visit=None if cells is None else jnp.full(cells, NEVER, jnp.int32),
        visits=None if cells is None else jnp.zeros(cells, jnp.int32),
    )


def one_step(
    env: AbstractDeviceEnv,
    schedule: Schedule,
    training: bool,
    algorithm: AbstractAlgorithm,
    key: PRNGKey,
    carry: Carry,
    frozen: Bool[Array, ""] | None,
    step: Int[Array, ""],
    dataset: replay.Dataset | None = None,
) -> Carry:
    """One iteration of one member: remember, act, learn, move."""
    spec = env.spec
    assert carry.ring is not None
    ring = remember(carry.ring, step, carry.pending)
    state = carry.state
    if isinstance(algorithm, AbstractOnPolicy):
        state = jax.lax.cond(
            (step > 0) & (step * schedule.envs % schedule.rollout == 0),
            lambda state: learn_from_rollout(algorithm, state, ring, key, step, schedule.envs, spec),
            lambda state: state,
            state,
        )
    noise = draw_noise(key, step, schedule.envs, spec, schedule.random_steps)
    action = choose_actions(algorithm.policy(state), carry.obs, noise)
    if isinstance(algorithm, AbstractOffPolicy) and algorithm.watches:
        state = watch(algorithm, state, carry.pending, step, spec)
    if training and isinstance(algorithm, AbstractOffPolicy):
        stored = step * schedule.envs
        updates, share = schedule.updates_per_iteration, schedule.offline_share
        state = learn(algorithm, state, ring, key, step, stored, spec, updates, schedule.envs, share, dataset)
    state = unless_frozen(frozen, carry.state, state)
    env_keys = jax.random.split(step_keys(key, step).env, schedule.envs)
    episodes, now = jax.vmap(env.step)(carry.episodes, action, env_keys)
    row = pack(Transition(carry.obs, action, now.reward, now.terminated, now.truncated, now.next_obs))
    first_visit, visits = carry.first_visit, carry.visits
    if first_visit is not None and visits is not None:
        cell = jax.vmap(env.cell)(now.next_obs)
        first_visit = first_visit.at[cell].min(step)
        visits = visits.at[cell].add(1)
    return Carry(state, episodes, now.obs, row, ring, first_visit, visits)


def _chunk(
    algorithms: AbstractAlgorithm,
    keys: Key[Array, " member"],
    carry: Carry,
    frozen: Bool[Array, " member"] | None,
    step: Int[Array, ""],
    env: AbstractDeviceEnv,
    schedule: Schedule,
    training: bool,
    length: int | Int[Array, ""],
    dataset: replay.Dataset | None,
) -> Carry:
    """`length` steps of every member: the loop outside, members inside."""
    members_step = each_member(functools.partial(one_step, env, schedule, training), shared=(4, 5))
    return jax.lax.fori_loop(
        0, length, lambda i, carry: members_step(algorithms, keys, carry, frozen, step + i, dataset), carry
    )


# On a CPU the length is data, and one program serves every length. On an accelerator a loop of unknown length would
# ask the host before every step whether to go on, so there each length is a program of its own.
_run_any_length = jax.jit(_chunk, static_argnums=(5, 6, 7), donate_argnums=2)
_run_fixed_length = jax.jit(_chunk, static_argnums=(5, 6, 7, 8), donate_argnums=2)


def _run_chunk(*arguments: Any) -> Carry:
    *others, length, dataset = arguments
    if jax.default_backend() == "cpu":
        return _run_any_length(*others, jnp.int32(length), dataset)
    return _run_fixed_length(*others, length, dataset)


@functools.partial(jax.jit, static_argnums=4, donate_argnums=1)
def _refresh(
    algorithms: AbstractAlgorithm,
    carry: Carry,
    frozen: Bool[Array, " member"] | None,
    stored: Int[Array, ""],
    spec: EnvSpec,
) -> Carry:
    """Outside the scan: a branch inside it that reads a whole ring would have the ring copied at every step."""

    def one(
        algorithm: AbstractOffPolicy, carry: Carry, frozen: Bool[Array, ""] | None, stored: Int[Array, ""]
    ) -> Carry:
        assert carry.ring is not None
        positions = window_positions(carry.ring.shape[0], algorithm.refresh_window, stored)
        state = refresh(algorithm, carry.state, replay.gather(carry.ring, positions), stored, spec)
        return dataclasses.replace(carry, state=unless_frozen(frozen, carry.state, state))

    return each_member(one, shared=(3,))(algorithms, carry, frozen, stored)
