"""Gymnasium-Robotics by its ids: found without an import, and mended where MuJoCo's enumerations broke it."""

import contextlib

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dac.core.types import UsageError
from dac.envs.gymnasium import find_environment, make_gymnasium
from dac.envs.maze_robots import MazeRobots
from dac.envs.robotics import is_maze_robot
from dac.tasks import find_task, preset
from dac.tasks.families import ANY, FAMILIES, family_of

SIZES = {
    "PointMaze_UMaze-v3": (8, 2),
    "AntMaze_UMaze-v5": (109, 8),
    "FetchReach-v4": (16, 4),
    "AdroitHandDoor-v1": (39, 28),
    "FrankaKitchen-v1": (93, 9),
    "HandReach-v3": (93, 20),
}
"""Of the flattened observation and the action, one id of every family."""
OTHERS = ["FetchPush-v4", "FetchSlide-v4", "FetchPickAndPlace-v4", "AdroitHandHammer-v1", "AdroitHandPen-v1"]
OTHERS += ["AdroitHandRelocate-v1", "HandManipulateBlock-v1", "HandManipulateEgg-v1", "HandManipulatePen-v1"]
REWARDS = {"FetchReach-v4": {-1.0, 0.0}, "HandReach-v3": {-1.0, 0.0}, "FrankaKitchen-v1": set(map(float, range(8)))}


def random_steps(id, steps=60):
    """Rewards and successes of some random steps of the package's own environment, as a vector of one."""
    rng = np.random.default_rng(0)
    with contextlib.closing(make_gymnasium(id, 1)) as envs:
        size, first = (envs.spec.obs_size, envs.spec.action_size), envs.reset([5])
        moves = rng.uniform(-1, 1, (steps, 1, size[1])).astype(np.float32)
        found = [(float(envs.step(move).reward[0]), envs.successes()) for move in moves]
        np.testing.assert_array_equal(envs.reset([5]), first)
    return size, found


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=() if "Fetch" in id or "Kitchen" in id else pytest.mark.slow) for id in SIZES]
)
def test_one_of_every_family_steps_and_speaks_of_success(id):
    size, found = random_steps(id)
    assert size == SIZES[id]
    assert all(said is not None and said.dtype == bool for _, said in found)
    assert {reward for reward, _ in found} <= REWARDS.get(id, {reward for reward, _ in found})


@pytest.mark.slow
@pytest.mark.parametrize("id", OTHERS)
def test_the_other_ids_step_too(id):
    assert random_steps(id)[1][0][1] is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*Box observation space m.*imum value is")
@pytest.mark.parametrize("id", [id for id in [*SIZES, *OTHERS] if "Kitchen" not in id])
def test_gymnasiums_checker_passes(id):
    """Kitchen is left out: it hands out the same array of goals at every step, of which we take copies."""
    check_env(find_environment(id)().unwrapped, skip_render_check=True)


def test_an_arm_in_a_worker_process_is_the_one_here():
    """The mending happens where the environment is made."""
    here, there = make_gymnasium("FetchReach-v4", 1), make_gymnasium("FetchReach-v4", 1, workers=1)
    with contextlib.closing(here), contextlib.closing(there):
        np.testing.assert_array_equal(here.reset([0]), there.reset([0]))
        move = np.full((1, 4), 0.5, np.float32)
        for left, right in zip(here.step(move), there.step(move), strict=True):
            np.testing.assert_array_equal(left, right)


def test_maze_robots_are_the_vector_ones_by_their_plain_id():
    task = find_task("gym:PointMaze_UMaze-v3")
    envs = task.make_envs(2)
    assert isinstance(envs, MazeRobots)
    assert list(task.spaces().observation) == ["achieved_goal", "desired_goal", "observation"]
    with pytest.raises(UsageError, match=r"workers must be 0 for gym:PointMaze_UMaze-v3, not 2: it has threads"):
        task.make_envs(2, workers=2)
    plain = find_task("gym:gymnasium_robotics:PointMaze_UMaze-v3").make_envs(2)
    np.testing.assert_array_equal(plain.reset([0, 1]), envs.reset([0, 1]))
    assert type(plain) is not type(envs)
    ids = ["AntMaze_Large_Diverse_GRDense-v5", "AntMaze_UMaze-v4", "PointMaze_Mine-v3"]
    assert [is_maze_robot(id) for id in ids] == [True, False, False]


def test_a_map_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="no environment 'PointMaze_UMaze_Diverse_G-v3'"):
        find_task("gym:PointMaze_UMaze_Diverse_G-v3").make_envs(1)


def test_every_family_has_its_defaults():
    assert [family_of(id).ids for id in SIZES] == [FAMILIES[n].ids for n in (0, 1, 2, 5, 6, 4)]
    assert preset("sac", "gym:PointMaze_Open-v3") == {"steps": 300_000, "beta": 0.02}
    assert preset("sac", "gym:gymnasium_robotics:FetchReachDense-v4") == {"steps": 20_000, "beta": 0.02, "gamma": 0.95}
    assert preset("td3", "gym:AntMaze_UMaze-v5")["random_steps"] == 25_000  # the algorithm's own come before
    assert family_of("Pendulum-v1") is family_of(lambda: None) is ANY
