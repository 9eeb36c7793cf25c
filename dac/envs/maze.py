"""The continuous four-room maze of Section 6.1, Han & Sung 2021: pure exploration, no reward.

The geometry is written once, for NumPy and for JAX (`xp`), so that the compiled environment and the one registered
with Gymnasium are the same environment.

        100 +-----------+--+-----------+
            |           |  |           |      walls: 48 <= x < 53 and 48 <= y < 53,
         85 |           +--+           |      open where the other coordinate is in
         75 |           +--+           |      [15, 25) or [75, 85)
            |           |  |           |
         53 +--+  +-----+--+-----+  +--+
         48 +--+  +-----+--+-----+  +--+
            |  15 25    |  |    75 85  |
         25 |           +--+           |
         15 |           +--+           |
            |*          |  |           |      * start (0.5, 0.5)
          0 +-----------+--+-----------+
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dac.core.types import EnvSpec, PRNGKey, Scalar, float_dtype
from dac.envs.base import AbstractDeviceEnv

SIZE = 100
START = (0.5, 0.5)
BAND = (48.0, 53.0)
SOLID = ((0.0, 15.0), (25.0, 75.0), (85.0, 101.0))  # along a band; beyond 100 so that the border belongs to the wall
WALLS = np.array([(*BAND, *along) for along in SOLID] + [(*along, *BAND) for along in SOLID])  # x_lo, x_hi, y_lo, y_hi
FREE_CELLS = 9225


def in_wall(position: Any, xp: ModuleType = jnp) -> Any:
    """Tell whether points (..., 2) lie in a wall; walls contain their lower and left edges, not the others."""
    x, y = position[..., None, 0], position[..., None, 1]
    lo_x, hi_x, lo_y, hi_y = WALLS.T
    return xp.any((lo_x <= x) & (x < hi_x) & (lo_y <= y) & (y < hi_y), axis=-1)


def advance(position: Any, action: Any, xp: ModuleType = jnp) -> Any:
    """Move points (..., 2) along straight segments, each up to the first wall or border it touches (no sliding)."""
    dtype = position.dtype
    action = xp.clip(action, -1, 1).astype(dtype)
    walls = WALLS.astype(dtype)
    lower, upper = walls[:, 0::2], walls[:, 1::2]  # (wall, axis)
    start, delta = position[..., None, :], action[..., None, :]
    moving = delta != 0
    safe = xp.where(moving, delta, 1)

    # slab method: for each wall and axis, the times between which the coordinate is inside the wall's range
    to_lower, to_upper = (lower - start) / safe, (upper - start) / safe
    inside = (lower <= start) & (start < upper)
    forever = xp.where(inside, xp.asarray(np.inf, dtype), xp.asarray(-np.inf, dtype))
    enter = xp.where(moving, xp.minimum(to_lower, to_upper), -forever)
    leave = xp.where(moving, xp.maximum(to_lower, to_upper), forever)
    entered = xp.max(enter, axis=-1)
    hit = (entered < xp.min(leave, axis=-1)) & (entered >= 0) & (entered <= 1)
    time = xp.where(hit, entered, xp.asarray(np.inf, dtype))  # (..., wall)
    first = xp.argmin(time, axis=-1)
    wall_time = xp.min(time, axis=-1)
    axis = xp.argmax(xp.take_along_axis(enter, first[..., None, None], axis=-2)[..., 0, :], axis=-1)

    # the border: x = 0, x = 100, y = 0, y = 100 themselves may be stood on
    border = xp.where(action > 0, xp.asarray(SIZE, dtype), xp.asarray(0, dtype))
    border_time = xp.where(action != 0, (border - position) / xp.where(action != 0, action, 1), np.inf)
    time_out = xp.min(border_time, axis=-1)

    fraction = xp.minimum(xp.minimum(wall_time, time_out), xp.asarray(1, dtype))
    moved = xp.clip(position + fraction[..., None] * action, 0, SIZE)
    # The coordinate that met the wall is set, not computed: a wall contains its lower edge, so from below or from
    # the left one stops at the last number before it; from above or from the right, on the edge.
    before = np.nextafter(lower, np.asarray(-np.inf, dtype))
    edge = xp.where(action > 0, xp.asarray(before)[first], xp.asarray(upper)[first])
    stopped = wall_time <= xp.minimum(time_out, xp.asarray(1, dtype))
    met = stopped[..., None] & (xp.arange(2) == axis[..., None])
    moved = xp.where(met, edge, moved)
    # rounding may carry the other coordinate across an edge; then stay where it is known to be free
    return xp.where(in_wall(moved, xp)[..., None], position, moved).astype(dtype)


def cell_index(position: Any, xp: ModuleType = jnp) -> Any:
    """Return the flat index of the 1 x 1 cell that contains a point: 100 * floor(x) + floor(y)."""
    corner = xp.clip(xp.floor(position), 0, SIZE - 1).astype(xp.int32)
    return corner[..., 0] * SIZE + corner[..., 1]


def free_cells() -> np.ndarray:
    """Return the mask (100, 100) of the cells outside the walls, indexed [x, y]."""
    corners = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), axis=-1)
    return ~in_wall(corners.astype(float), np)


class FourRoomMaze(AbstractDeviceEnv):
    """The maze inside the compiled program. Observations are raw positions in [0, 100]."""

    spec: ClassVar[EnvSpec] = EnvSpec(obs_size=2, action_size=2)
    cells: ClassVar[tuple[int, ...] | None] = (SIZE, SIZE)
    horizon: int = 1000

    @property
    def walls(self) -> Bool[np.ndarray, "x y"]:
        return ~free_cells()

    def start(self, key: PRNGKey) -> Float[Array, " 2"]:
        del key
        return jnp.array(START, float_dtype())

    def observe(self, world: Float[Array, " 2"]) -> Float[Array, " 2"]:
        return world

    def move(
        self, world: Float[Array, " 2"], action: Float[Array, " 2"], key: PRNGKey
    ) -> tuple[Float[Array, " 2"], Scalar, Scalar]:
        del key
        zero = jnp.zeros((), float_dtype())
        return advance(world, action), zero, zero

    def cell(self, obs: Float[Array, " 2"]) -> Int[Array, ""]:
        return cell_index(obs)
