"""The four-room maze as a Gymnasium environment, on the NumPy form of `maze.advance`.

`gymnasium.make("dac.envs.registration:dac/FourRoomMaze-v0")` ends its episodes after 1000 steps, as the compiled one.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from jaxtyping import Float32, UInt8

from dac.core.types import UsageError
from dac.envs.maze import SIZE, START, advance, cell_index, in_wall

PIXELS = 4
"""Pixels of a picture per unit of length: pictures are 400 x 400."""

# Pictures are drawn twice as large and averaged, which smooths the edges.
_SCALE = 2 * PIXELS
_FLOOR, _WALL = (250, 248, 244), (58, 66, 84)
_OLD, _NEW = (190, 214, 236), (32, 104, 172)  # the trail fades with age
_AGENT, _RIM = (232, 93, 60), (255, 255, 255)


class FourRoomMazeEnv(gym.Env):
    """Pure exploration: observe (x, y) in [0, 100], move by up to 1 in each, earn nothing, and never terminate."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012, Gymnasium's type
    visit_grid: ClassVar[tuple[int, ...]] = (SIZE, SIZE)
    _position: Float32[np.ndarray, " 2"]
    _trail: list[np.ndarray]

    def __init__(self, render_mode: str | None = None):
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise UsageError(f"render_mode must be None or 'rgb_array'; got {render_mode!r}")
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(0, SIZE, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self._begin()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, " 2"], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._begin()
        return self._position.copy(), {"cell": self.visit_cell()}

    def step(self, action: Any) -> tuple[Float32[np.ndarray, " 2"], float, bool, bool, dict[str, Any]]:
        move = np.asarray(action, np.float32)
        if move.shape != (2,) or not np.isfinite(move).all():
            raise UsageError(f"an action must be two finite numbers; got {action!r}")
        self._position = advance(self._position, move, np)
        if self.render_mode is not None:
            self._trail.append(self._position)
        return self._position.copy(), 0.0, False, False, {"cell": self.visit_cell()}

    def visit_cell(self) -> int:
        """Return the flat index in the visit grid of the 1 x 1 cell the agent is in."""
        return int(cell_index(self._position, np))

    def render(self) -> UInt8[np.ndarray, "400 400 3"] | None:
        """Draw the maze from above, y upwards, with the path of this episode, older parts paler, and the agent."""
        if self.render_mode is None:
            gym.logger.warn("render() needs gymnasium.make(..., render_mode='rgb_array')")
            return None
        return draw_trail(np.array(self._trail))

    def _begin(self) -> None:
        self._position = np.array(START, np.float32)
        self._trail = [self._position]


@functools.cache
def _draw_walls() -> UInt8[np.ndarray, "side side 3"]:
    """Draw the empty maze at twice the size of a picture."""
    middle = (np.arange(SIZE * _SCALE) + 0.5) / _SCALE
    x, y = np.meshgrid(middle, middle[::-1])
    solid = in_wall(np.stack([x, y], axis=-1), np)
    return np.where(solid[..., None], _WALL, _FLOOR).astype(np.uint8)


def _stamp(canvas: np.ndarray, points: np.ndarray, radius: float, colours: Any) -> None:
    """Put a disc at every point (point, 2), later ones over earlier ones."""
    reach = np.arange(-int(radius), int(radius) + 1)
    rows, columns = (part.ravel() for part in np.meshgrid(reach, reach, indexing="ij"))
    inside = rows**2 + columns**2 <= radius**2
    pixels = np.floor(points * _SCALE).astype(int)
    last = len(canvas) - 1
    column = np.clip(pixels[:, 0, None] + columns[inside], 0, last)
    row = np.clip(last - pixels[:, 1, None] + rows[inside], 0, last)
    canvas[row, column] = np.asarray(colours, np.uint8)[..., None, :]


def draw_trail(trail: Float32[np.ndarray, "point 2"]) -> UInt8[np.ndarray, "400 400 3"]:
    """Draw the maze, a path through it and the agent at the end of the path."""
    canvas = _draw_walls().copy()
    # a step is at most sqrt(2) long, 12 pixels of the canvas: six points on it leave no gaps between discs
    between = np.linspace(0, 1, 6, endpoint=False)[:, None]
    points = (trail[:-1, None] + between * np.diff(trail, axis=0)[:, None]).reshape(-1, 2)
    age = np.linspace(0, 1, len(points))[:, None]
    _stamp(canvas, points, 2.5, np.array(_OLD) + age * (np.array(_NEW) - np.array(_OLD)))
    _stamp(canvas, trail[-1:], 12.5, _RIM)
    _stamp(canvas, trail[-1:], 10.0, _AGENT)
    corners = [canvas[row::2, column::2].astype(np.uint16) for row in (0, 1) for column in (0, 1)]
    return (np.add.reduce(corners) // 4).astype(np.uint8)
