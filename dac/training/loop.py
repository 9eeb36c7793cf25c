"""What a run may ask of a training loop."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm
from dac.core.population import Member, stack_algorithms
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec
from dac.training.devices import join, on_each, split, spread
from dac.training.evaluate import Evaluation, Moment
from dac.training.health import Health, copy, find_broken, keep
from dac.training.step import metric_names, policies_of


class AbstractLoop(abc.ABC):
    """A population in training. `step` counts iterations."""

    members: Sequence[Member]
    schedule: Schedule
    spec: EnvSpec
    step: int
    _algorithms: AbstractAlgorithm
    """Stacked over members, as all that follows."""
    _keys: Key[Array, " member"]
    health: Health
    mesh: Mesh | None = None
    """The devices over which the members are spread, or None where one device has them all."""
    notes: Sequence[str] = ()
    """What a person should know of the environments."""
    cut_at: int | None = None
    """Steps after which an evaluation cuts an episode that its environment would let go on."""
    grid: tuple[int, ...] | None = None
    """Shape of the grid in which visited states are counted, or None."""
    walls: np.ndarray | None = None
    """Mask of its cells that cannot be entered, where that is known."""
    seconds_stepping: float = 0.0
    """Time in which environments on the host were stepped."""
    host_replay: bool = False
    """Whether the replay buffer is in host memory and not on the device."""
    stopping: bool = False
    """Whether `advance` is to return as soon as a step is complete."""
    evaluations_at_once: int = 1
    """How many evaluations wait for each other, so that their episodes run together."""
    _good: PyTree
    """The states at the last check that found them finite."""

    def ask_to_stop(self) -> None:
        """Have `advance` return as soon as a step is complete; safe to call from a signal handler."""
        self.stopping = True

    @property
    def env_steps(self) -> int:
        """Environment steps per member so far."""
        return self.step * self.schedule.envs

    @property
    def stored(self) -> int:
        """Transitions ever put into the replay buffer: all but the last, which waits for the next step."""
        return max(self.step - 1, 0) * self.schedule.envs

    @property
    def capacity(self) -> int:
        """Transitions that the replay buffer of one member holds."""
        return self.schedule.capacity

    @abc.abstractmethod
    def advance(self, until: int) -> None:
        """Train up to iteration `until`, or less if it is asked to stop."""

    def moment(self) -> Moment:
        """Copy the policies as they are now, for an evaluation that may run later."""
        return Moment(self.copy_policies(), self.step)

    def evaluate(self, episodes: int) -> Evaluation:
        """Run episodes without exploration; training is not touched."""
        return self.evaluate_moments([self.moment()], episodes)[0]

    @abc.abstractmethod
    def evaluate_moments(self, moments: Sequence[Moment], episodes: int) -> list[Evaluation]:
        """Run episodes without exploration with the policies of several steps."""

    @abc.abstractmethod
    def measure(self) -> dict[str, np.ndarray]:
        """Measure the algorithm's own metrics now, one value per member."""

    @property
    @abc.abstractmethod
    def states(self) -> PyTree:
        """The algorithm's states, stacked over members."""

    @abc.abstractmethod
    def replace_states(self, states: PyTree) -> None:
        """Continue with other states."""

    def _check_health(self) -> None:
        """Put members whose state is no longer finite back to the last good one, and freeze them."""
        broken = {k: name for k, name in find_broken(self.states).items() if k not in self.health.failures}
        if not broken:
            self._good = copy(self.states)
            return
        for index, name in broken.items():
            self.health.freeze(index, self.step * self.schedule.envs, f"{name} is not finite")
        mask = np.isin(np.arange(len(self.members)), list(broken))
        self.replace_states(keep(jnp.asarray(mask), self._good, self.states))

    def extend(
        self, algorithm: AbstractAlgorithm, members: Sequence[Member], schedule: Schedule, *, host_replay: bool = False
    ) -> None:
        """Go on under a schedule with more steps, which may ask for a larger replay buffer.

        The members are the same; a hyperparameter that follows the number of steps may have another value.
        """
        rows = None
        if (schedule.capacity, host_replay) != (self.capacity, self.host_replay):
            start = max(0, self.stored - self.capacity)
            rows = start, np.asarray(self.latest_rows(start))
        self.schedule, self.members, self.host_replay = schedule, list(members), host_replay
        self.health.members = self.members
        self._algorithms = spread(stack_algorithms(algorithm, members), self.mesh)
        if rows is not None:
            self._fill_ring([rows])

    @abc.abstractmethod
    def _fill_ring(self, rows: Iterable[tuple[int, np.ndarray]]) -> None:
        """Make a new replay buffer, as large as the schedule asks for, of pieces of the old one."""

    @abc.abstractmethod
    def snapshot(self) -> dict[str, Array | np.ndarray]:
        """Copy everything the future depends on, by name, except the replay buffer and `step`."""

    @abc.abstractmethod
    def latest_rows(self, start: int) -> Array | np.ndarray:
        """Copy the rows from the `start`-th ever stored to the latest, with axes (member, row number, row)."""

    @abc.abstractmethod
    def restore(self, step: int, arrays: Mapping[str, np.ndarray], rows: Iterable[tuple[int, np.ndarray]]) -> None:
        """Continue from `snapshot()` and pieces of the replay buffer, each with the number of its first row."""

    @property
    def inexact(self) -> str | None:
        """Why a restored run is not the same run, to the bit, or None where it is."""
        return None

    def metric_names(self) -> list[str]:
        """The keys of `measure`, known before anything was measured."""
        return metric_names(self._algorithms, self.states, self._keys, self.spec)

    def policies(self) -> PyTree:
        """The policies, stacked over members."""
        mesh = self.mesh
        parts = on_each(mesh, policies_of, split(self._algorithms, mesh), split(self.states, mesh))
        return join(parts, mesh)

    def copy_policies(self) -> PyTree:
        """Copy the policies, which then survive the next update."""
        return copy(self.policies())

    @abc.abstractmethod
    def visited(self) -> np.ndarray | None:
        """Number of distinct cells entered, per member, or None where the task has no grid."""

    @abc.abstractmethod
    def visits(self) -> np.ndarray | None:
        """How often each cell was entered, (member, cell), or None where that is not counted."""

    @abc.abstractmethod
    def first_visits(self) -> np.ndarray | None:
        """Environment step of the first entry into each cell, -1 for never, or None."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Return when all dispatched work is done."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release environments and memory."""


def lay_out(ring: np.ndarray, rows: Iterable[tuple[int, np.ndarray]]) -> None:
    """Put pieces of a replay buffer, each with its first row's number, where a buffer of this capacity has them."""
    for start, piece in rows:  # in order, so that of a ring that was larger the latest rows remain
        numbers = start + np.arange(piece.shape[1])
        ring[:, numbers[-ring.shape[1] :] % ring.shape[1]] = piece[:, -ring.shape[1] :]


def waiting_rows(arrays: Mapping[str, np.ndarray], size: int) -> np.ndarray:
    """The latest transitions in a snapshot, (member, env, row): they go into the replay buffer at the next step."""
    return (arrays["pending"] if "pending" in arrays else arrays["packed"])[..., :size]


@jax.jit
def take_rows(
    ring: Float[Array, "member capacity row"], positions: Int[Array, " some"]
) -> Float[Array, "member some row"]:
    """Copy rows of every member's replay buffer."""
    return ring[:, positions]
