"""The host loop: environments on the CPU, everything else on the device.

Per step one packed array goes up (the last transition and the present observation), one array of actions comes down,
and the update runs while the environments step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm, AbstractOffPolicy, AbstractOnPolicy
from dac.core.keys import EVALUATE, RESET, env_seed, stream
from dac.core.networks import AbstractPolicy
from dac.core.population import Member, each_member, stack_algorithms, stack_keys
from dac.core.schedule import Schedule
from dac.core.trees import fill, name_leaves
from dac.core.types import PRNGKey, float_dtype, row_size
from dac.envs.host import AbstractHostEnvs, CannotSave, EnvironmentFailure, HostStep
from dac.training import host_programs as programs
from dac.training.devices import Parts, download, empty, everywhere, join, mesh_of, on_each, results, split, spread
from dac.training.evaluate import Evaluation, Moment
from dac.training.health import Health, OnNaN, copy
from dac.training.loop import AbstractLoop, lay_out, take_rows
from dac.training.step import measure_members, refreshes
from dac.training.visits import VisitCounter

MakeEnvs = Callable[[int], AbstractHostEnvs]
ENVS = "envs."
"""Marks the environments' arrays among those of a snapshot."""
CHECK_EVERY = 100
"""Iterations between looks at the health of the networks; observations and rewards are looked at in every one."""
EVALUATIONS_AT_ONCE = 8
"""On an accelerator a step of an evaluation costs its latency: an episode of many policies is as long as of one."""


