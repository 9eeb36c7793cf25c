"""The tasks of the DeepMind Control suite: what dm_control recorded, starts, state, and one line for what is wrong."""

import copy
import functools
import importlib.util
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dac.core.types import UsageError
from dac.envs.dmc import envs as module
from dac.envs.dmc import files
from dac.envs.dmc.domain import begin_episode
from dac.envs.dmc.envs import DmcEnvs, make_dmc
from dac.envs.dmc.names import ENTRIES
from dac.envs.ids import dmc_id
from tests.common import can_draw
from tests.envs.dmc.record import RECORDED

SOME = ["cartpole-swingup_sparse", "finger-turn_hard", "point_mass-hard", "quadruped-fetch", "manipulator-insert_peg"]
"""Tasks of every kind: with and without a model that changes, a random choice, muscles."""
HEAVY = [f"dog-{task}" for task in ("stand", "walk", "trot")]
EVERY = [pytest.param(name, marks=pytest.mark.slow) if name in HEAVY else name for name in ENTRIES]


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    """A task's model takes up to seconds to compile: every test has a copy of the first one."""
    first = functools.cache(module.make_domain)

    def again(name):
        domain = copy.copy(first(name))
        domain.model = copy.copy(domain.model)
        return domain

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "make_domain", again)
        patch.setattr("dac.envs.dmc.single.make_domain", again)
        yield again


@pytest.fixture(scope="module")
def recorded():
    with np.load(RECORDED) as file:
        return dict(file)


def draw_actions(envs, steps, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, envs.num, envs.spec.action_size)).astype(np.float32)


def play(envs, actions):
    return [array for action in actions for array in envs.step(action)]


def same(left, right):
    return all(np.array_equal(ours, theirs) for ours, theirs in zip(left, right, strict=True))


