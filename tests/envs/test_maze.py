"""The maze against brute force: dense sampling of each segment, in float64, with the walls written out again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.envs import maze


def is_wall(x, y):
    """The spec's words: bands [48, 53), open where the other coordinate is in [15, 25) or [75, 85)."""

    def opening(c):
        return ((c >= 15) & (c < 25)) | ((c >= 75) & (c < 85))

    vertical = (x >= 48) & (x < 53) & ~opening(y)
    horizontal = (y >= 48) & (y < 53) & ~opening(x)
    return vertical | horizontal


def random_moves(count, seed=0):
    """Positions everywhere, half of them near walls, some touching; moves in all directions, some along an axis."""
    rng = np.random.default_rng(seed)
    position = rng.uniform(0, 100, (2 * count, 2))
    position[:count, 0] = rng.uniform(46.5, 54.5, count)
    position[count // 2 : count] = position[count // 2 : count, ::-1]
    position[: count // 20, 0] = 53.0
    position[count // 20 : count // 10, 0] = np.nextafter(np.float32(48), np.float32(0))
    position[-count // 10 :, 1] = rng.choice([0.0, 100.0, 0.3, 99.7], count // 10)
    position = position.astype(np.float32)
    position = rng.permutation(position[~is_wall(position[:, 0], position[:, 1])])[:count]
    action = rng.uniform(-1, 1, position.shape).astype(np.float32)
    action[: count // 50, 0] = 0
    action[count // 50 : count // 25, 1] = 0
    action[count // 25 : count // 20] = 0
    return position, action


def test_one_hundred_thousand_moves_against_brute_force():
    position, action = random_moves(100_000)
    assert len(position) == 100_000
    moved = np.asarray(jax.jit(maze.advance)(position, action))
    samples = 1000
    time = np.linspace(0, 1, samples + 1)
    blocked_moves = 0
    for i in range(0, len(position), 10_000):
        start, delta = position[i : i + 10_000].astype(float), action[i : i + 10_000].astype(float)
        points = start[:, None] + time[None, :, None] * delta[:, None]
        x, y = points[..., 0], points[..., 1]
        blocked = is_wall(x, y) | (x < 0) | (x > 100) | (y < 0) | (y > 100)
        last_free = np.where(blocked.any(axis=1), np.maximum(blocked.argmax(axis=1) - 1, 0), samples)
        blocked_moves += blocked.any(axis=1).sum()
        # the stop lies between the last free sample and the next one
        expected = points[np.arange(len(start)), last_free]
        assert np.abs(moved[i : i + 10_000] - expected).max() < 1.0 / samples + 1e-5
    assert blocked_moves > 5_000
    assert not is_wall(moved[:, 0].astype(float), moved[:, 1].astype(float)).any()
    assert moved.min() >= 0
    assert moved.max() <= 100


def test_numpy_and_jax_agree():
    position, action = random_moves(5_000, seed=1)
    np.testing.assert_allclose(
        maze.advance(position, action, np), np.asarray(jax.jit(maze.advance)(position, action)), atol=2e-5
    )


@pytest.mark.parametrize(
    ("start", "action", "end"),
    [
        ((0.5, 0.5), (1.0, 0.5), (1.5, 1.0)),
        ((0.5, 0.5), (-1.0, 0.0), (0.0, 0.5)),  # the border stops
        ((0.5, 0.5), (-1.0, 1.0), (0.0, 1.0)),  # without sliding
        ((47.5, 10.0), (1.0, 0.0), (np.nextafter(np.float32(48), np.float32(0)), 10.0)),  # the wall's lower edge
        ((53.5, 10.0), (-1.0, 0.0), (53.0, 10.0)),  # its upper edge is free
        ((47.5, 20.0), (1.0, 0.0), (48.5, 20.0)),  # a door
        (
            (50.0, 24.8),
            (0.0, 1.0),
            (50.0, np.nextafter(np.float32(25), np.float32(0))),
        ),  # the door's frame, from inside
        ((50.0, 15.2), (0.0, -1.0), (50.0, 15.0)),
        ((20.0, 47.5), (0.0, 1.0), (20.0, 48.5)),  # the other band's door
        ((0.5, 0.5), (5.0, 0.0), (1.5, 0.5)),  # actions are clipped
    ],
)
def test_moves_by_hand(start, action, end):
    moved = maze.advance(jnp.array(start, jnp.float32), jnp.array(action, jnp.float32))
    np.testing.assert_allclose(moved, np.array(end, np.float32), atol=1e-6)


def test_free_cells_are_9225():
    free = maze.free_cells()
    assert free.sum() == maze.FREE_CELLS == 9225
    assert free[0, 0]
    assert not free[50, 50]
    assert free[50, 20]
    assert int(maze.cell_index(np.array([3.7, 99.2]), np)) == 399
    assert int(maze.cell_index(np.array([100.0, 100.0]), np)) == 9999


def test_every_free_cell_can_be_visited_and_no_wall_cell():
    position, action = random_moves(50_000, seed=3)
    visited = np.zeros(10_000, bool)
    visited[maze.cell_index(maze.advance(position, action, np), np)] = True
    assert not (visited & ~maze.free_cells().ravel()).any()
    assert visited.sum() > 7000


def test_episodes_last_a_thousand_steps_and_time_out():
    env = maze.FourRoomMaze()
    state, obs = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(obs, [0.5, 0.5])

    def step(state, action):
        state, now = env.step(state, action, jax.random.key(0))
        return state, now

    actions = jnp.full((1001, 2), 0.01)
    state, now = jax.jit(lambda s: jax.lax.scan(step, s, actions))(state)
    assert now.truncated.sum() == 1
    assert now.truncated[999] == 1
    assert not now.terminated.any()
    assert not now.reward.any()
    # the observation before the reset is kept, and the next episode starts at the start
    np.testing.assert_allclose(now.next_obs[999], 10.5, atol=1e-3)
    np.testing.assert_array_equal(now.obs[999], [0.5, 0.5])
    assert int(state.elapsed) == 1
