"""The MuJoCo tasks of Section 6, Han & Sung 2021, as vector environments on `mujoco.batch`.

A robot is Gymnasium's v5 environment of that name, written over the rows of a batch: with the same seed and the same
actions, observations, rewards and terminations are Gymnasium's, bit for bit once rounded to float32. A task is a robot
and one of three rewards:

    Dense()             the robot's own reward
    Sparse(threshold)   1 for every step that ends with x - x_init > threshold, otherwise 0
    Delayed(delay)      the dense reward, kept back and paid every `delay` steps and at the end of the episode

x_init is the model's initial x, not the noisy one an episode starts from. The paper's sparse tasks end an episode as
the v1 environments did, and v5 ends it on the same states:

    Hopper        z > 0.7, |angle| < 0.2, |every other coordinate and velocity| < 100    (v1 also asks for a finite x)
    Walker2d      0.8 < z < 2, |angle| < 1
    Ant           0.2 <= z <= 1, everything finite
    HalfCheetah   never          HumanoidStandup   never

The one difference, Hopper's x, has no effect: MuJoCo puts a simulation with a non-finite coordinate back to its start
before a state like that can be seen. So one condition per robot serves every reward. All other differences from v1
are listed in docs/tasks.md.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib.resources
import math
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds
from dac.envs.host import (
    AbstractHostEnvs,
    HostStep,
    check_actions,
    check_count,
    check_state,
    pack_generators,
    seed_generators,
    unpack_generators,
    usable_cores,
)

HORIZON = 1000
GRID_RADIUS = 10.0
CELL = 0.01
GRID_SIDE = 2000

World: TypeAlias = dict[str, np.ndarray]
"""Rows of MuJoCo's fields by name, one row per environment: qpos, qvel, ctrl and the robot's own `fields`."""


class Move(NamedTuple):
    """How a step was made: the speed forward, the action in MuJoCo's units, and where the robot is still healthy."""

    speed: Float64[np.ndarray, " env"]
    action: Float32[np.ndarray, "env action"]
    healthy: Bool[np.ndarray, " env"]
    timestep: float


class AbstractRobot(abc.ABC):
    """A v5 environment of Gymnasium: how its model starts, what it observes, what it earns and when it falls."""

    xml_file: ClassVar[str]
    frame_skip: ClassVar[int]
    noise: ClassVar[float]
    """Scale of the noise around the initial state."""
    normal_velocity: ClassVar[bool] = False
    """Whether initial velocities are drawn from a normal distribution instead of a uniform one."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Fields that MuJoCo computes from the state and the robot looks at."""
    forces: ClassVar[bool] = False
    """Whether the robot looks at `cfrc_ext`, the external forces on its bodies."""

    @abc.abstractmethod
    def observe(self, world: World) -> list[np.ndarray]:
        """Return the parts of the observations, (env, part) each, in order."""

    @abc.abstractmethod
    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        """Return the dense rewards of a move that led to this world."""

    def forward(self, world: World) -> Float64[np.ndarray, " env"]:
        """Return the coordinate whose change over a step, divided by its duration, is `speed`."""
        return world["qpos"][:, 0]

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        """Return a mask of the environments whose episode goes on: the robot has not fallen."""
        return np.ones(len(world["qpos"]), np.bool_)


def _squared(action: np.ndarray) -> np.ndarray:
    """Sum the squares in the type of the action: float32, in which Gymnasium computes control costs too."""
    return np.square(action).sum(axis=-1)


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


@dataclasses.dataclass(frozen=True)
class HalfCheetah(AbstractRobot):
    """Two legs and a long back in a plane; it cannot fall."""

    xml_file = "half_cheetah.xml"
    frame_skip = 5
    noise = 0.1
    normal_velocity = True

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], world["qvel"]]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed - 0.1 * _squared(move.action)


