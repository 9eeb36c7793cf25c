"""The maze robots of Gymnasium-Robotics as vector environments on `mujoco.batch`.

    make_maze_robots("PointMaze_UMaze-v3", 30)

A ball (PointMaze) or an ant (AntMaze) starts in one cell of a maze and has to come within 0.45 of a goal in another.
The package's own environment makes the model with the walls, and draws start cells and goals; stepping, observations,
rewards and flags are here, over the rows of a batch. With the same seed and the same actions they are the package's,
bit for bit once rounded to float32.

Observations are laid out flat in the order of the package's dictionary: achieved_goal (x, y), desired_goal (x, y),
observation. The reward of a step is 1 within 0.45 of the goal and otherwise 0, or exp(-distance) where the id says
`Dense`. By default an episode goes on at the goal until its time-out (`continuing_task`), and the goal stays
(`reset_target=False`). An ant that falls over lies there: nothing ends the episode.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.batch import AbstractBatchEnvs, World, measure_forces, quiet_compiler
from dac.envs.bounds import ActionBounds
from dac.envs.checked import find_horizon
from dac.envs.gymnasium import find_environment
from dac.envs.host import (
    HostStep,
    check_actions,
    check_count,
    seed_generators,
    usable_cores,
)
from dac.envs.robotics import is_maze_robot
from dac.envs.robots import Ant

NEAR = 0.45
"""Distance from the goal within which the package calls it reached, in both mazes."""
PARTS = 10
"""A block of the maze's map is so many cells of the visit grid wide: 0.1 in PointMaze, 0.4 in AntMaze."""


class AbstractMazeRobot(abc.ABC):
    """What moves in the maze; its first two coordinates are where it is."""

    forces: bool = False
    """Whether it looks at the external forces on its bodies."""

    @abc.abstractmethod
    def prepare(self, world: World) -> None:
        """Change the world before a step."""

    @abc.abstractmethod
    def observe(self, world: World) -> list[np.ndarray]:
        """Return the parts of what the package calls `observation`, (env, part) each, in order."""


class Ball(AbstractMazeRobot):
    """PointMaze's ball, whose speed is cut before every step."""

    def prepare(self, world: World) -> None:
        np.clip(world["qvel"], -5, 5, out=world["qvel"])

    def observe(self, world: World) -> list[np.ndarray]:
        return [world["qpos"], world["qvel"]]


class MazeAnt(AbstractMazeRobot):
    """AntMaze's ant, which sees what Gymnasium's sees."""

    forces = True

    def prepare(self, world: World) -> None:
        del world

    def observe(self, world: World) -> list[np.ndarray]:
        return Ant().observe(world)