class HostLoop(AbstractLoop):
    """Trains a population on environments that live on the host."""

    _clock: Any
    _noise: Any
    _positions: Any
    """Which rows the next update draws from a replay buffer in host memory."""

    def __init__(
        self,
        algorithm: AbstractAlgorithm,
        make_envs: MakeEnvs,
        members: Sequence[Member],
        schedule: Schedule,
        *,
        envs: AbstractHostEnvs | None = None,
        host_replay: bool = False,
        on_nan: OnNaN = "freeze",
        launch_aside: bool | None = None,
        eval_limit: int = 10_000,
        dataset: np.ndarray | None = None,
        mesh: Mesh | None = None,
    ):
        """Train on `envs`, or on new environments where none are given; those of evaluations are made when needed.

        The rows of a dataset, if there is one, are kept where the replay buffer is; the schedule's share of every batch
        comes from them. With a mesh the members are spread over its devices, and a dataset on the device is on each.
        """
        self.members, self.schedule, self.mesh = list(members), schedule, mesh
        self.step = 0
        self.envs = make_envs(len(members) * schedule.envs) if envs is None else envs
        self.spec, self.notes = self.envs.spec, self.envs.notes
        self.grid, self.walls = self.envs.cells, self.envs.walls
        self._eval_limit = eval_limit
        self.cut_at = eval_limit if self.envs.horizon > eval_limit else None
        self._evaluation_envs = _Kept(make_envs)
        self._algorithms = spread(stack_algorithms(algorithm, members), mesh)
        self._keys = spread(stack_keys(members), mesh)
        self._on_policy = isinstance(algorithm, AbstractOnPolicy)
        self._watches = isinstance(algorithm, AbstractOffPolicy) and algorithm.watches
        states = join(on_each(mesh, programs.init, split((self._algorithms, self._keys), mesh), self.spec), mesh)
        self._lay_out(states)
        self.evaluations_at_once = 1 if jax.default_backend() == "cpu" else EVALUATIONS_AT_ONCE
        self.host_replay, self._dataset_rows = host_replay, dataset
        self._place_dataset()
        self._make_buffers()
        self.health = Health(self.members, on_nan)
        self._check_observations(self._obs)
        self._good = copy(states)
        # to launch an update's kernels takes as long as a step of MuJoCo: beside it, where the cores have nothing else
        # to do; a CPU that computes the update itself has. JAX's context managers (default_matmul_precision, ...) hold
        # for one thread: around a loop, set jax.config instead
        self.launches_aside = jax.default_backend() != "cpu" if launch_aside is None else launch_aside
        self._launcher = ThreadPoolExecutor(1, "dac-launch") if self.launches_aside else None

    def _lay_out(self, states: PyTree) -> None:
        """Flatten what the programs take; of several devices each has its part."""
        self._layout, context, state = programs.layout_of(
            self._algorithms, self._keys, states, self.spec, self.schedule
        )
        self._context, self._state = split(context, self.mesh), split(state, self.mesh)

    def _place_dataset(self) -> None:
        """Put the rows of the dataset, if there is one, where the replay buffer is."""
        rows = None if self._dataset_rows is None else np.asarray(self._dataset_rows, float_dtype())
        self._dataset = None if rows is None or self.host_replay else everywhere(jnp.asarray(rows), self.mesh)
        self._host_dataset = rows if self.host_replay else None
        self._dataset_size = None if self._host_dataset is None else np.int32(len(self._host_dataset))

    def _make_buffers(self) -> None:
        """Allocate the replay buffer, in host memory or on the device, and begin the first episodes."""
        count, row, dtype = len(self.members), row_size(self.spec), float_dtype()
        shape = (count, self.schedule.capacity, row)
        self._unsaved: str | None = None  # why the environments cannot be saved, found out on the way
        self._lost: str | None = None  # why they could not be restored
        self._host_ring = np.zeros(shape, dtype) if self.host_replay else None
        self._ring = None if self.host_replay else empty(shape, dtype, self.mesh)
        self._set_clock(0)
        self._packed = np.zeros((count, self.schedule.envs, row + self.spec.obs_size), dtype)
        self._obs = self._reset(0)
        self._packed[..., row:] = self._obs
        cells = self.envs.cells
        self._visits = None if cells is None else VisitCounter(count, math.prod(cells))

    @property
    def states(self) -> PyTree:
        return self._layout.states(join(self._state, self.mesh))

    def advance(self, until: int) -> None:
        while self.step < until and not self.stopping:
            self.iterate()
            if self.step % CHECK_EVERY == 0 or self.step == until:
                self._check_health()

    def iterate(self) -> None:
        """Act once in every environment and learn, as often as the schedule says."""
        if refreshes(self._algorithms, self.schedule, self.step):
            self._refresh()
        packed, noise = self._packed, self._noise  # the update already draws the noise of the next step
        if self._on_policy:
            packed = self._upload(packed)
            self._update(packed)
        # the program hands back what it was given, so that one upload serves the update too
        mesh, parts = self.mesh, split(packed, self.mesh)
        both = on_each(mesh, programs.act, self._layout, self._context, self._state, parts, noise)
        actions, packed = results(mesh, both)
        # after the actions, whose program reads the state that the update gives away
        launched = _nothing if self._on_policy else self._launch(packed)
        try:
            down = download(actions)
            if not np.isfinite(down).all():  # a policy broke, or a frozen member sees what is not finite
                launched()
                self._check_health()
                down = np.nan_to_num(down)
            now = self._step_envs(down)
            if self._visits is not None:
                self._visits.add(self._by_member(self.envs.visited_cells()), (self.step + 1) * self.schedule.envs)
        finally:
            launched()  # nobody sees a loop of which another thread is about to change the state
        self._pack(down, now)
        self.step += 1

    def _step_envs(self, actions: np.ndarray) -> HostStep:
        start = time.perf_counter()
        try:
            return self.envs.step(actions.reshape(-1, self.spec.action_size).astype(np.float32))
        except EnvironmentFailure as failure:
            self._unsaved = "some have made a step in which another one failed"
            # the update of this iteration is on its way, so the iteration counts; where it stands in the replay buffer,
            # the transition before it will stand once more
            self.step += 1
            raise self._name(failure, self.step * self.schedule.envs) from failure.__cause__
        finally:
            self.seconds_stepping += time.perf_counter() - start

    def _name(self, failure: EnvironmentFailure, step: int) -> EnvironmentFailure:
        when = f"reset after step {step:,}" if failure.when.startswith("reset") else f"step {step:,}"
        return _name_member(failure, self.members, self.schedule.envs, "environment {}, " + when)

    def learn_only(self, iterations: int) -> None:
        """Make the updates of some iterations without an environment step, to measure what the device can do."""
        packed = self._upload(self._packed)
        for _ in range(iterations):
            self._update(packed)

    def _upload(self, array: np.ndarray) -> Any:
        """Put an array with a leading member axis onto the device, or onto each device its part."""
        if self.mesh is None:
            return jax.device_put(array)
        parts = zip(split(array, self.mesh), self.mesh.devices.flat, strict=True)
        return Parts(jax.device_put(part, device) for part, device in parts)

    def _launch(self, packed: Any) -> Callable[[], object]:
        """Dispatch the update, not to be awaited; the function that is returned waits until it is dispatched."""
        if self._launcher is None:
            self._update(packed)
            return _nothing
        return self._launcher.submit(self._update, packed).result

    def _update(self, packed: Any) -> None:
        """Put the last transition into the replay buffer and learn, on the device, while the environments step."""
        learning, mesh, frozen = self.schedule.learns(self.step), self.mesh, split(self.health.mask, self.mesh)
        if self._watches:
            self._state = on_each(
                mesh, programs.watch, self._layout, self._context, self._state, packed, self._clock, frozen
            )
        if self._host_ring is not None:
            self._learn_from_host(learning)
        elif learning:
            found = on_each(
                mesh,
                programs.learn,
                self._layout,
                self._context,
                self._state,
                self._ring,
                packed,
                self._clock,
                frozen,
                self._dataset,
            )
            self._state, self._ring, self._clock, self._noise = results(mesh, found)
        else:
            found = on_each(mesh, programs.remember, self._layout, self._context, self._ring, packed, self._clock)
            self._ring, self._clock, self._noise = results(mesh, found)

    def _learn_from_host(self, learning: bool) -> None:
        """Learn from a replay buffer in host memory: draw the rows that the device would draw, and send them up."""
        ring, envs = self._host_ring, self.schedule.envs
        assert ring is not None
        if self.step > 0:
            start = (self.step - 1) * envs % self.schedule.capacity
            ring[:, start : start + envs] = self._packed[..., : row_size(self.spec)]
        positions, clock, mesh = self._positions, self._clock, self.mesh
        rows = self._rows(positions) if learning else None
        # before the update, so that what the next step draws is here by then
        found = on_each(mesh, programs.tick_and_draw, self._layout, self._context, clock, self._dataset_size)
        self._clock, self._noise, self._positions = results(mesh, found)
        if rows is not None:
            given = split(rows, mesh), positions, clock, split(self.health.mask, mesh)
            self._state = on_each(mesh, programs.learn_from_rows, self._layout, self._context, self._state, *given)

    def _rows(self, positions: Any) -> np.ndarray:
        """Rows of the ring in host memory, or of the dataset behind it, by member and position."""
        ring, dataset, drawn = self._host_ring, self._host_dataset, download(positions)
        assert ring is not None
        if dataset is None:
            return np.stack([mine[at] for mine, at in zip(ring, drawn, strict=True)])
        offline = drawn >= ring.shape[1]
        rows = np.stack([mine[at] for mine, at in zip(ring, np.where(offline, 0, drawn), strict=True)])
        rows[offline] = dataset[drawn[offline] - ring.shape[1]]
        return rows

    def _set_clock(self, step: int) -> None:
        """Put the counter on the device, with what is drawn before an observation is known."""
        mesh, before = self.mesh, (self._layout, self._context)
        self._clock, self._noise = results(mesh, on_each(mesh, programs.start, *before, np.int32(step)))
        if self._host_ring is not None:
            self._positions = on_each(mesh, programs.learning_positions, *before, self._clock, self._dataset_size)

    def _refresh(self) -> None:
        stored, mesh, frozen = np.int32(self.stored), self.mesh, split(self.health.mask, self.mesh)
        before = self._layout, self._context
        if self._host_ring is None:
            self._state = on_each(mesh, programs.refresh, *before, self._state, self._ring, stored, frozen)
        else:
            rows = split(self._rows(on_each(mesh, programs.window_positions, *before, stored)), mesh)
            self._state = on_each(mesh, programs.refresh_from_rows, *before, self._state, rows, stored, frozen)

    def _pack(self, actions: np.ndarray, now: HostStep) -> None:
        n, a = self.spec.obs_size, self.spec.action_size
        packed = self._packed = np.empty_like(self._packed)  # the last one may still be on its way up
        packed[..., :n] = self._obs
        packed[..., n : n + a] = actions
        packed[..., n + a] = self._by_member(now.reward)
        packed[..., n + a + 1] = self._by_member(now.terminated)
        packed[..., n + a + 2] = self._by_member(now.truncated)
        packed[..., n + a + 3 : 2 * n + a + 3] = self._by_member(now.next_obs)
        self._obs = self._by_member(now.obs)
        packed[..., 2 * n + a + 3 :] = self._obs
        if not np.isfinite(packed).all():
            self._check_rows(packed)

    def _check_rows(self, packed: np.ndarray) -> None:
        """Freeze members whose environment gave a number that is not finite, and keep it out of the replay buffer."""
        step, n, a = (self.step + 1) * self.schedule.envs, self.spec.obs_size, self.spec.action_size
        parts = {"action": slice(n, n + a), "reward": slice(n + a, n + a + 1), "observation": slice(n + a + 3, None)}
        for index in np.flatnonzero(~np.isfinite(packed).all(axis=(1, 2))):
            if int(index) not in self.health.failures:
                name, where = next((k, v) for k, v in parts.items() if not np.isfinite(packed[index][:, v]).all())
                values = packed[index][:, where]
                bad = values[~np.isfinite(values)][0]
                self.health.freeze(int(index), step, f"the {name} of step {step} must be finite; got {bad}")
        np.nan_to_num(packed, copy=False, posinf=0, neginf=0)
        np.nan_to_num(self._obs, copy=False, posinf=0, neginf=0)

    def _check_observations(self, obs: np.ndarray) -> None:
        for index in np.flatnonzero(~np.isfinite(obs).all(axis=(1, 2))):
            step = self.step * self.schedule.envs
            self.health.freeze(int(index), step, "the first observation must be finite")

    def _fill_ring(self, rows: Iterable[tuple[int, np.ndarray]]) -> None:
        ring = np.zeros((len(self.members), self.capacity, row_size(self.spec)), float_dtype())
        lay_out(ring, rows)
        self._host_ring = ring if self.host_replay else None
        self._ring = None if self.host_replay else jnp.asarray(ring) if self.mesh is None else self._upload(ring)

    def extend(
        self, algorithm: AbstractAlgorithm, members: Sequence[Member], schedule: Schedule, *, host_replay: bool = False
    ) -> None:
        super().extend(algorithm, members, schedule, host_replay=host_replay)
        self._place_dataset()
        self._lay_out(self.states)
        self._set_clock(self.step)

    def replace_states(self, states: PyTree) -> None:
        self._state = split(tuple(jax.tree.leaves(states)), self.mesh)

    def snapshot(self) -> dict[str, Array | np.ndarray]:
        tree = self._saved()
        return name_leaves(tree | {"state": copy(tree["state"])})

    def _saved(self, envs: bool = True) -> dict[str, Any]:
        """What `snapshot` saves. The clock and the noise follow from the step and the seeds."""
        saved: dict[str, Any] = {"state": self.states, "packed": self._packed, "obs": np.array(self._obs)}
        if envs and self._unsaved is None and self.envs.unsaved is None:
            try:
                saved["envs"] = self.envs.state()
            except CannotSave as error:  # though a trial had saved them: training goes on, and says so
                self._unsaved = str(error)
                self.health.news.append(f"from step {self.env_steps:,} on {self.inexact}")
        if self._visits is not None:
            saved["visits"] = self._visits.state()
        return saved

    def latest_rows(self, start: int) -> Array | np.ndarray:
        positions = np.arange(start, self.stored) % self.schedule.capacity
        if self._host_ring is not None:
            return self._host_ring[:, positions]
        assert self._ring is not None
        return join(on_each(self.mesh, take_rows, self._ring, positions), self.mesh)

    def restore(self, step: int, arrays: Mapping[str, np.ndarray], rows: Iterable[tuple[int, np.ndarray]]) -> None:
        inside: dict[str, np.ndarray] = {}
        envs: dict[str, np.ndarray] = {}
        for name, array in arrays.items():  # how large an environment's state is, may change from step to step
            (envs if name.startswith(ENVS) else inside)[name.removeprefix(ENVS)] = array
        saved = fill(self._saved(envs=False), inside, "the checkpoint")
        self._fill_ring(rows)
        self.step = step
        self._packed, self._obs = saved["packed"], saved["obs"]
        self._lost = None if envs else "the checkpoint was written without its environments"
        if self.inexact is None:
            try:
                self.envs.restore(envs)
            except CannotSave as error:
                self._lost = str(error)
        if self.inexact is not None:  # the transition that was under way is complete; what follows is a new episode
            self._obs = self._reset(step)
            self._check_observations(self._obs)
            np.nan_to_num(self._obs, copy=False, posinf=0, neginf=0)
            self._packed[..., row_size(self.spec) :] = self._obs
        if self._visits is not None:
            self._visits.restore(saved["visits"])
        states = spread(saved["state"], self.mesh)
        self.replace_states(states)
        self._good = copy(states)
        self._set_clock(step)

    @property
    def inexact(self) -> str | None:
        why = self._unsaved or self.envs.unsaved or self._lost
        return None if why is None else f"its environments begin new episodes when it is resumed ({why})"

    def _reset(self, step: int) -> np.ndarray:
        seeds = [env_seed(m.seed, RESET, step, env) for m in self.members for env in range(self.schedule.envs)]
        try:
            return self._by_member(self.envs.reset(seeds))
        except EnvironmentFailure as failure:
            raise self._name(failure, step * self.schedule.envs) from failure.__cause__

    def _by_member(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(self.members), self.schedule.envs, *values.shape[1:])

    def evaluate_moments(self, moments: Sequence[Moment], episodes: int) -> list[Evaluation]:
        envs = self._evaluation_envs.of_size(len(moments) * len(self.members) * episodes)
        try:
            return evaluate_on_host(envs, moments, self.members, episodes, self._eval_limit)
        except BaseException:
            self._evaluation_envs.close()  # worker processes may be gone
            raise

    def measure(self) -> dict[str, np.ndarray]:
        step, stored, mesh = np.int32(self.step), np.int32(self.stored), self.mesh
        if self._host_ring is None:
            envs, share = self.schedule.envs, self.schedule.offline_share
            values = on_each(
                mesh,
                measure_members,
                split(self._algorithms, mesh),
                split(self.states, mesh),
                self._ring,
                split(self._keys, mesh),
                step,
                stored,
                self.spec,
                envs,
                share,
                self._dataset,
            )
        else:
            before, size = (self._layout, self._context), self._dataset_size
            positions = on_each(mesh, programs.measuring_positions, *before, step, stored, size)
            given = split(self._rows(positions), mesh), positions, step, stored
            values = on_each(mesh, programs.measure_from_rows, *before, self._state, *given)
        return {name: np.asarray(value) for name, value in join(values, mesh).items()}

    def visited(self) -> np.ndarray | None:
        return None if self._visits is None else self._visits.visited.copy()

    def visits(self) -> np.ndarray | None:
        return None if self._visits is None or self._visits.counts is None else self._visits.counts.copy()

    def first_visits(self) -> np.ndarray | None:
        return None if self._visits is None or self._visits.first is None else self._visits.first.copy()

    def wait(self) -> None:
        jax.block_until_ready(self._state)

    def close(self) -> None:
        if self._launcher is not None:
            self._launcher.shutdown()
        self._evaluation_envs.close()
        self.envs.close()