@dataclasses.dataclass(frozen=True)
class Hopper(AbstractRobot):
    """One leg in a plane."""

    xml_file = "hopper.xml"
    frame_skip = 4
    noise = 5e-3

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], np.clip(world["qvel"], -10, 10)]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed + move.healthy - 1e-3 * _squared(move.action)

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        qpos, qvel = world["qpos"], world["qvel"]
        upright = (qpos[:, 1] > 0.7) & (qpos[:, 1] < np.inf) & (np.abs(qpos[:, 2]) < 0.2)
        return upright & (np.abs(qpos[:, 3:]) < 100).all(axis=1) & (np.abs(qvel) < 100).all(axis=1)


@dataclasses.dataclass(frozen=True)
class Walker2d(AbstractRobot):
    """Two legs in a plane."""

    xml_file = "walker2d_v5.xml"
    frame_skip = 4
    noise = 5e-3

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 1:], np.clip(world["qvel"], -10, 10)]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        return move.speed + move.healthy - 1e-3 * _squared(move.action)

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        height, angle = world["qpos"][:, 1], world["qpos"][:, 2]
        return (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)


@dataclasses.dataclass(frozen=True)
class Ant(AbstractRobot):
    """Four legs in space."""

    xml_file = "ant.xml"
    frame_skip = 5
    noise = 0.1
    normal_velocity = True
    fields = ("xpos",)
    forces = True

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"][:, 2:], world["qvel"], _flat(np.clip(world["cfrc_ext"][:, 1:], -1, 1))]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        contact = np.square(_flat(np.clip(world["cfrc_ext"], -1, 1))).sum(axis=1)
        return move.speed + move.healthy - (0.5 * _squared(move.action) + 5e-4 * contact)

    def forward(self, world: World) -> Float64[np.ndarray, " env"]:
        # Gymnasium measures Ant's speed by the torso's frame, which MuJoCo leaves one substep behind the coordinates
        return world["xpos"][:, 1, 0]

    def healthy(self, world: World) -> Bool[np.ndarray, " env"]:
        qpos, qvel = world["qpos"], world["qvel"]
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1)
        return finite & (qpos[:, 2] >= 0.2) & (qpos[:, 2] <= 1.0)


@dataclasses.dataclass(frozen=True)
class HumanoidStandup(AbstractRobot):
    """A humanoid that lies on its back and earns the height of its torso."""

    xml_file = "humanoidstandup.xml"
    frame_skip = 5
    noise = 1e-2
    fields = ("cinert", "cvel", "qfrc_actuator")
    forces = True

    def observe(self, world: World) -> list[np.ndarray]:
        bodies = [_flat(world[name][:, 1:]) for name in ("cinert", "cvel")]
        forces = [world["qfrc_actuator"][:, 6:], _flat(world["cfrc_ext"][:, 1:])]
        return [world["qpos"][:, 2:], world["qvel"], *bodies, *forces]

    def earn(self, world: World, move: Move) -> Float64[np.ndarray, " env"]:
        impact = np.minimum(5e-7 * np.square(_flat(world["cfrc_ext"])).sum(axis=1), 10.0)
        return world["qpos"][:, 2] / move.timestep - 0.1 * _squared(world["ctrl"]) - impact + 1


ROBOTS: dict[str, AbstractRobot] = {
    "HalfCheetah": HalfCheetah(),
    "Hopper": Hopper(),
    "Walker2d": Walker2d(),
    "Ant": Ant(),
    "HumanoidStandup": HumanoidStandup(),
}


@dataclasses.dataclass(frozen=True)
class Dense:
    """The robot's own reward."""


@dataclasses.dataclass(frozen=True)
class Sparse:
    """1 for every step that ends more than `threshold` beyond the model's initial x, otherwise 0."""

    threshold: float

    def __post_init__(self) -> None:
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float | np.number):
            raise UsageError(f"threshold must be a finite number; got {self.threshold!r}")
        if not math.isfinite(self.threshold):
            raise UsageError(f"threshold must be a finite number; got {self.threshold!r}")