@pytest.mark.parametrize("name", EVERY)
def test_observations_and_rewards_are_those_that_dm_control_recorded(name, recorded, compiled_once):
    """States, controls and sensors are dm_control's; all else is computed from them by the MuJoCo that is installed."""
    import mujoco

    domain = compiled_once(name)
    data = mujoco.MjData(domain.model)
    kept = {key.partition("/")[2]: value for key, value in recorded.items() if key.startswith(f"{name}/")}
    assert len(kept["reward"]) == 3
    for row in range(3):
        for field in set(domain.varies) & set(kept):
            getattr(domain.model, field)[:] = kept[field][row]
        for field in ("qpos", "qvel", "act", "ctrl"):
            getattr(data, field)[:] = kept[field][row]
        mujoco.mj_forward(domain.model, data)
        world = {field: getattr(data, field)[None] for field in domain.everything} | {
            "sensordata": kept["sensordata"][row][None]
        }
        obs = np.concatenate([part[0] for part in domain.observe(world)])
        np.testing.assert_allclose(obs, kept["obs"][row], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(domain.earn(world)[0], kept["reward"][row], rtol=1e-9, atol=1e-9)


def test_the_recorded_states_were_paid(recorded):
    """Else the comparison would say little of the rewards: the best state of all but a few tasks earned something."""
    unpaid = {name for name in ENTRIES if recorded[f"{name}/reward"].max() < 1e-3}
    assert unpaid <= {"humanoid-run", "hopper-hop"}


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")
@pytest.mark.filterwarnings("ignore:.*For Box action spaces:UserWarning")  # the quadruped's controls end at 1.1
@pytest.mark.parametrize("name", EVERY)
def test_one_environment_is_a_row_and_passes_gymnasiums_checks(name):
    env, envs = gym.make(dmc_id(name)), make_dmc(name, 2, horizon=1000, threads=1)
    check_env(env.unwrapped, skip_render_check=True)
    assert envs.spec == ENTRIES[name].spec
    obs, first = env.reset(seed=4)[0], envs.reset([3, 4])
    np.testing.assert_array_equal(first[1], obs)
    for action in draw_actions(envs, 4):
        step = envs.step(action)
        obs, reward, terminated, truncated, _ = env.step(envs.bounds.stretch(action[1]))
        np.testing.assert_array_equal(step.next_obs[1], obs)
        assert step.reward[1] == np.float32(reward)
        assert (step.terminated[1], step.truncated[1]) == (terminated, truncated)
    state = envs.state()
    after = play(envs, draw_actions(envs, 3, 1))
    assert np.isfinite(np.concatenate([array.ravel() for array in after])).all()
    envs.restore(state)
    assert same(play(envs, draw_actions(envs, 3, 1)), after)
    env.close()


@pytest.mark.parametrize("name", SOME)
def test_saved_in_the_middle_and_restored_elsewhere(name):
    """Across ends of episodes, so that the generators and what was drawn into the models are saved too."""
    envs, other = make_dmc(name, 3, horizon=7), make_dmc(name, 3, horizon=7)
    envs.reset([1, 2, 3])
    play(envs, draw_actions(envs, 10))
    state, actions = envs.state(), draw_actions(envs, 12, 1)
    seen = play(envs, actions)
    other.reset([7, 8, 9])
    play(other, draw_actions(other, 5))
    np.testing.assert_array_equal(other.restore(state), state["obs"])
    assert same(play(other, actions), seen)
    assert same(other.state().values(), envs.state().values())


@pytest.mark.parametrize("name", SOME)
def test_a_member_depends_on_its_own_seed_and_actions_alone(name):
    many, one = make_dmc(name, 3, horizon=5, threads=2), make_dmc(name, 1, horizon=5)
    first = many.reset([5, 6, 7])
    np.testing.assert_array_equal(one.reset([6]), first[1:2])
    assert not np.array_equal(first[0], first[2])
    for action in draw_actions(many, 12):
        step, alone = many.step(action), one.step(action[1:2])
        assert same([array[1:2] for array in step], alone)
    again = many.reset([5, 6, 7])
    np.testing.assert_array_equal(again, first)


def test_a_time_out_is_truncated_and_begins_anew():
    envs = make_dmc("reacher-easy", 1, horizon=3)
    envs.reset([0])
    steps = [envs.step(action) for action in draw_actions(envs, 6)]
    assert [bool(step.truncated[0]) for step in steps] == [False, False, True] * 2
    assert not any(step.terminated[0] for step in steps)
    assert not np.array_equal(steps[2].obs, steps[2].next_obs)
    np.testing.assert_array_equal(steps[1].obs, steps[1].next_obs)


def test_an_episode_can_be_broken_off():
    envs = make_dmc("reacher-easy", 3)
    first = envs.reset([0, 1, 2])
    restarted = envs.restart(np.array([2, 0]))
    step = envs.step(np.zeros((3, 2), np.float32))
    assert not np.array_equal(restarted[0], first[2])
    np.testing.assert_allclose(step.next_obs[[2, 0], 2:4], restarted[:, 2:4], atol=0.02)  # to the target, still


def test_the_one_task_with_an_end_terminates():
    envs = make_dmc("lqr-lqr_2_1", 2)
    envs.reset([0, 1])
    envs._batch.state[1] = 0.0
    step = envs.step(np.zeros((2, 1), np.float32))
    assert step.terminated.tolist() == [False, True]
    assert not step.truncated.any()
    assert step.reward[1] == 1
    np.testing.assert_allclose(np.square(step.obs[1, :2]).sum(), 2, rtol=1e-6)  # it began anew, on the circle


def test_a_simulation_that_diverges_is_cut_and_said():
    envs = make_dmc("cartpole-balance", 2)
    first = envs.reset([0, 1])
    envs.world["qvel"][1] = 1e30
    with pytest.warns(UserWarning, match="dmc:cartpole-balance: a simulation diverged"):
        step = envs.step(np.zeros((2, 1), np.float32))
    assert step.truncated.tolist() == [False, True]
    assert step.reward[1] == 0
    np.testing.assert_array_equal(step.next_obs[1], first[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(envs.step(np.zeros((2, 1), np.float32)).next_obs).all()


@pytest.mark.parametrize(
    ("name", "column", "low", "high"),
    [
        ("cartpole-balance", 0, -0.1, 0.1),  # the cart, uniform
        ("reacher-easy", 0, -np.pi, np.pi),  # the first joint
        ("fish-upright", 0, -0.2, 0.2),  # the tail
    ],
)
def test_starts_fill_their_range_evenly(name, column, low, high):
    """Kolmogorov and Smirnov's distance from the uniform distribution, for 400 episodes."""
    envs = make_dmc(name, 400, threads=1)
    places = np.sort((envs.reset(range(400))[:, column] - low) / (high - low))
    assert places[0] >= 0
    assert places[-1] <= 1
    assert np.abs(places - (np.arange(400) + 0.5) / 400).max() < 0.085  # exceeded by one seed in two hundred


def test_the_same_draws_in_dm_controls_order(compiled_once):
    """Worked out by hand from its text: what RandomState(0) gives to the cart, the pole and their velocities."""
    import mujoco

    domain, draws = compiled_once("cartpole-swingup"), np.random.RandomState(0).randn(4)
    data = mujoco.MjData(domain.model)
    begin_episode(domain, domain.model, data, np.random.RandomState(0))
    np.testing.assert_array_equal(data.qpos, [0.01 * draws[0], np.pi + 0.01 * draws[1]])
    np.testing.assert_array_equal(data.qvel, 0.01 * draws[2:])


def test_drawing():
    if not can_draw():
        pytest.skip("no OpenGL here")
    env = gym.make(dmc_id("reacher-easy"), render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (48, 64, 3)
    assert frame.std() > 5
    assert env.metadata["render_fps"] == 50
    env.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_dmc("cartpole-swingup-sparse", 1), "did you mean cartpole-swingup_sparse"),
        (lambda: make_dmc("reacher-easy", 0), "num must be a whole number of at least 1; got 0"),
        (lambda: make_dmc("reacher-easy", 1, horizon=0), "horizon must be a whole number"),
        (lambda: make_dmc("reacher-easy", 1).step(np.zeros((1, 2))), "call reset"),
        (lambda: gym.make(dmc_id("reacher-easy"), camera=7), "camera must be below 2 or one of fixed, hand; got 7"),
        (lambda: gym.make(dmc_id("reacher-easy"), render_mode="ascii"), "render_mode must be one of"),
        (lambda: gym.make(dmc_id("reacher-easy")).unwrapped.render(), "give render_mode="),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_bad_arguments(make, message):
    with pytest.raises(UsageError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_bad_calls():
    envs = make_dmc("reacher-easy", 2)
    envs.reset([1, 2])
    with pytest.raises(UsageError, match=r"actions must have shape \(2, 2\)"):
        envs.step(np.zeros(2))
    with pytest.raises(UsageError, match="2 environments, 1 seeds"):
        envs.reset([1])
    state = envs.state()
    with pytest.raises(UsageError, match="the state has no 'geom_pos'"):
        envs.restore({name: array for name, array in state.items() if name != "geom_pos"})
    envs.close()
    envs.close()
    with pytest.raises(UsageError, match="closed"):
        envs.reset([1, 2])


@pytest.fixture
def fresh_files():
    files.read.cache_clear()
    yield
    files.read.cache_clear()


def test_what_is_missing_or_does_not_fit_is_one_line(monkeypatch, tmp_path, fresh_files):
    make = DmcEnvs.__init__.__globals__["make_domain"]
    assert make is module.make_domain
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match=r"needs the extra 'dmc': pip install 'diversity-actor-critic\[dmc\]'"):
            files.suite_folder()
    spec = importlib.util.spec_from_file_location(
        "dm_control", tmp_path / "x.py", submodule_search_locations=[str(tmp_path)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(UsageError, match=r"has no suite/cartpole\.xml; reinstall it"):
        files.suite_folder()
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "cartpole.xml").write_text("<mujoco/>")
    with pytest.raises(UsageError, match="this package knows dm_control"):
        files.find(files.parse("cartpole.xml"), "body", "pole_1")
