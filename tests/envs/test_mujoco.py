"""The vector MuJoCo tasks against Gymnasium's environments and plain references."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dac.core.types import UsageError
from dac.envs import host
from dac.envs.batch import quiet_compiler
from dac.envs.host import HostStep, pack_generators, unpack_generators
from dac.envs.mujoco import HORIZON, MujocoEnvs, grid_cells, load_model, make_mujoco
from dac.envs.registration import IDS, register
from dac.envs.robots import ROBOTS
from dac.envs.variants import VARIANTS, Delayed, Dense, Sparse, find_variant
from tests.common import can_draw

SIZES = {"HalfCheetah": (17, 6), "Hopper": (11, 3), "Walker2d": (17, 6), "Ant": (105, 8), "HumanoidStandup": (348, 17)}


def make_gymnasium(robot: str, **kwargs) -> gym.Env:
    with quiet_compiler():
        return gym.make(f"{robot}-v5", **kwargs)


def draw_actions(envs: MujocoEnvs, steps: int, seed: int = 0) -> np.ndarray:
    """Actions of all sizes: gentle ones keep a robot on its feet for a while, strong ones throw it over."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1, 1, (steps, envs.num, envs.spec.action_size))
    return (actions * rng.choice([0.05, 0.3, 1.0], (steps, envs.num, 1))).astype(np.float32)


def run(envs: MujocoEnvs, actions: np.ndarray) -> HostStep:
    """All steps, stacked in time."""
    return HostStep(*(np.stack(parts) for parts in zip(*(envs.step(action) for action in actions), strict=True)))


