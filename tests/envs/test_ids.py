"""Gymnasium knows the ids of the package, whichever of the two is imported first."""

import subprocess
import sys

import pytest

from dac.envs.ids import ids
from dac.envs.maze import FourRoomMaze
from dac.envs.registration import IDS


@pytest.mark.parametrize(
    "statement",
    [
        "import dac, gymnasium; env = gymnasium.make('dac/SparseHopper-v0')",
        "import gymnasium, dac; env = gymnasium.make('dac/FourRoomMaze-v0')",
        "import gymnasium; env = gymnasium.make('dac:dac/FourRoomMaze-v0')",
    ],
)
def test_importing_dac_is_enough(statement):
    """And the finder that waited for Gymnasium is gone: nothing is slower afterwards."""
    check = "import sys; env.reset(seed=0); assert not [f for f in sys.meta_path if 'dac' in type(f).__module__]"
    subprocess.run([sys.executable, "-W", "error", "-c", f"{statement}\n{check}"], check=True)


def test_the_maze_is_cut_where_the_compiled_one_is():
    import gymnasium

    assert gymnasium.spec("dac/FourRoomMaze-v0").max_episode_steps == FourRoomMaze.horizon
    assert list(IDS) == ids()