class MazeRobots(AbstractBatchEnvs):
    """Many simulations of one robot in one maze on a pool of threads.

    The visit grid is over the maze's map, `PARTS` cells to a block, indexed [x, y] from its lower left corner.
    """

    def __init__(self, id: str, num: int, *, threads: int | None = None, **arguments: Any):
        """Make `num` environments of an id; `arguments` are those of `gymnasium.make`, such as `continuing_task`."""
        from mujoco.batch import Batch

        if not is_maze_robot(id):
            raise UsageError(f"{id} is not a maze robot: PointMaze_MAP-v3 or AntMaze_MAP-v5 of Gymnasium-Robotics")
        self.num = check_count("num", num)
        threads = min(self.num, usable_cores()) if threads is None else check_count("threads", threads)
        with quiet_compiler():
            made: Any = find_environment(id)(**arguments)
        self._task: Any = made.unwrapped
        self.horizon = find_horizon(made)
        ant = id.startswith("Ant")
        self._robot: AbstractMazeRobot = MazeAnt() if ant else Ball()
        single = self._task.ant_env if ant else self._task.point_env
        self._frame_skip: int = single.frame_skip
        self._start_qpos, self._start_qvel = single.init_qpos.copy(), single.init_qvel.copy()
        self._dense = self._task.reward_type == "dense"
        self.bounds = ActionBounds.of(made.action_space)

        model = single.model
        self._batch: Batch | None = Batch(model, self.num, threads, persistent=self._robot.forces)
        self._world: World = {name: self._batch.bind(name) for name in ("qpos", "qvel", "ctrl")}
        if self._robot.forces:
            self._world["cfrc_ext"] = np.zeros((self.num, model.nbody, 6))
            self._scratch = single.data

        maze = self._task.maze
        blocks = np.array([[block == 1 for block in row] for row in maze.maze_map])
        walls = np.kron(blocks[::-1].T, np.ones((PARTS, PARTS), np.bool_))  # the map's first row is the top
        self.walls, self.cells, self._sides = walls, walls.shape, walls.shape
        self._corner = np.array([maze.x_map_center, maze.y_map_center])
        self._cell = maze.maze_size_scaling / PARTS

        self._generators: list[np.random.Generator] = []
        self._goals = np.zeros((self.num, 2))
        self._visited = np.zeros((self.num, 2))
        self._elapsed = np.zeros(self.num, np.int64)
        self._reached = np.zeros(self.num, np.bool_)
        self._obs = self._observe()
        self.spec = EnvSpec(self._obs.shape[1], model.nu)
        kind = f"achieved_goal 2, desired_goal 2, observation {self.spec.obs_size - 4}"
        self.notes = (f"observations are laid out flat, as {self.spec.obs_size} numbers: {kind}",)

    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        self._open()
        self._generators = seed_generators(seeds, self.num)
        self._begin(np.arange(self.num))
        self._reached[:] = False
        self._visited[:] = self._position()
        return self._obs.copy()

    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        batch, world, task = self._open(), self._world, self._task
        if not self._generators:
            raise UsageError("call reset(seeds) or restore(state) before step(actions)")
        self._robot.prepare(world)
        world["ctrl"][:] = self.bounds.stretch(check_actions(actions, self.num, self.spec.action_size))
        batch.step(nstep=self._frame_skip)
        if self._robot.forces:
            measure_forces(batch, self._scratch, world["cfrc_ext"])

        self._elapsed += 1
        position = self._visited[:] = self._position()
        next_obs = self._observe()
        distance = np.linalg.norm(position - self._goals, axis=-1)
        reached = self._reached[:] = distance <= NEAR
        reward = np.exp(-distance) if self._dense else reached
        terminated = np.zeros(self.num, np.bool_) if task.continuing_task else reached.copy()
        truncated = ~terminated & (self._elapsed >= self.horizon)
        if task.continuing_task and task.reset_target:
            self._move_goals(np.flatnonzero(reached))
        self._obs[:] = next_obs
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            self._begin(over)
        return HostStep(next_obs, reward.astype(np.float32), terminated, truncated, self._obs.copy())

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        width, height = self._sides
        x, y = np.floor((self._visited + self._corner) / self._cell).astype(np.int64).T
        return np.where((x >= 0) & (x < width) & (y >= 0) & (y < height), x * height + y, -1)

    def successes(self) -> Bool[np.ndarray, " env"]:
        return self._reached.copy()

    def close(self) -> None:
        if self._batch is not None:
            self._task.close()
        self._batch = None
        self._world = {}

    def _counters(self) -> dict[str, np.ndarray]:
        return {
            "goals": self._goals,
            "visited": self._visited,
            "elapsed": self._elapsed,
            "reached": self._reached,
            "obs": self._obs,
        }

    def _position(self) -> Float64[np.ndarray, "env 2"]:
        return self._world["qpos"][:, :2].copy()

    def _observe(self) -> Float32[np.ndarray, "env obs"]:
        parts = [self._world["qpos"][:, :2], self._goals, *self._robot.observe(self._world)]
        return np.concatenate(parts, axis=1, dtype=np.float32, casting="same_kind")

    def _begin(self, rows: np.ndarray) -> None:
        """Start new episodes in some rows, where the package's own environment draws that they start."""
        import mujoco
        from gymnasium_robotics.envs.maze.maze_v4 import MazeEnv

        batch, world = self._open(), self._world
        batch.reset(rows, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for row in rows:
            self._task.np_random = self._generators[row]
            MazeEnv.reset(self._task)  # draws the goal, then the start, and moves nothing
            self._goals[row] = self._task.goal
            world["qpos"][row] = self._start_qpos
            world["qpos"][row, :2] = self._task.reset_pos
            world["qvel"][row] = self._start_qvel
        batch.forward(rows)
        if self._robot.forces:
            world["cfrc_ext"][rows] = 0.0  # as after Gymnasium's reset, which does not compute them
        self._elapsed[rows] = 0
        self._obs[rows] = self._observe()[rows]

    def _move_goals(self, rows: np.ndarray) -> None:
        """Draw other goals where one was reached; they are seen from the next step on, as in the package."""
        for row in rows:
            self._task.np_random, self._task.goal = self._generators[row], self._goals[row].copy()
            self._task.update_goal(self._visited[row])
            self._goals[row] = self._task.goal


def make_maze_robots(id: str, num: int, *, threads: int | None = None, **arguments: Any) -> MazeRobots:
    """Make vector environments of an id of Gymnasium-Robotics: `make_maze_robots("AntMaze_UMaze-v5", 30)`."""
    return MazeRobots(id, num, threads=threads, **arguments)