def _nothing() -> None: ...


class _Kept:
    """Environments for evaluations, kept between them: to make some can take longer than an episode."""

    def __init__(self, make_envs: MakeEnvs):
        self._make_envs = make_envs
        self._kept: AbstractHostEnvs | None = None

    def of_size(self, num: int) -> AbstractHostEnvs:
        """Return `num` environments: those of the last evaluation if it had as many, otherwise new ones."""
        if self._kept is None or self._kept.num != num:
            self.close()
            self._kept = self._make_envs(num)
        return self._kept

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _name_member(
    failure: EnvironmentFailure, members: Sequence[Member], per_member: int, where: str
) -> EnvironmentFailure:
    """Say of which member an environment failed; `where` has a place for its number among the member's own."""
    if failure.row is None:
        return failure
    index = failure.row // per_member % len(members)
    whole = f"member {index} ({members[index].label()}), {where.format(failure.row % per_member)}: {failure.what}"
    return EnvironmentFailure(whole, failure.row, failure.when, failure.what)


def evaluate_on_host(
    envs: AbstractHostEnvs, moments: Sequence[Moment], members: Sequence[Member], episodes: int, limit: int
) -> list[Evaluation]:
    """Run episodes of every member at every moment, all stepped together, one per environment.

    Episodes are cut after `limit` steps.
    """
    try:
        return _evaluate(envs, moments, members, episodes, limit)
    except EnvironmentFailure as failure:
        where = "episode {} of an evaluation, " + failure.when
        raise _name_member(failure, members, episodes, where) from failure.__cause__