@dataclasses.dataclass(frozen=True)
class Delayed:
    """The dense reward, paid in sums: every `delay` steps of an episode, and what is left when the episode ends.

    The authors' code pays every 20 steps and at a termination; paying at a time-out as well makes the rewards of an
    episode add up to its dense return.
    """

    delay: int = 20

    def __post_init__(self) -> None:
        check_count("delay", self.delay)


Reward: TypeAlias = Dense | Sparse | Delayed


@dataclasses.dataclass(frozen=True)
class Variant:
    """A robot and what it is paid for."""

    robot: str
    reward: Reward


VARIANTS: dict[str, Variant] = {
    **{robot: Variant(robot, Dense()) for robot in ROBOTS},
    "SparseHalfCheetah": Variant("HalfCheetah", Sparse(5.0)),
    "SparseHopper": Variant("Hopper", Sparse(1.0)),
    "SparseWalker2d": Variant("Walker2d", Sparse(1.0)),
    "SparseAnt": Variant("Ant", Sparse(1.0)),
    "DelayedHalfCheetah": Variant("HalfCheetah", Delayed()),
    "DelayedHopper": Variant("Hopper", Delayed()),
    "DelayedWalker2d": Variant("Walker2d", Delayed()),
    "DelayedAnt": Variant("Ant", Delayed()),
}


def find_variant(name: str, *, threshold: float | None = None, delay: int | None = None) -> Variant:
    """Return the variant of that name, with another threshold or delay where one is given."""
    if name not in VARIANTS:
        raise UsageError(f"unknown MuJoCo task {name!r}; known: {', '.join(VARIANTS)}")
    variant = VARIANTS[name]
    if threshold is not None:
        if not isinstance(variant.reward, Sparse):
            raise UsageError(f"{name} has no threshold; only the Sparse tasks do")
        variant = Variant(variant.robot, Sparse(threshold))
    if delay is not None:
        if not isinstance(variant.reward, Delayed):
            raise UsageError(f"{name} has no delay; only the Delayed tasks do")
        variant = Variant(variant.robot, Delayed(delay))
    return variant


