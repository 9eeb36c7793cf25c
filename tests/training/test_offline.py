"""An offline dataset beside the ring: what is drawn, in both loops, what is learnt from it, and what is refused."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer

import dac
from dac.algorithms import ALGORITHMS, AbstractOffPolicy, make_algorithm, off_policy
from dac.cli import main
from dac.config import resolve
from dac.core import replay
from dac.core.keys import member_key
from dac.core.population import grid, pick
from dac.core.types import EnvSpec, UsageError, row_size
from dac.envs.bounds import ActionBounds
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from dac.training.offline import load_offline
from dac.training.step import fresh_state, learn
from tests.common import everything, schedule, tiny
from tests.training.test_watchers import Diary

TINY = {"hidden": (8, 8), "batch_size": 16, "eval_every": 50, "checkpoint_every": 50, "steps": 100}
ONE_LOOK = {"eval_every": 1000, "eval_episodes": 1, "offline_share": 1.0}
UNIT = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
LINE = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def write(name, obs, actions, rewards, observations=LINE, space=UNIT):
    """A dataset of one episode, every step of which terminates, as those of the task `target` do."""
    steps = len(rewards)
    episode = EpisodeBuffer(
        observations=np.concatenate([obs, obs[-1:]]),
        actions=actions,
        rewards=rewards,
        terminations=np.ones(steps, bool),
        truncations=np.zeros(steps, bool),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            name, [episode] if steps else [], observation_space=observations, action_space=space
        )
    return f"minari:{name}"


def targets(name, reward, low=-1.0, count=300):
    """States and actions of the task `target`, with a reward of our own."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
    actions = rng.uniform(low, 1, (count, 1)).astype(np.float32)
    return write(name, obs, actions, reward(obs, actions)[:, 0])


def test_the_share_is_drawn_from_the_dataset_and_never_more_than_there_is_from_the_ring():
    capacity, mix = 50, replay.Mix(0.25, 30)

    def draw(count, key=0, size=40, mix=mix):
        return np.asarray(replay.sample_mixed(capacity, jnp.int32(count), jax.random.key(key), size, mix))

    for count, online in [(0, 0), (3, 3), (20, 20), (30, 30), (45, 30), (500, 30)]:
        drawn = draw(count)
        assert (drawn < capacity).sum() == online
        assert set(drawn[drawn < capacity]) <= set(range(min(count, capacity)))
        assert drawn.max() < capacity + 30
    np.testing.assert_array_equal(draw(45)[:30], replay.sample_indices(50, jnp.int32(45), jax.random.key(0), 40)[:30])
    many = draw(10**6, size=40_000)
    counts = np.bincount(many[many >= capacity] - capacity, minlength=30)
    assert abs(counts - 10_000 / 30).max() < 5 * np.sqrt(10_000 / 30)
    assert (draw(500, mix=replay.Mix(1.0, 30)) >= capacity).all()
    assert not np.array_equal(draw(500, key=1), draw(500))


def test_rows_are_gathered_from_both():
    ring, dataset = jnp.arange(8.0).reshape(4, 2), 100 + jnp.arange(6.0).reshape(3, 2)
    positions = jnp.array([[0, 4], [3, 6]])
    expected = [[[0, 1], [100, 101]], [[6, 7], [104, 105]]]
    np.testing.assert_array_equal(replay.gather(ring, positions, dataset), expected)


def mazes(num):
    return make_gymnasium("dac/FourRoomMaze-v0", num)


def maze_rows(count=90):
    rng = np.random.default_rng(1)
    rows = rng.uniform(0, 1, (count, row_size(FourRoomMaze.spec))).astype(np.float32)
    rows[:, 5:7] = 0
    return rows


@pytest.fixture(scope="module")
def loops():
    """The device loop and the host loop with its replay buffer in either memory, after as many steps."""
    members, sched = grid([0, 3], {"alpha": [0.5]}), schedule(100, random_steps=0, update_after=1, offline_share=0.5)
    settings = {"dataset": maze_rows()}
    made = [
        DeviceLoop(tiny(), FourRoomMaze(), members, sched, **settings),
        *(HostLoop(tiny(), mazes, members, sched, host_replay=place, **settings) for place in (False, True)),
    ]
    for loop in made:
        loop.advance(60)
    yield made
    for loop in made:
        loop.close()


def test_all_loops_learn_the_same_from_a_dataset(loops):
    device, *hosts = loops
    metrics = device.measure()
    for host in hosts:
        np.testing.assert_allclose(device.latest_rows(0), host.latest_rows(0), atol=2e-3)
        ours, theirs = (jax.tree.leaves(loop.policies()) for loop in (device, host))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-3)
        measured = host.measure()
        for name, values in metrics.items():
            np.testing.assert_allclose(values, measured[name], rtol=2e-2, atol=2e-2, err_msg=name)
    one, other = (everything(loop) for loop in hosts)
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_another_dataset_leads_elsewhere(loops):
    """The host's reference is not enough: with other rows in the dataset the same loop learns something else."""
    device = loops[0]
    other = DeviceLoop(tiny(), FourRoomMaze(), device.members, device.schedule, dataset=maze_rows() + np.float32(0.5))
    other.advance(60)
    ours, theirs = (np.asarray(loop.policies().mlp.weights[0]) for loop in (device, other))
    assert np.abs(ours - theirs).max() > 1e-3
    other.close()


