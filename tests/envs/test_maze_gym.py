"""The maze in Gymnasium is the maze."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dac.core.types import UsageError
from dac.envs import maze
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze_gym import FourRoomMazeEnv, draw_trail
from dac.envs.registration import register

ID = "dac/FourRoomMaze-v0"


def draw_actions(*shape: int, seed: int = 0) -> np.ndarray:
    """Moves that keep their direction for a while, so that walls and doors are met."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (shape[0] // 50 + 1, *shape[1:])).repeat(50, axis=0)[: shape[0]]
    return np.clip(actions + 0.3 * rng.standard_normal(shape), -1, 1).astype(np.float32)


def test_vector_trajectories_are_advance_exactly():
    envs = make_gymnasium(ID, 3)
    assert (envs.spec, envs.horizon, envs.cells) == (maze.FourRoomMaze.spec, 1000, (100, 100))
    position = envs.reset([0, 1, 2])
    np.testing.assert_array_equal(position, [maze.START] * 3)
    actions = draw_actions(2100, 3, 2)
    met = 0
    for number, action in enumerate(actions, start=1):
        step = envs.step(action)
        expected = maze.advance(position, action, np)
        met += (np.abs(expected - (position + action)).max(axis=1) > 1e-3).sum()
        np.testing.assert_array_equal(step.next_obs, expected)
        np.testing.assert_array_equal(envs.visited_cells(), maze.cell_index(expected, np))
        assert not step.reward.any()
        assert not step.terminated.any()
        assert step.truncated.all() == step.truncated.any() == (number % 1000 == 0)
        position = np.tile(np.array(maze.START, np.float32), (3, 1)) if step.truncated[0] else expected
        np.testing.assert_array_equal(step.obs, position)
    assert met > 50


def test_the_compiled_maze_is_the_same():
    env, compiled = FourRoomMazeEnv(), maze.FourRoomMaze()
    env.reset()
    state, _ = compiled.reset(jax.random.key(0))
    _, steps = jax.lax.scan(lambda s, a: compiled.step(s, a, jax.random.key(0)), state, draw_actions(500, 2))
    for action, expected in zip(draw_actions(500, 2), steps.next_obs, strict=True):
        np.testing.assert_allclose(env.step(action)[0], expected, atol=1e-3)


def test_gymnasiums_checks():
    register()
    env = gym.make(ID, render_mode="rgb_array")
    assert env.spec.max_episode_steps == 1000
    check_env(env.unwrapped)
    assert env.observation_space == gym.spaces.Box(0, 100, (2,), np.float32)
    assert env.action_space == gym.spaces.Box(-1, 1, (2,), np.float32)
    obs, info = env.reset(seed=3)
    assert obs in env.observation_space
    assert info == {"cell": 0}
    obs, reward, terminated, truncated, info = env.step(np.array([1, 0.6], np.float32))
    assert obs in env.observation_space
    assert (reward, terminated, truncated, info) == (0.0, False, False, {"cell": 101})
    assert env.unwrapped.visit_cell() == 101


def test_bad_arguments():
    with pytest.raises(UsageError, match="render_mode must be None or 'rgb_array'; got 'human'"):
        FourRoomMazeEnv(render_mode="human")
    env = FourRoomMazeEnv()
    env.reset()
    for action in (np.zeros(3), [np.nan, 0.0]):
        with pytest.raises(UsageError, match="an action must be two finite numbers; got"):
            env.step(action)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


def colour_at(frame: np.ndarray, x: float, y: float) -> list[int]:
    return frame[int(400 - 4 * y), int(4 * x)].tolist()


def test_pictures():
    env = FourRoomMazeEnv(render_mode="rgb_array")
    env.reset()
    floor, wall = [250, 248, 244], [58, 66, 84]
    for _ in range(30):
        env.step(np.array([1.0, 0.5]))
    frame = env.render()
    assert frame.shape == (400, 400, 3)
    assert frame.dtype == np.uint8
    for x, y, colour in ((50, 50, wall), (50, 20, floor), (20, 50, floor), (50, 90, wall), (60, 2, floor)):
        assert colour_at(frame, x, y) == colour
    assert (np.all(frame == wall, axis=-1).sum() + 10) // 16 == 10_000 - maze.FREE_CELLS
    red, _, blue = colour_at(frame, 30.5, 15.5)
    assert red > blue + 100, "no agent where it is"
    early, late = colour_at(frame, 4.5, 2.5), colour_at(frame, 24.5, 12.5)
    assert early != floor
    assert late[0] < early[0] < 250, "the trail gets darker towards the agent"
    assert colour_at(frame, 15, 15.5) == floor

    env.reset()
    again = env.render()
    assert colour_at(again, 20.5, 10.5) == floor, "the trail of the last episode is gone"
    corner = draw_trail(np.array([(100.0, 100.0)], np.float32))  # nothing is drawn beyond the edge
    assert (np.all(corner == floor, axis=-1) | np.all(corner == wall, axis=-1))[30:].all()


def test_gymnasium_finds_it_without_our_help_and_without_mujoco():
    program = (
        "import sys, gymnasium;"
        "env = gymnasium.make('dac.envs.registration:dac/FourRoomMaze-v0'); env.reset();"
        "env = gymnasium.make('dac/FourRoomMaze-v0'); env.reset();"
        "assert 'dac/SparseHopper-v0' in gymnasium.registry;"
        "assert 'mujoco' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