def assert_same(left: HostStep, right: HostStep) -> None:
    for name, ours, theirs in zip(HostStep._fields, left, right, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def delayed_reference(rewards, over, delay: int) -> list[float]:
    """What a delayed reward pays for a stream of dense rewards, in plain Python."""
    paid, unpaid, elapsed = [], 0.0, 0
    for reward, ended in zip(rewards, over, strict=True):
        unpaid, elapsed = unpaid + float(reward), elapsed + 1
        due = ended or elapsed % delay == 0
        paid.append(unpaid if due else 0.0)
        unpaid = 0.0 if due else unpaid
        elapsed = 0 if ended else elapsed
    return paid


@pytest.mark.parametrize("robot", ROBOTS)
def test_every_step_is_gymnasiums_bit_for_bit(robot):
    seeds = [11, 12]
    envs = MujocoEnvs(robot, len(seeds))
    assert (envs.spec.obs_size, envs.spec.action_size) == SIZES[robot]
    references = [make_gymnasium(robot) for _ in seeds]
    reach = references[0].action_space.high
    obs = envs.reset(seeds)
    assert obs.dtype == np.float32
    for row, (env, seed) in enumerate(zip(references, seeds, strict=True)):
        np.testing.assert_array_equal(obs[row], env.reset(seed=seed)[0].astype(np.float32))

    forces = 0.0
    # one step more than the horizon, so that the time-out and the episode after it are compared too
    for action in draw_actions(envs, HORIZON + 1):
        step = envs.step(action)
        for row, env in enumerate(references):
            expected, reward, terminated, truncated, _ = env.step(reach * action[row])
            np.testing.assert_array_equal(step.next_obs[row], expected.astype(np.float32))
            assert step.reward[row] == np.float32(reward)
            np.testing.assert_allclose(step.next_obs[row], expected, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(step.reward[row], reward, rtol=1e-6, atol=1e-6)
            assert step.terminated[row] == terminated
            assert step.truncated[row] == (truncated and not terminated)
            forces = max(forces, np.abs(env.unwrapped.data.cfrc_ext).max())
            if terminated or truncated:
                expected, _ = env.reset()
            np.testing.assert_array_equal(step.obs[row], expected.astype(np.float32))
    assert forces > 10, "nothing ever touched the ground"


@pytest.mark.parametrize(
    ("robot", "threshold"), [("HalfCheetah", 0.1), ("Hopper", 0.01), ("Walker2d", 0.0), ("Ant", 0.05)]
)
def test_sparse_rewards_against_the_position_in_gymnasium(robot, threshold):
    envs = make_mujoco(f"Sparse{robot}", 1, threshold=threshold, horizon=60)
    env = make_gymnasium(robot, max_episode_steps=60)
    envs.reset([5])
    env.reset(seed=5)
    rewards = []
    for action in draw_actions(envs, 200):
        step = envs.step(action)
        _, _, terminated, truncated, _ = env.step(action[0])
        expected = 1.0 if env.unwrapped.data.qpos[0] - env.unwrapped.init_qpos[0] > threshold else 0.0
        assert step.reward[0] == expected
        assert step.terminated[0] == terminated
        rewards.append(expected)
        if terminated or truncated:
            env.reset()
    assert 0 < sum(rewards) < len(rewards), "the threshold was always or never passed"


def test_thresholds_and_delays_of_the_tasks():
    thresholds = {name: task.reward.threshold for name, task in VARIANTS.items() if isinstance(task.reward, Sparse)}
    assert thresholds == {"SparseHalfCheetah": 5, "SparseHopper": 1, "SparseWalker2d": 1, "SparseAnt": 1}
    delays = {name: task.reward.delay for name, task in VARIANTS.items() if isinstance(task.reward, Delayed)}
    assert delays == {f"Delayed{robot}": 20 for robot in ("HalfCheetah", "Hopper", "Walker2d", "Ant")}
    assert [name for name, task in VARIANTS.items() if isinstance(task.reward, Dense)] == list(ROBOTS)
    assert find_variant("DelayedAnt", delay=5).reward == Delayed(5)


@pytest.mark.parametrize(("robot", "horizon"), [("HalfCheetah", 33), ("Hopper", 27), ("Walker2d", 1000), ("Ant", 47)])
def test_delayed_rewards_sum_to_the_dense_return(robot, horizon):
    """Also where an episode ends, by termination or by time-out, between two payments."""
    dense = make_mujoco(robot, 3, horizon=horizon)
    delayed = make_mujoco(f"Delayed{robot}", 3, delay=10, horizon=horizon)
    for envs in (dense, delayed):
        envs.reset([1, 2, 3])
    actions = draw_actions(dense, 250)
    plain, late = run(dense, actions), run(delayed, actions)
    np.testing.assert_array_equal(plain.next_obs, late.next_obs)
    over = plain.terminated | plain.truncated
    np.testing.assert_array_equal(over, late.terminated | late.truncated)
    between = 0
    for row in range(3):
        expected = delayed_reference(plain.reward[:, row], over[:, row], 10)
        np.testing.assert_allclose(late.reward[:, row], expected, rtol=1e-5, atol=1e-5)
        start = 0
        for end in np.flatnonzero(over[:, row]) + 1:
            np.testing.assert_allclose(
                late.reward[start:end, row].sum(dtype=np.float64),
                plain.reward[start:end, row].sum(dtype=np.float64),
                rtol=1e-5,
                atol=1e-5,
            )
            between += (end - start) % 10 != 0
            start = end
    assert between > 0
    assert (plain.terminated if robot == "Walker2d" else plain.truncated).any()


def test_time_outs_are_truncated_and_terminations_win():
    envs = make_mujoco("HalfCheetah", 2, horizon=7)
    envs.reset([0, 1])
    step = run(envs, draw_actions(envs, 15))
    assert not step.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(step.truncated[:, 0]) + 1, [7, 14])

    envs = make_mujoco("Hopper", 1)
    envs.reset([0])
    actions = np.ones((200, 1, 3), np.float32)
    fall = int(np.flatnonzero(run(envs, actions).terminated[:, 0])[0]) + 1
    envs = make_mujoco("Hopper", 1, horizon=fall)
    envs.reset([0])
    last = run(envs, actions[:fall])
    assert last.terminated[-1, 0]
    assert not last.truncated[-1, 0]


def test_next_obs_is_the_observation_before_the_reset():
    envs = make_mujoco("HalfCheetah", 2, horizon=5)
    longer = make_mujoco("HalfCheetah", 2, horizon=6)
    first = envs.reset([0, 1])
    longer.reset([0, 1])
    actions = draw_actions(envs, 5)
    cut, uncut = run(envs, actions), run(longer, actions)
    np.testing.assert_array_equal(cut.next_obs, uncut.next_obs)
    np.testing.assert_array_equal(cut.obs[:-1], cut.next_obs[:-1])
    assert (cut.obs[-1] != cut.next_obs[-1]).any(axis=1).all()
    assert np.abs(cut.obs[-1, :, :8]).max() <= 0.1  # positions within the initial noise
    assert (cut.obs[-1] != first).any(axis=1).all()


@pytest.mark.parametrize("robot", ROBOTS)
def test_seeds_reproduce_and_differ(robot):
    envs = MujocoEnvs(robot, 3)
    obs = envs.reset([7, 8, 7])
    np.testing.assert_array_equal(obs[0], obs[2])
    assert (obs[0] != obs[1]).any()
    np.testing.assert_array_equal(obs, envs.reset([7, 8, 7]))


@pytest.mark.parametrize("task", ["DelayedHopper", "Ant"])
def test_an_environment_among_others_is_the_one_alone(task):
    together = make_mujoco(task, 4, horizon=30, threads=2)
    together.reset([4, 5, 6, 7])
    actions = draw_actions(together, 80)
    crowd = run(together, actions)
    assert (crowd.terminated | crowd.truncated).any()
    for row in (0, 2):
        alone = make_mujoco(task, 1, horizon=30, threads=1)
        alone.reset([4 + row])
        solo = run(alone, actions[:, [row]])
        assert_same(HostStep(*(part[:, [row]] for part in crowd)), solo)


@pytest.mark.parametrize("task", ["DelayedHopper", "SparseHalfCheetah", "Ant", "HumanoidStandup"])
def test_restore_continues_bit_for_bit(task):
    envs = make_mujoco(task, 3, horizon=25)
    envs.reset([1, 2, 3])
    actions = draw_actions(envs, 70)
    past = run(envs, actions[:33])
    file = io.BytesIO()
    np.savez(file, **envs.state())  # without pickle
    cells = envs.visited_cells()
    future = run(envs, actions[33:])
    assert (future.terminated | future.truncated).any()

    file.seek(0)
    state = dict(np.load(file, allow_pickle=False))
    other = make_mujoco(task, 3, horizon=25, threads=1)
    for again in (other, envs):  # a new process, and the same one gone astray
        np.testing.assert_array_equal(again.restore(state), past.obs[-1])
        np.testing.assert_array_equal(again.visited_cells(), cells)
        assert_same(run(again, actions[33:]), future)
        np.testing.assert_array_equal(again.visited_cells(), other.visited_cells())


def test_generators_survive_packing():
    generator = np.random.Generator(np.random.PCG64(3))
    generator.integers(10, dtype=np.int32)  # leaves half a word behind
    (copy,) = unpack_generators(pack_generators([generator]))
    assert copy.bit_generator.state == generator.bit_generator.state
    np.testing.assert_array_equal(copy.standard_normal(5), generator.standard_normal(5))


def test_steps_belong_to_the_caller():
    envs, other = make_mujoco("Hopper", 2), make_mujoco("Hopper", 2)
    for each in (envs, other):
        each.reset([0, 1])
    actions = draw_actions(envs, 3)
    spoilt = envs.step(actions[0])
    for part in spoilt:
        part[:] = 0
    other.step(actions[0])
    assert_same(envs.step(actions[1]), other.step(actions[1]))
    np.testing.assert_array_equal(envs.state()["obs"], other.state()["obs"])


def test_actions_are_rescaled_and_clipped():
    envs = make_mujoco("HumanoidStandup", 2)  # its motors take [-0.4, 0.4]
    envs.reset([0, 0])
    action = np.ones((2, 17), np.float32)
    action[0] = 3.0
    step = envs.step(action)
    np.testing.assert_array_equal(step.next_obs[0], step.next_obs[1])
    env = make_gymnasium("HumanoidStandup")
    env.reset(seed=0)
    expected, *_ = env.step(env.action_space.high)
    np.testing.assert_array_equal(step.next_obs[1], expected.astype(np.float32))


def test_visited_cells():
    side = 2000
    points = np.array([(-9.999, -9.999), (0.005, 0.015), (9.9999, 9.9999), (10.0, 0.0), (0.0, -10.5), (np.nan, 0.0)])
    expected = [0, 1000 * side + 1001, side * side - 1, -1, -1, -1]
    np.testing.assert_array_equal(grid_cells(points), expected)
    edge = np.nextafter(10.0, 0.0)
    assert grid_cells(np.array([(edge, edge)]))[0] == side * side - 1

    envs = make_mujoco("Hopper", 1, horizon=3)
    assert envs.cells == (side, side)
    envs.reset([0])
    for action in draw_actions(envs, 3):
        step = envs.step(action)
    assert step.truncated[0]
    x_cell, z_cell = divmod(int(envs.visited_cells()[0]), side)
    assert z_cell == int((step.next_obs[0, 0] + 10) * 100)  # the height before the reset is the first observation
    assert abs(x_cell - 1000) < 5


def test_the_other_walker():
    """`xml_file` restores v1's foot friction."""
    envs = make_mujoco("Walker2d", 1, xml_file="walker2d.xml")
    env = make_gymnasium("Walker2d", xml_file="walker2d.xml")
    envs.reset([0])
    env.reset(seed=0)
    for action in draw_actions(envs, 60):
        step = envs.step(action)
        expected, _, terminated, _, _ = env.step(action[0])
        np.testing.assert_array_equal(step.next_obs[0], expected.astype(np.float32))
        if terminated:
            env.reset()
    friction = [load_model(name).geom("foot_geom").friction[0] for name in ("walker2d.xml", "walker2d_v5.xml")]
    np.testing.assert_allclose(friction, [0.9, 1.9])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MujocoEnvs("Snake", 2), "unknown robot 'Snake'; known: HalfCheetah, Hopper"),
        (lambda: make_mujoco("SparseSnake", 2), "unknown MuJoCo task 'SparseSnake'; known: HalfCheetah"),
        (lambda: make_mujoco("DelayedHopper", 2, delay=-1), "delay must be a whole number of at least 1; got -1"),
        (lambda: make_mujoco("DelayedHopper", 2, delay=2.5), "delay must be a whole number of at least 1; got 2.5"),
        (lambda: make_mujoco("SparseHopper", 2, threshold=float("nan")), "threshold must be a finite number; got nan"),
        (lambda: make_mujoco("SparseHopper", 2, threshold="far"), "threshold must be a finite number; got 'far'"),
        (lambda: make_mujoco("Hopper", 2, threshold=1.0), "Hopper has no threshold; only the Sparse tasks do"),
        (lambda: make_mujoco("SparseHopper", 2, delay=5), "SparseHopper has no delay; only the Delayed tasks do"),
        (lambda: make_mujoco("Hopper", 0), "num must be a whole number of at least 1; got 0"),
        (lambda: make_mujoco("Hopper", 1, horizon=0), "horizon must be a whole number of at least 1; got 0"),
        (lambda: make_mujoco("Hopper", 1, threads=0), "threads must be a whole number of at least 1; got 0"),
        (lambda: make_mujoco("Hopper", 1, xml_file="no.xml"), "no MuJoCo model 'no.xml'"),
        (lambda: MujocoEnvs("Hopper", 1, "sparse"), "reward must be Dense"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(UsageError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_bad_calls():
    envs = make_mujoco("Hopper", 2)
    with pytest.raises(UsageError, match="call reset"):
        envs.step(np.zeros((2, 3)))
    with pytest.raises(UsageError, match="2 environments, 3 seeds"):
        envs.reset([1, 2, 3])
    with pytest.raises(UsageError, match="a seed must be a whole number of at least 0; got -1"):
        envs.reset([1, -1])
    envs.reset([1, 2])
    with pytest.raises(UsageError, match=r"actions must have shape \(2, 3\).*got \(3,\)"):
        envs.step(np.zeros(3))
    bad = np.zeros((2, 3))
    bad[1, 2] = np.nan
    with pytest.raises(UsageError, match="the action of environment 1 is"):
        envs.step(bad)
    state = envs.state()
    with pytest.raises(UsageError, match="'physics' of the state must be float64"):
        make_mujoco("Ant", 2).restore(state)
    del state["random"]
    with pytest.raises(UsageError, match="the state has no 'random'"):
        envs.restore(state)
    envs.close()
    envs.close()
    with pytest.raises(UsageError, match="closed"):
        envs.reset([1, 2])


@pytest.fixture(scope="module")
def registered():
    register()
    register()  # again, without a warning about overriding
    return list(IDS)


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
@pytest.mark.parametrize("name", VARIANTS)
def test_registered_environments_pass_gymnasiums_checks(registered, name):
    env = gym.make(f"dac/{name}-v0")
    assert env.spec.max_episode_steps == HORIZON
    check_env(env.unwrapped, skip_render_check=True)
    with pytest.warns(UserWarning, match="is different from the unwrapped version"):
        check_env(env, skip_render_check=True)  # with the wrapper that makes the task
    env.close()


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
def test_rendering(registered):
    if not can_draw():
        pytest.skip("no OpenGL here")
    env = gym.make("dac/SparseHopper-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    frame = env.render()
    env.close()
    assert frame.shape == (48, 64, 3)
    assert frame.dtype == np.uint8
    assert frame.std() > 5
    check_env(gym.make("dac/DelayedHopper-v0", width=32, height=32).unwrapped)


@pytest.mark.parametrize(
    ("name", "kwargs"), [("SparseHopper", {"threshold": 0.01}), ("DelayedHopper", {"delay": 7}), ("DelayedAnt", {})]
)
def test_registered_and_vector_tasks_agree(registered, name, kwargs):
    env = gym.make(f"dac/{name}-v0", max_episode_steps=33, **kwargs)
    envs = make_mujoco(name, 1, horizon=33, **kwargs)
    env.reset(seed=2)
    envs.reset([2])
    for action in draw_actions(envs, 120):
        step = envs.step(action)
        obs, reward, terminated, truncated, _ = env.step(action[0])
        np.testing.assert_array_equal(step.next_obs[0], obs.astype(np.float32))
        assert step.reward[0] == np.float32(reward)
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated and not terminated)
        if terminated or truncated:
            env.reset()


def test_registered_environments_refuse_bad_arguments(registered):
    with pytest.raises(UsageError, match="delay must be a whole number"):
        gym.make("dac/DelayedHopper-v0", delay=-1)
    with pytest.raises(UsageError, match="DelayedHopper has no threshold"):
        gym.make("dac/DelayedHopper-v0", threshold=1.0)
    again = gym.make(gym.make("dac/SparseHopper-v0", threshold=2.0).spec)
    assert again.spec.kwargs["threshold"] == 2.0


def test_the_maze_does_not_need_mujoco():
    program = (
        "import sys, dac.envs.maze; assert not {'mujoco', 'gymnasium'} & set(sys.modules);"
        "import dac.envs.registration; assert 'mujoco' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("900000 100000", 8), ("?", 8)]
)
@pytest.mark.parametrize("version", [1, 2])
def test_threads_are_as_many_as_the_cores_that_may_be_used(limit, cores, version, monkeypatch, tmp_path):
    """One per core of the machine would take turns where a container has fewer."""
    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert host.usable_cores() == 8  # no such file
    if version == 2:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    else:
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(limit.split()[0].replace("max", "-1") + "\n")
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert host.usable_cores() == cores