@pytest.mark.parametrize("name", [*off_policy(), "dac-window"])
def test_every_off_policy_algorithm_takes_a_dataset(name):
    spec = EnvSpec(obs_size=3, action_size=2)
    name, settings = ("dac", {"q_window": 10}) if name == "dac-window" else (name, {})
    algorithm = make_algorithm(name, ALGORITHMS[name].bonus, {"hidden": (8, 8), "batch_size": 16} | settings)
    assert isinstance(algorithm, AbstractOffPolicy)
    key = member_key(0)

    def once(key):
        state = fresh_state(algorithm, key, spec)
        ring, dataset = replay.empty(20, spec), jnp.zeros((7, row_size(spec)))
        return state, learn(algorithm, state, ring, key, jnp.int32(5), jnp.int32(5), spec, 2, 1, 0.5, dataset)

    with jax.numpy_rank_promotion("raise"):
        before, after = jax.eval_shape(once, key)
    assert jax.tree.structure(before) == jax.tree.structure(after)


def greedy(run):
    """States, and the best guesses there of every member, (member, state)."""
    policies, key, states = run.policies(), jax.random.key(0), np.linspace(-0.9, 0.9, 7, dtype=np.float32)

    def act(policy):
        return jax.vmap(lambda s: policy.act(s[None], key, explore=False)[0])(states)

    return states, np.stack([np.asarray(act(pick(policies, k))) for k in range(len(run.members))])


def test_what_is_learnt_comes_from_the_dataset(tmp_path):
    """The dataset rewards -s/2, the task s/2: who learns from the dataset alone does what the dataset says."""
    name = targets("target/opposite-v0", lambda s, a: -((a + s / 2) ** 2))
    settings = ONE_LOOK | {"steps": 500, "init_replay": name, "learning_rate": 3e-3}
    run = dac.train("td3", "target", seeds=range(2), out=tmp_path / "run", **settings)
    states, actions = greedy(run)
    error = actions + states / 2
    assert np.abs(error).mean() < 0.15
    assert np.abs(actions - states / 2).mean() > 0.3
    config = resolve(file=run.directory / "config.toml").training
    assert config.init_replay.startswith(f"{name}@")
    assert (config.random_steps, config.update_after) == (0, 1)


@pytest.mark.slow
def test_dac_explores_away_from_what_the_dataset_holds(tmp_path):
    """Its actions are all positive, and nothing is rewarded: the mixture's entropy asks for negative ones."""
    name = targets("target/positive-v0", lambda s, a: 0 * s, low=0.0)
    settings = ONE_LOOK | {"steps": 300, "init_replay": name, "beta": 1.0}
    run = dac.train("dac", "target", seeds=range(2), alpha=[0.5, 1.0], out=tmp_path / "run", **settings)
    _, actions = greedy(run)
    away = actions.reshape(2, 2, -1).mean(axis=(1, 2))
    assert away[0] < -0.2
    assert abs(away[1]) < 0.1  # SAC does not see the difference


def hoppers(name, scale=1.0):
    """Transitions that no robot made, of the right sizes."""
    rng, box = np.random.default_rng(0), gymnasium.spaces.Box(-np.inf, np.inf, (11,), np.float32)
    obs, actions = (rng.uniform(-1, 1, (40, size)).astype(np.float32) for size in (11, 3))
    return write(name, obs, actions, scale * obs[:, 0], box, gymnasium.spaces.Box(-1, 1, (3,), np.float32))


@pytest.mark.parametrize(("task", "replay"), [("maze", "auto"), ("SparseHopper", "host")])
def test_a_run_goes_on_to_the_bit(task, replay, tmp_path, caplog):
    if task == "maze":
        rows, box = maze_rows(), gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        name = write("some/data-v0", rows[:, :2], rows[:, 2:4], rows[:, 4], gymnasium.spaces.Box(0, 100, (2,)), box)
    else:
        name = hoppers("some/data-v0")
    settings = TINY | {"init_replay": name, "seeds": [0, 1], "replay": replay}
    caplog.set_level("INFO", "dac")
    stopped = dac.train("td3", task, out=tmp_path / "run", watchers=[Diary(stop_at=50)], **settings)
    assert "50% of every batch" in caplog.text
    again = dac.resume(stopped.directory)
    whole = dac.train("td3", task, out=tmp_path / "whole", **settings)
    for file in ("metrics.csv", "policy.safetensors"):
        assert (again.directory / file).read_bytes() == (whole.directory / file).read_bytes()
    assert (whole.metrics["updates"][-1] == 99).all()  # all but the first step
    if task == "maze":
        return
    minari.delete_dataset("some/data-v0")
    with pytest.raises(UsageError, match=r"no dataset some/data-v0 in Minari's local folder .*: minari download some"):
        dac.resume(stopped.directory, steps=150)
    hoppers("some/data-v0", scale=2.0)
    with pytest.raises(UsageError, match="the dataset some/data-v0 was changed: its checksum is"):
        dac.resume(stopped.directory, steps=150)


