"""The compiled steps of the host loop.

Trees travel as flat tuples: flattening two dozen modules in Python at every dispatch would cost more than dispatching.
The step number lives on the device (`clock`), and what can be drawn before an observation is known is drawn at the end
of the update before: every upload and every kernel between an observation and its action is time in which the
environments wait.

The programs belong to the module, not to a loop. Loops that agree in their `Layout` share them, so a second loop of the
same kind compiles nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
from jaxtyping import Array, Bool, Float, Int, PyTree

from dac.algorithms.base import AbstractAlgorithm, AbstractOnPolicy
from dac.core import replay
from dac.core.population import each_member
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec, row_size
from dac.training import step as member
from dac.training.health import unless_frozen

Context: TypeAlias = tuple[Array, ...]
"""The leaves of the stacked algorithms and keys."""
State: TypeAlias = tuple[Array, ...]
"""The leaves of the stacked states."""
Clock: TypeAlias = Int[Array, ""]
Packed: TypeAlias = Float[Array, "member env packed"]
"""The last transition and the present observation of every environment."""
Frozen: TypeAlias = Bool[Array, " member"] | None


class Layout:
    """What the programs depend on besides the shapes of arrays: the structure of the trees, sizes and the schedule.

    It is compared by identity, which costs nothing at every dispatch; `layout_of` gives equal loops the same one.
    """

    def __init__(self, context: Any, state: Any, spec: EnvSpec, schedule: Schedule):
        self._context, self._state = context, state
        self.spec, self.schedule = spec, schedule

    def algorithms_and_keys(self, context: Context) -> tuple[AbstractAlgorithm, Array]:
        return jax.tree.unflatten(self._context, context)

    def states(self, state: Sequence[Array]) -> PyTree:
        return jax.tree.unflatten(self._state, state)


@functools.lru_cache(maxsize=64)
def _layout(context: Any, state: Any, spec: EnvSpec, schedule: Schedule) -> Layout:
    return Layout(context, state, spec, schedule)


def layout_of(
    algorithms: AbstractAlgorithm, keys: Array, states: PyTree, spec: EnvSpec, schedule: Schedule
) -> tuple[Layout, Context, State]:
    """The layout of a loop, with the leaves of its trees."""
    context, context_structure = jax.tree.flatten((algorithms, keys))
    state, state_structure = jax.tree.flatten(states)
    return _layout(context_structure, state_structure, spec, schedule.program), tuple(context), tuple(state)


def _mapped(layout: Layout, function: Callable, context: Context, state: State, *arguments: Any, shared: int) -> Any:
    """Map a function of (algorithm, state, key, ...) over members; its last `shared` arguments are the same for all."""
    algorithms, keys = layout.algorithms_and_keys(context)
    first = 3 + len(arguments) - shared
    return each_member(function, range(first, first + shared))(algorithms, layout.states(state), keys, *arguments)


def _changed(
    layout: Layout, function: Callable, context: Context, state: State, frozen: Frozen, data: PyTree, time: Clock
) -> State:
    """The new states after a function of (algorithm, state, key, data, time); those of frozen members stay."""

    def one(algorithm, state, key, frozen, data, time):
        return unless_frozen(frozen, state, function(algorithm, state, key, data, time))

    return tuple(jax.tree.leaves(_mapped(layout, one, context, state, frozen, data, time, shared=1)))


def _positions(layout: Layout, function: Callable, context: Context, *times: Clock) -> Int[Array, "member *rows"]:
    """Map a function of (algorithm, key, *times) over members."""
    algorithms, keys = layout.algorithms_and_keys(context)
    return each_member(function, range(2, 2 + len(times)))(algorithms, keys, *times)


def _noise_at(layout: Layout, context: Context, clock: Clock) -> member.ActionNoise:
    schedule = layout.schedule

    def one(key, clock):
        return member.draw_noise(key, clock, schedule.envs, layout.spec, schedule.random_steps)

    return each_member(one, shared=(1,))(layout.algorithms_and_keys(context)[1], clock)


def _put(layout: Layout, ring: Array, packed: Packed, clock: Clock) -> Array:
    row = row_size(layout.spec)
    return each_member(lambda r, p, c: member.remember(r, c, p[:, :row]), shared=(2,))(ring, packed, clock)


def _tick(layout: Layout, context: Context, clock: Clock) -> tuple[Clock, member.ActionNoise]:
    return clock + 1, _noise_at(layout, context, clock + 1)


def _mix(layout: Layout, size: Int[Array, ""] | None) -> replay.Mix | None:
    """How batches are mixed with a dataset of this size, or None where there is none."""
    return None if size is None else replay.Mix(layout.schedule.offline_share, size)


def _learning_positions(
    layout: Layout, context: Context, clock: Clock, size: Int[Array, ""] | None
) -> Int[Array, "member update rows"]:
    schedule, mix = layout.schedule, _mix(layout, size)

    def one(algorithm, key, clock):
        stored = clock * schedule.envs
        updates = schedule.updates_per_iteration
        return member.learning_positions(algorithm, schedule.capacity, key, clock, stored, updates, schedule.envs, mix)

    return _positions(layout, one, context, clock)


@functools.partial(jax.jit, static_argnums=1)
def init(algorithms_and_keys: PyTree, spec: EnvSpec) -> PyTree:
    """Fresh states of all members."""
    algorithms, keys = algorithms_and_keys
    return each_member(lambda algorithm, key: member.fresh_state(algorithm, key, spec))(algorithms, keys)


@functools.partial(jax.jit, static_argnums=0)
def start(layout: Layout, context: Context, clock: Clock) -> tuple[Clock, member.ActionNoise]:
    """The counter on the device, and the noise of its step."""
    return clock, _noise_at(layout, context, clock)


@functools.partial(jax.jit, static_argnums=0)
def act(layout: Layout, context: Context, state: State, packed: Packed, noise: member.ActionNoise) -> Any:
    """The actions for the present observations; `packed` comes back so that one upload serves the update too."""
    row = row_size(layout.spec)

    def one(algorithm, state, key, packed, noise):
        del key
        return member.choose_actions(algorithm.policy(state), packed[:, row:], noise)

    return _mapped(layout, one, context, state, packed, noise, shared=0), packed


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def watch(layout: Layout, context: Context, state: State, packed: Packed, clock: Clock, frozen: Frozen) -> State:
    """Show the algorithms the last transitions."""
    row = row_size(layout.spec)

    def one(algorithm, state, key, packed, clock):
        del key
        return member.watch(algorithm, state, packed[:, :row], clock, layout.spec)

    return _changed(layout, one, context, state, frozen, packed, clock)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def remember(layout: Layout, context: Context, ring: Array, packed: Packed, clock: Clock) -> Any:
    """Put the last transitions into the replay buffer without learning."""
    return _put(layout, ring, packed, clock), *_tick(layout, context, clock)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2, 3))
def learn(
    layout: Layout,
    context: Context,
    state: State,
    ring: Array,
    packed: Packed,
    clock: Clock,
    frozen: Frozen,
    dataset: Array | None = None,
) -> Any:
    """Put the last transitions into the replay buffer, then learn from it and from the dataset, if there is one."""
    schedule, spec = layout.schedule, layout.spec

    def one(algorithm, state, key, ring, clock):
        if isinstance(algorithm, AbstractOnPolicy):
            return member.learn_from_rollout(algorithm, state, ring, key, clock, schedule.envs, spec)
        stored = clock * schedule.envs
        updates, share = schedule.updates_per_iteration, schedule.offline_share
        return member.learn(algorithm, state, ring, key, clock, stored, spec, updates, schedule.envs, share, dataset)

    ring = _put(layout, ring, packed, clock)
    return _changed(layout, one, context, state, frozen, ring, clock), ring, *_tick(layout, context, clock)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def refresh(layout: Layout, context: Context, state: State, ring: Array, stored: Clock, frozen: Frozen) -> State:
    """Show the algorithms the latest rows of the replay buffer on the device."""

    def one(algorithm, state, key, ring, stored):
        del key
        positions = member.window_positions(ring.shape[0], algorithm.refresh_window, stored)
        return member.refresh(algorithm, state, replay.gather(ring, positions), stored, layout.spec)

    return _changed(layout, one, context, state, frozen, ring, stored)


# For a replay buffer in host memory: which rows are drawn, and what is done with them.


@functools.partial(jax.jit, static_argnums=0)
def learning_positions(
    layout: Layout, context: Context, clock: Clock, dataset_size: Int[Array, ""] | None = None
) -> Int[Array, "member update rows"]:
    """Which rows the update of step `clock` draws, those of a dataset numbered behind the replay buffer's."""
    return _learning_positions(layout, context, clock, dataset_size)


