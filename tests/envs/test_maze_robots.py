"""The maze robots on `mujoco.batch` against Gymnasium-Robotics' own environments."""

from __future__ import annotations

import io

import numpy as np
import pytest

import dac
from dac.core.types import UsageError
from dac.envs.gymnasium import find_environment
from dac.envs.host import HostStep
from dac.envs.maze_robots import NEAR, MazeRobots, make_maze_robots

MAPS = ["UMaze", "Open", "Open_Diverse_G", "Open_Diverse_GR", "Medium", "Medium_Diverse_G", "Medium_Diverse_GR"]
MAPS += ["Large", "Large_Diverse_G", "Large_Diverse_GR"]
IDS = [f"PointMaze_{of}{reward}-v3" for of in MAPS for reward in ("", "Dense")]
IDS += [id.replace("Point", "Ant").replace("v3", "v5") for id in IDS]
CASES = [
    ("PointMaze_UMaze-v3", {}),
    ("PointMaze_UMaze-v3", {"continuing_task": False}),
    ("PointMaze_OpenDense-v3", {"reset_target": True}),
    ("PointMaze_Large_Diverse_GR-v3", {"max_episode_steps": 40}),
    ("AntMaze_UMaze-v5", {"max_episode_steps": 300}),
]
"""Those of every day; the rest of the ids are slow only by their number."""