def test_what_does_not_fit_is_one_line(tmp_path, capsys):
    spec, bounds = EnvSpec(obs_size=1, action_size=1), ActionBounds.unit(1)
    one = np.zeros((1, 1), np.float32)
    name = write("our/good-v0", one, one, [1.0])

    def refuse(name, words, spec=spec, bounds=bounds):
        with pytest.raises(UsageError, match=words) as caught:
            load_offline(name, spec, bounds)
        assert "\n" not in str(caught.value)

    refuse(name, "its observations have 1 entries, the task's 2", spec=EnvSpec(obs_size=2, action_size=1))
    refuse(name, "its actions have 1 entries, the task's 2", EnvSpec(1, 2), ActionBounds.unit(2))
    wide = ActionBounds(np.array([-2.0]), np.array([2.0]), np.dtype(np.float32), (1,))
    refuse(name, r"its actions are from \[-1.0\] to \[1.0\], the task's from \[-2.0\] to \[2.0\]", bounds=wide)
    nan = write("our/nan-v0", one, one, [np.nan])
    refuse(nan, "the dataset our/nan-v0 has numbers that are not finite, the first in episode 0")
    refuse("minari:our/none-v0", "no dataset our/none-v0 in Minari's local folder")
    refuse(write("our/empty-v0", one, one, []), "the dataset our/empty-v0 is empty")
    discrete = write("our/discrete-v0", one, one[0].astype(int), [1.0], space=gymnasium.spaces.Discrete(3))
    refuse(discrete, r"its actions are Discrete\(3\), not a Box")
    (tmp_path / "datasets/our/good-v0/data/main_data.hdf5").write_bytes(b"no")
    refuse(name, "cannot read the dataset our/good-v0: ")
    for arguments, words in [
        (
            ["ppo", "target", "--init-replay", "minari:our/nan-v0"],
            "ppo learns on-policy and takes no init_replay (accepted",
        ),
        (["dac", "target", "--init-replay", "our/nan-v0"], "init_replay must be none or minari:ID"),
        (["dac", "target", "--offline-share", "0.7"], "offline_share is the share of a dataset: give init_replay"),
        (
            ["dac", "target", "--init-replay", nan, "--offline-share", "0"],
            "offline_share must be a number from 0.01 to 1",
        ),
        (["dac", "maze", "--init-replay", nan], "its observations have 1 entries, the task's 2"),
    ]:
        assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_rows_are_laid_out_as_those_of_the_environments():
    """Dict observations in the environment's order, actions back in [-1, 1], a termination before a time-out."""
    spaces = gymnasium.spaces
    observations = spaces.Dict({"b": spaces.Box(-9, 9, (2,), np.float32), "a": spaces.Box(-9, 9, (), np.float32)})
    actions = spaces.Box(np.float32([0, -3]), np.float32([10, -1]))
    episode = EpisodeBuffer(
        observations={"a": np.float32([1, 2, 3]), "b": np.float32([[4, 5], [6, 7], [8, 9]])},
        actions=np.float32([[0, -1], [7.5, -2]]),
        rewards=[0.5, 1.5],
        terminations=[False, True],
        truncations=[False, True],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            "our/dict-v0", [episode], observation_space=observations, action_space=actions
        )
    found = load_offline("minari:our/dict-v0", EnvSpec(3, 2), ActionBounds.of(actions))
    first, second = [1, 4, 5, -1, 1, 0.5, 0, 0, 2, 6, 7], [2, 6, 7, 0.5, 0, 1.5, 1, 0, 3, 8, 9]
    np.testing.assert_allclose(found.rows, [first, second], atol=1e-6)
    assert gymnasium.spaces.flatten(observations, {"a": 1, "b": [4, 5]}).tolist() == first[:3]
    assert found.episodes == 1
    assert load_offline(found.name, EnvSpec(3, 2), ActionBounds.of(actions)).name == found.name
    wrong = found.name[:-1] + ("0" if found.name[-1] != "0" else "1")
    with pytest.raises(UsageError, match="was changed"):
        load_offline(wrong, EnvSpec(3, 2), ActionBounds.of(actions))


def test_what_the_user_gives_comes_before_what_a_dataset_implies():
    asked = {"init_replay": "minari:our/b-v0", "random_steps": 7}
    training = resolve("sac", "SparseHalfCheetah", 0, asked).training
    assert (training.random_steps, training.update_after) == (7, 1)
    plain = resolve("sac", "SparseHalfCheetah", 0, {})
    assert (plain.training.random_steps, plain.training.update_after) == (10_000, 1000)
    assert plain.schedule().offline_share == 0
    assert resolve("sac", "SparseHalfCheetah", 0, asked).fingerprint() != plain.fingerprint()