@functools.partial(jax.jit, static_argnums=0)
def tick_and_draw(layout: Layout, context: Context, clock: Clock, dataset_size: Int[Array, ""] | None = None) -> Any:
    """The next counter, its noise, and which rows its update draws."""
    return *_tick(layout, context, clock), _learning_positions(layout, context, clock + 1, dataset_size)


@functools.partial(jax.jit, static_argnums=0)
def measuring_positions(
    layout: Layout, context: Context, step: Clock, stored: Clock, dataset_size: Int[Array, ""] | None = None
) -> Int[Array, "member *rows"]:
    """Which rows `measure_from_rows` looks at."""
    schedule, mix = layout.schedule, _mix(layout, dataset_size)

    def one(algorithm, key, step, stored):
        return member.measuring_positions(algorithm, schedule.capacity, key, step, stored, schedule.envs, mix)

    return _positions(layout, one, context, step, stored)


@functools.partial(jax.jit, static_argnums=0)
def window_positions(layout: Layout, context: Context, stored: Clock) -> Int[Array, "member window"]:
    """Where the latest rows stand."""

    def one(algorithm, key, stored):
        del key
        return member.window_positions(layout.schedule.capacity, algorithm.refresh_window, stored)

    return _positions(layout, one, context, stored)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def learn_from_rows(
    layout: Layout, context: Context, state: State, rows: Array, positions: Array, clock: Clock, frozen: Frozen
) -> State:
    """Learn from rows that were gathered on the host, from these positions."""
    schedule, spec = layout.schedule, layout.spec

    def one(algorithm, state, key, data, clock):
        (rows, positions), stored, capacity = data, clock * schedule.envs, schedule.capacity
        mixed = schedule.offline_share > 0
        return member.learn_from_rows(algorithm, state, rows, positions, key, clock, stored, capacity, spec, mixed)

    return _changed(layout, one, context, state, frozen, (rows, positions), clock)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def refresh_from_rows(
    layout: Layout, context: Context, state: State, rows: Array, stored: Clock, frozen: Frozen
) -> State:
    """Show the algorithms the latest rows, gathered on the host."""

    def one(algorithm, state, key, rows, stored):
        del key
        return member.refresh(algorithm, state, rows, stored, layout.spec)

    return _changed(layout, one, context, state, frozen, rows, stored)


@functools.partial(jax.jit, static_argnums=0)
def measure_from_rows(
    layout: Layout, context: Context, state: State, rows: Array, positions: Array, step: Clock, stored: Clock
) -> Any:
    """What every member measures on rows that were gathered on the host, from these positions."""

    def one(algorithm, state, key, data, step, stored):
        (rows, positions), capacity, spec = data, layout.schedule.capacity, layout.spec
        mixed = layout.schedule.offline_share > 0
        return member.measure_from_rows(algorithm, state, rows, positions, key, step, stored, capacity, spec, mixed)

    return _mapped(layout, one, context, state, (rows, positions), step, stored, shared=2)