def draw_actions(envs: MazeRobots, steps: int, seed: int = 0) -> np.ndarray:
    """Actions that are held for some steps, so that a ball gets somewhere."""
    rng = np.random.default_rng(seed)
    held = rng.uniform(-1, 1, (-(-steps // 20), envs.num, envs.spec.action_size))
    return np.repeat(held, 20, axis=0)[:steps].astype(np.float32)


def run(envs: MazeRobots, actions: np.ndarray) -> HostStep:
    """All steps, stacked in time."""
    return HostStep(*(np.stack(parts) for parts in zip(*(envs.step(action) for action in actions), strict=True)))


def assert_same(left: HostStep, right: HostStep) -> None:
    for name, ours, theirs in zip(HostStep._fields, left, right, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def compare(id: str, arguments: dict, steps: int, seeds: list[int]) -> dict[str, int]:
    """Step both with the same actions, and count what happened."""
    envs = make_maze_robots(id, len(seeds), **arguments)
    references = [find_environment(id)(**arguments) for _ in seeds]
    order = list(references[0].observation_space.spaces)
    assert order == ["achieved_goal", "desired_goal", "observation"]

    def flat(obs):
        return np.concatenate([obs[key] for key in order]).astype(np.float32)

    obs = envs.reset(seeds)
    for row, (env, seed) in enumerate(zip(references, seeds, strict=True)):
        np.testing.assert_array_equal(obs[row], flat(env.reset(seed=seed)[0]))
    seen = {"successes": 0, "terminated": 0, "truncated": 0, "moved goals": 0}
    goals = obs[:, 2:4]
    for action in draw_actions(envs, steps):
        step, said = envs.step(action), envs.successes()
        seen["moved goals"] += int((step.next_obs[:, 2:4] != goals).any())
        goals = step.obs[:, 2:4]
        for row, env in enumerate(references):
            expected, reward, terminated, truncated, info = env.step(action[row])
            np.testing.assert_array_equal(step.next_obs[row], flat(expected))
            assert step.reward[row] == np.float32(reward)
            assert said[row] == info["success"]
            assert (step.terminated[row], step.truncated[row]) == (terminated, truncated and not terminated)
            seen["successes"] += info["success"]
            seen["terminated"] += terminated
            seen["truncated"] += truncated
            if terminated or truncated:
                expected, _ = env.reset()
            np.testing.assert_array_equal(step.obs[row], flat(expected))
    envs.close()
    return seen


@pytest.mark.parametrize(("id", "arguments"), CASES)
def test_every_step_is_the_packages_bit_for_bit(id, arguments):
    """Over 1000 steps: more than an episode, so that time-outs and the episodes after them are compared too."""
    seen = compare(id, arguments, 1000, [3])
    assert (seen["terminated"] > 0) == (arguments.get("continuing_task") is False)
    assert (seen["moved goals"] > 0) == (arguments.get("reset_target") is True)
    assert seen["truncated"] > 0
    assert seen["successes"] > 0 or "UMaze-v3" not in id


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_every_id_is_the_packages_bit_for_bit(id):
    compare(id, {}, 1000, [11, 12])


def test_the_goal_of_the_next_episode_is_seen_with_its_first_observation():
    """And `next_obs` is the one before the reset."""
    envs = make_maze_robots("PointMaze_Open-v3", 2, max_episode_steps=5)
    longer = make_maze_robots("PointMaze_Open-v3", 2, max_episode_steps=6)
    first = envs.reset([0, 1])
    longer.reset([0, 1])
    actions = draw_actions(envs, 5)
    cut, uncut = run(envs, actions), run(longer, actions)
    np.testing.assert_array_equal(cut.next_obs, uncut.next_obs)
    assert cut.truncated[-1].all()
    assert not uncut.truncated.any()
    assert (cut.obs[-1, :, 2:4] != first[:, 2:4]).any(axis=1).all()


def test_an_environment_among_others_is_the_one_alone():
    for id in ("PointMaze_Open_Diverse_GR-v3", "AntMaze_UMaze-v5"):
        settings = {"max_episode_steps": 12, "reset_target": True}
        together = make_maze_robots(id, 3, threads=2, **settings)
        together.reset([4, 5, 6])
        actions = draw_actions(together, 30)
        crowd = run(together, actions)
        alone = make_maze_robots(id, 1, **settings)
        alone.reset([5])
        assert_same(HostStep(*(part[:, [1]] for part in crowd)), run(alone, actions[:, [1]]))


@pytest.mark.parametrize("id", ["PointMaze_OpenDense-v3", "AntMaze_Open-v5"])
def test_restore_continues_bit_for_bit(id):
    settings = {"max_episode_steps": 25, "reset_target": True}
    envs = make_maze_robots(id, 2, **settings)
    envs.reset([1, 2])
    actions = draw_actions(envs, 70)
    past = run(envs, actions[:33])
    file = io.BytesIO()
    np.savez(file, **envs.state())  # without pickle
    cells, reached = envs.visited_cells(), envs.successes()
    future = run(envs, actions[33:])
    file.seek(0)
    state = dict(np.load(file, allow_pickle=False))
    other = make_maze_robots(id, 2, threads=1, **settings)
    for again in (other, envs):  # a new process, and the same one gone astray
        np.testing.assert_array_equal(again.restore(state), past.obs[-1])
        np.testing.assert_array_equal(again.visited_cells(), cells)
        np.testing.assert_array_equal(again.successes(), reached)
        assert_same(run(again, actions[33:]), future)


def test_visited_cells_are_those_of_the_map():
    """Every cell entered lies in the block of the map where the ball is, and none in a wall."""
    envs = make_maze_robots("PointMaze_Medium-v3", 8)
    maze = find_environment("PointMaze_Medium-v3")().unwrapped.maze
    assert envs.cells == (80, 80) == envs.walls.shape
    free = sum(block != 1 for row in maze.maze_map for block in row)
    assert (~envs.walls).sum() == 100 * free
    envs.reset(range(8))
    seen = set()
    for action in draw_actions(envs, 600):
        position, cells = envs.step(action).next_obs[:, :2], envs.visited_cells()
        assert not envs.walls.ravel()[cells].any()
        for (x, y), cell in zip(position.astype(float), cells, strict=True):
            column, line = divmod(cell, 80)
            row, of = maze.cell_xy_to_rowcol(np.array([x, y]))
            assert (of, maze.map_length - 1 - row) == (column // 10, line // 10)
            # float32 may carry a position over the edge of its cell
            np.testing.assert_allclose([x, y], np.array([column, line]) / 10 + 0.05 - 4, atol=0.0500001)
        seen |= set(cells.tolist())
    assert len(seen) > 100


def test_a_success_is_a_place_near_the_goal():
    envs = make_maze_robots("PointMaze_UMaze-v3", 4)
    envs.reset(range(4))
    hits = 0
    for action in draw_actions(envs, 400):
        step = envs.step(action)
        near = np.hypot(*(step.next_obs[:, :2] - step.next_obs[:, 2:4]).T) <= NEAR
        np.testing.assert_array_equal(envs.successes(), near)
        np.testing.assert_array_equal(step.reward, near)
        hits += near.sum()
    assert hits > 0


def test_bad_calls():
    with pytest.raises(UsageError, match="FetchReach-v4 is not a maze robot"):
        make_maze_robots("FetchReach-v4", 1)
    envs = make_maze_robots("PointMaze_UMaze-v3", 1)
    for call in (lambda: envs.step(np.zeros((1, 2))), envs.state):
        with pytest.raises(UsageError, match="call reset"):
            call()
    envs.close()
    envs.close()
    with pytest.raises(UsageError, match="closed"):
        envs.reset([0])


@pytest.mark.slow
def test_sac_finds_the_goals_of_a_small_maze(tmp_path):
    """Small networks and 30,000 steps: from a quarter of the episodes to most of them (results/mazes has five)."""
    settings = {"hidden": (64, 64), "learning_rate": 1e-3, "batch_size": 128, "steps": 30_000, "eval_every": 2000}
    run = dac.train("sac", "gym:PointMaze_UMaze-v3", seeds=[0, 1], out=tmp_path / "run", eval_episodes=10, **settings)
    success = run.metrics["success"].mean(axis=1)
    assert success[:3].mean() < 0.45
    assert success[-3:].mean() > 0.6
