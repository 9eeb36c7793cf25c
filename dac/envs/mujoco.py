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

import importlib.resources
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.batch import AbstractBatchEnvs, World, measure_forces, quiet_compiler
from dac.envs.bounds import ActionBounds
from dac.envs.host import HostStep, check_actions, check_count, seed_generators, usable_cores
from dac.envs.robots import ROBOTS, Move
from dac.envs.variants import Delayed, Dense, Reward, Sparse, find_variant

HORIZON = 1000
GRID_RADIUS = 10.0
CELL = 0.01
GRID_SIDE = 2000


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


class MujocoEnvs(AbstractBatchEnvs):
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

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        return grid_cells(self._visited)

    def close(self) -> None:
        self._batch = None
        self._world = {}

    def _counters(self) -> dict[str, np.ndarray]:
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