@contextlib.contextmanager
def quiet_compiler() -> Iterator[None]:
    """Turn messages of MuJoCo's compiler into Python warnings, except a known one about Gymnasium's models."""
    import mujoco

    messages: list[str] = []
    previous = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(messages.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(previous)
    for message in messages:
        if "settotalmass" not in message:  # HalfCheetah's; MuJoCo 4 would print it, and log it to a file, every time
            warnings.warn(message, stacklevel=3)


def load_model(xml_file: str) -> Any:
    """Compile one of Gymnasium's models, or the one at a path that starts with `.`, `/` or `~`."""
    import mujoco

    assets = importlib.resources.files("gymnasium") / "envs" / "mujoco" / "assets"
    own = xml_file.startswith((".", "/", "~"))
    path = pathlib.Path(xml_file).expanduser() if own else pathlib.Path(str(assets / xml_file))
    if not path.is_file():
        raise UsageError(f"no MuJoCo model {xml_file!r}; give the name of one of Gymnasium's or a path to a file")
    with quiet_compiler():
        return mujoco.MjModel.from_xml_path(str(path))


def grid_cells(position: Float64[np.ndarray, "env 2"]) -> Int64[np.ndarray, " env"]:
    """Return flat indices of points among 2000 x 2000 cells of side 0.01 over (-10, 10), or -1 outside."""
    inside = (np.abs(position) < GRID_RADIUS).all(axis=1)
    corner = np.floor((np.where(inside[:, None], position, 0.0) + GRID_RADIUS) / CELL).astype(np.int64)
    corner = np.minimum(corner, GRID_SIDE - 1)  # rounding may carry the last number below 10 over the edge
    return np.where(inside, corner[:, 0] * GRID_SIDE + corner[:, 1], -1)


def measure_forces(batch: Any, data: Any, forces: Float64[np.ndarray, "env body 6"]) -> None:
    """Compute `cfrc_ext` as Gymnasium does after a step: MuJoCo leaves it out where no sensor asks for it.

    `data` is an MjData of the batch's model to work in.
    """
    import mujoco

    for row in range(len(forces)):
        batch.get_data(row, data)
        mujoco.mj_rnePostConstraint(batch.model, data)
        forces[row] = data.cfrc_ext


class MujocoEnvs(AbstractHostEnvs):
    """Many simulations of one robot on a pool of threads.

    The visit grid is over the robot's first two coordinates: (x, y) for Ant and HumanoidStandup, (x, z) for the others.
    """

    def __init__(
        self,
        robot: str,
        num: int,
        reward: Reward | None = None,
        *,
        horizon: int = HORIZON,
        threads: int | None = None,
        xml_file: str | None = None,
    ):
        # imported here so that the names of the tasks can be read without loading the simulator
        from mujoco.batch import Batch

        if robot not in ROBOTS:
            raise UsageError(f"unknown robot {robot!r}; known: {', '.join(ROBOTS)}")
        self.robot = ROBOTS[robot]
        self.reward: Reward = Dense() if reward is None else reward
        if not isinstance(self.reward, Dense | Sparse | Delayed):
            raise UsageError(f"reward must be Dense(), Sparse(threshold) or Delayed(delay); got {reward!r}")
        self.num = check_count("num", num)
        self.horizon = check_count("horizon", horizon)
        self.cells = (GRID_SIDE, GRID_SIDE)
        threads = min(self.num, usable_cores()) if threads is None else check_count("threads", threads)

        model = load_model(self.robot.xml_file if xml_file is None else xml_file)
        bounds = model.actuator_ctrlrange.astype(np.float32)
        self._middle = bounds.mean(axis=1)
        self._reach = (bounds[:, 1] - bounds[:, 0]) / 2
        if not (self._reach > 0).all():
            raise UsageError(f"every actuator of {xml_file!r} needs a control range")
        self.bounds = ActionBounds(bounds[:, 0], bounds[:, 1], bounds.dtype, (model.nu,))
        self._duration = model.opt.timestep * self.robot.frame_skip
        self._start_qpos, self._start_qvel = model.qpos0.copy(), np.zeros(model.nv)

        # External forces come from contacts, which a batch does not give out; a persistent one keeps them per
        # simulation, to be copied out whole (`_measure_forces`).
        self._model = model
        self._batch: Batch | None = Batch(model, self.num, threads, persistent=self.robot.forces)
        self._world: World = {name: self._batch.bind(name) for name in ("qpos", "qvel", "ctrl", *self.robot.fields)}
        if self.robot.forces:
            import mujoco

            self._world["cfrc_ext"] = np.zeros((self.num, model.nbody, 6))
            self._scratch = mujoco.MjData(model)

        self._generators: list[np.random.Generator] = []
        self._forward = np.zeros(self.num)
        self._visited = np.zeros((self.num, 2))
        self._elapsed = np.zeros(self.num, np.int64)
        self._unpaid = np.zeros(self.num)
        obs_size = sum(part.shape[1] for part in self.robot.observe(self._world))
        self._obs = np.zeros((self.num, obs_size), np.float32)
        self.spec = EnvSpec(obs_size=obs_size, action_size=model.nu)

    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        self._open()
        self._generators = seed_generators(seeds, self.num)
        self._begin(np.arange(self.num))
        self._visited[:] = self._world["qpos"][:, :2]
        return self._obs.copy()

    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        batch, world = self._open(), self._world
        if not self._generators:
            raise UsageError("call reset(seeds) or restore(state) before step(actions)")
        action = self._middle + self._reach * check_actions(actions, self.num, self.spec.action_size)
        world["ctrl"][:] = action
        batch.step(nstep=self.robot.frame_skip)
        if self.robot.forces:
            measure_forces(batch, self._scratch, world["cfrc_ext"])

        self._elapsed += 1
        healthy = self.robot.healthy(world)
        terminated = ~healthy
        truncated = healthy & (self._elapsed >= self.horizon)
        over = terminated | truncated
        reward = self._earn(action, healthy, over)
        self._visited[:] = world["qpos"][:, :2]
        next_obs = self._observe(world)
        self._obs[:] = next_obs
        if over.any():
            self._begin(np.flatnonzero(over))
        return HostStep(next_obs, reward.astype(np.float32), terminated, truncated, self._obs.copy())

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        self._begin(rows)
        return self._obs[rows]

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        return grid_cells(self._visited)

    def state(self) -> dict[str, np.ndarray]:
        batch = self._open()
        if not self._generators:
            raise UsageError("call reset(seeds) before state()")
        return {"physics": batch.state.copy(), "random": pack_generators(self._generators)} | {
            name: array.copy() for name, array in self._counters().items()
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        batch = self._open()
        random = np.zeros((self.num, 6), np.uint64)
        check_state(state, {"physics": batch.state, "random": random} | self._counters())
        batch.state[:] = state["physics"]
        self._generators = unpack_generators(state["random"])
        for name, array in self._counters().items():
            array[:] = state[name]
        return self._obs.copy()

    def close(self) -> None:
        self._batch = None
        self._world = {}

    def _open(self) -> Any:
        if self._batch is None:
            raise UsageError("these environments are closed")
        return self._batch

    def _counters(self) -> dict[str, np.ndarray]:
        """Return what the future depends on besides the simulations and the generators."""
        return {
            "forward": self._forward,
            "visited": self._visited,
            "elapsed": self._elapsed,
            "unpaid": self._unpaid,
            "obs": self._obs,
        }

    def _earn(self, action: np.ndarray, healthy: np.ndarray, over: np.ndarray) -> np.ndarray:
        """Return the rewards of the step just made, made sparse or delayed as the task asks."""
        if isinstance(self.reward, Sparse):
            return self._world["qpos"][:, 0] - self._start_qpos[0] > self.reward.threshold
        forward = self.robot.forward(self._world).copy()
        speed = (forward - self._forward) / self._duration
        self._forward[:] = forward
        reward = self.robot.earn(self._world, Move(speed, action, healthy, self._model.opt.timestep))
        if isinstance(self.reward, Dense):
            return reward
        self._unpaid += reward
        due = over | (self._elapsed % self.reward.delay == 0)
        paid = np.where(due, self._unpaid, 0.0)
        self._unpaid[due] = 0.0
        return paid

    def _observe(self, world: World) -> Float32[np.ndarray, "env obs"]:
        obs = np.empty((len(world["qpos"]), self.spec.obs_size), np.float32)
        return np.concatenate(self.robot.observe(world), axis=1, out=obs, casting="same_kind")

    def _begin(self, rows: np.ndarray) -> None:
        """Start new episodes in some rows, with Gymnasium's draws in Gymnasium's order."""
        import mujoco

        batch, world, noise = self._open(), self._world, self.robot.noise
        batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for row in rows:
            generator = self._generators[row]
            world["qpos"][row] = self._start_qpos + generator.uniform(-noise, noise, len(self._start_qpos))
            if self.robot.normal_velocity:
                velocity = noise * generator.standard_normal(len(self._start_qvel))
            else:
                velocity = generator.uniform(-noise, noise, len(self._start_qvel))
            world["qvel"][row] = self._start_qvel + velocity
        batch.forward(rows)
        if self.robot.forces:
            world["cfrc_ext"][rows] = 0.0  # as after Gymnasium's reset, which does not compute them
        self._elapsed[rows] = 0
        self._unpaid[rows] = 0.0
        self._forward[rows] = self.robot.forward(world)[rows]
        self._obs[rows] = self._observe({name: array[rows] for name, array in world.items()})


def make_mujoco(
    task: str,
    num: int,
    *,
    threshold: float | None = None,
    delay: int | None = None,
    horizon: int = HORIZON,
    threads: int | None = None,
    xml_file: str | None = None,
) -> MujocoEnvs:
    """Make vector environments of a task by name: `make_mujoco("SparseHopper", 30)`."""
    found = find_variant(task, threshold=threshold, delay=delay)
    return MujocoEnvs(found.robot, num, found.reward, horizon=horizon, threads=threads, xml_file=xml_file)