def _evaluate(
    envs: AbstractHostEnvs, moments: Sequence[Moment], members: Sequence[Member], episodes: int, limit: int
) -> list[Evaluation]:
    shape = (len(moments) * len(members), episodes)
    steps = [moment.step for moment in moments]
    obs = envs.reset([env_seed(m.seed, EVALUATE, s, e) for s in steps for m in members for e in range(episodes)])
    total, length = np.zeros(envs.num), np.zeros(envs.num, np.int64)
    alive, done, said = np.ones(envs.num, bool), np.zeros(envs.num, bool), False
    mesh = mesh_of(moments[0].policies)
    policies = split(_concatenate([moment.policies for moment in moments]), mesh)
    keys = _concatenate([_evaluation_keys(stack_keys(members), np.int32(step)) for step in steps])
    keys = split(spread(keys, mesh), mesh)
    for t in range(min(envs.horizon, limit)):
        if not alive.any():
            break
        # what is not finite shows in the return; the other members' episodes go on
        shaped = np.nan_to_num(obs).reshape(*shape, -1).astype(float_dtype())
        found = on_each(mesh, _act_greedily, policies, split(shaped, mesh), keys, np.int32(t))
        actions = download(found).reshape(envs.num, -1)
        now = envs.step(np.nan_to_num(actions.astype(np.float32)))
        if not np.isfinite(now.next_obs).all():
            total[~np.isfinite(now.next_obs).all(axis=1) & alive] = np.nan
        total += np.where(alive, now.reward, 0)
        length += alive
        if (successes := envs.successes()) is not None:
            done |= alive & successes
            said = True
        alive &= ~(now.terminated | now.truncated)
        obs = now.obs
    columns = (np.split(values.reshape(shape), len(moments)) for values in (total, length, done))
    return [Evaluation(r, n, s if said else None) for r, n, s in zip(*columns, strict=True)]


def _concatenate(trees: Sequence[PyTree]) -> PyTree:
    """Trees with a leading member axis as one."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


@jax.jit
def _evaluation_keys(keys: Key[Array, " member"], step: Int[Array, ""]) -> Key[Array, " member"]:
    return each_member(lambda key, step: stream(key, EVALUATE, step), shared=(1,))(keys, step)


@jax.jit
def _act_greedily(
    policies: PyTree, obs: Float[Array, "member episode obs"], keys: Key[Array, " member"], t: Int[Array, ""]
) -> Float[Array, "member episode action"]:
    """The best guess of every policy; the keys are for policies whose best guess is a sample."""

    def one(policy: AbstractPolicy, obs: Float[Array, "episode obs"], key: PRNGKey, t: Int[Array, ""]):
        episode_keys = jax.random.split(jax.random.fold_in(key, t), obs.shape[0])
        return jax.vmap(lambda o, k: policy.act(o, k, explore=False))(obs, episode_keys)

    return each_member(one, shared=(3,))(policies, obs, keys, t)
