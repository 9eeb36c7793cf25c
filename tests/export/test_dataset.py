"""Replay buffers as Minari datasets: whole episodes, read back equal."""

import shutil

import gymnasium
import minari
import numpy as np
import pytest

import dac
from dac.cli import main
from dac.core.types import UsageError
from dac.envs.bounds import ActionBounds
from dac.envs.gymnasium import GymnasiumEnvs
from dac.export import to_minari, to_numpy
from dac.export.dataset import default_id, read_episodes
from dac.rundir.checkpoints import restore_latest
from dac.tasks import find_task
from tests.training.test_watchers import Diary

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 20, "random_steps": 20, "eval_every": 1000}


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


class Counting(gymnasium.Env):
    """Ends by itself after five steps, is cut after three on odd episodes, and takes actions of a shape and range."""

    observation_space = gymnasium.spaces.Dict(
        {"b": gymnasium.spaces.Box(-9, 9, (2,)), "a": gymnasium.spaces.Box(-9, 9, ())}
    )
    action_space = gymnasium.spaces.Box(np.array([[0.0, -3.0]]), np.array([[10.0, -1.0]]), dtype=np.float64)
    done = None
    made = 0

    def __init__(self):
        self.episode = 0
        Counting.made += 1
        self.trains = Counting.made <= 4  # the others are for evaluations, and to try whether it can be saved

    def _obs(self):
        return {"a": np.float32(self.t), "b": self.np_random.normal(size=2).astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        if Counting.done is not None and self.trains:
            Counting.done.append(action)
        self.t += 1
        cut = self.episode % 2 == 1 and self.t == 3
        return self._obs(), float(action.sum()), self.t == 5, cut, {}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Two members with two environments each, on which everything there is to write occurs; and its actions."""
    Counting.done, Counting.made = [], 0
    out = tmp_path_factory.mktemp("run") / "my.run"
    run = dac.train("td3", Counting, seeds=[3, 4], envs=2, steps=60, out=out, **TINY)
    done, Counting.done = Counting.done, None
    return run, done


def rows_of(run, member):
    """The ring of a member and the rows that wait, (iteration, env, row), read without the exporter."""
    found = restore_latest(run.directory, run.config.fingerprint(), lambda c: None, pytest.fail)
    _, arrays, pieces = found
    rows = np.concatenate([piece[member] for _, piece in pieces])
    envs = run.config.training.envs
    size = rows.shape[1]
    waiting = arrays["packed"][member][:, :size]
    return np.concatenate([rows, waiting]).reshape(-1, envs, size)


def test_a_dataset_is_read_back_equal(counted):
    run, done = counted
    dataset = to_minari(run, "own/counting-v0", member=1)
    again = minari.load_dataset("own/counting-v0")
    episodes = list(again.iterate_episodes())
    rows, spec = rows_of(run, 1), find_task(run.config.task).spec()
    assert rows.shape[:2] == (30, 2)  # every step that was taken, also the last
    assert again.total_steps == dataset.total_steps == 60
    assert [len(e.rewards) for e in episodes] == 2 * [3, 5, 3, 5, 3, 5, 3, 3]
    n, a = spec.obs_size, spec.action_size
    first = {"obs": [], "action": []}
    for env in range(2):
        mine = episodes[8 * env : 8 * env + 8]
        assert [e.observations.shape for e in mine] == [(len(e.rewards) + 1, n) for e in mine]
        np.testing.assert_array_equal(np.concatenate([e.observations[:-1] for e in mine]), rows[:, env, :n])
        np.testing.assert_array_equal(np.concatenate([e.observations[1:] for e in mine]), rows[:, env, -n:])
        np.testing.assert_array_equal(np.concatenate([e.rewards for e in mine]), rows[:, env, n + a])
        np.testing.assert_array_equal(np.concatenate([e.terminations for e in mine]), rows[:, env, n + a + 1])
        truncations = np.concatenate([e.truncations for e in mine])
        np.testing.assert_array_equal(truncations[:-1], rows[:-1, env, n + a + 2])
        assert truncations[-1]  # the run ended in this episode
        assert all(e.terminations[-1] or e.truncations[-1] for e in mine)
        assert not any(e.terminations[:-1].any() or e.truncations[:-1].any() for e in mine)
        # what the environments were given, to the bit
        taken = np.concatenate([e.actions for e in mine])
        assert taken.dtype == np.float64
        given = done_by(done, env)
        np.testing.assert_array_equal(taken, given)
        first["obs"].append(mine[0].observations[0])
    assert again.action_space == Counting.action_space
    assert not np.array_equal(*first["obs"])


def done_by(done, env):
    """The actions of member 1's environment: the four training environments are stepped in turns."""
    training = done[: 4 * 30]  # the evaluation, at the end of the run, comes after them
    return np.array(training[2 + env :: 4])


def test_seeds_begin_the_episodes_again(counted):
    run, _ = counted
    to_minari(run, "own/counting-v0", member=0)
    dataset = minari.load_dataset("own/counting-v0")
    seeds = [metadata.get("seed") for metadata in dataset.storage.get_episode_metadata(range(dataset.total_episodes))]
    assert [seed is not None for seed in seeds] == 2 * ([True] + 7 * [False])  # seeded once, it then draws on
    assert len(set(seeds)) == 3
    for number in (0, 8):
        obs, _ = Counting().reset(seed=seeds[number])
        episode = dataset[number]
        np.testing.assert_array_equal(episode.observations[0], [obs["a"], *obs["b"]])


def test_names_and_what_is_there_already(counted, capsys):
    run, _ = counted
    assert default_id(run, 1) == "python-tests-export-test_dataset-Counting/my-run_member1-v0"
    command = ["export", str(run.directory), "--format", "minari", "--member", "1"]
    assert main(command) == 0
    name = default_id(run, 1)
    assert capsys.readouterr().out == f"minari:{name}: 60 steps, episodes: 16\n"
    assert main(command) == 2
    assert f"the dataset {name} exists already" in capsys.readouterr().err
    assert main([*command, "--force"]) == 0
    assert minari.load_dataset(name).total_episodes == 16
    for bad in ("no version", "../up-v0", "/abs-v0", "x"):
        with pytest.raises(UsageError, match="id must be like maze/my-run-v0"):
            to_minari(run, bad)


def test_a_failed_write_leaves_nothing(counted, monkeypatch, tmp_path):
    run, _ = counted

    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(minari.dataset._storages.hdf5_storage.HDF5Storage, "update_episodes", full)
    with pytest.raises(UsageError, match=r"cannot write .*full-v0: No space left on device"):
        to_minari(run, "own/full-v0")
    assert not (tmp_path / "datasets/own/full-v0").exists()


def test_what_the_ring_has_overwritten_the_beginning_of_is_left_out(tmp_path, capsys):
    run = dac.train("td3", Counting, steps=50, capacity=22, checkpoint_every=7, out=tmp_path / "run", **TINY)
    dataset = to_minari(run, "own/wrapped-v0")
    # 50 steps are episodes of 3, 5, 3, 5, ...; the ring of 22 and the step that waits begin at step 27, in the episode
    # of steps 24 to 26 or just after it
    episodes = list(read_episodes(run, find_task(run.config.task), 0))
    assert [episode.begun for episode in episodes] == [False] + (len(episodes) - 1) * [True]
    assert sum(len(episode.steps.reward) for episode in episodes) == 23
    left_out = len(episodes[0].steps.reward)
    assert dataset.total_steps == 23 - left_out
    assert main(["export", str(run.directory), "--format", "minari", "--out", "own/wrapped-v1"]) == 0
    assert f"; {left_out} older ones left out" in capsys.readouterr().out
    np.testing.assert_array_equal([e.observations[0, 0] for e in dataset.iterate_episodes()], 0)  # each from its start


def test_a_resumed_run_has_a_cut_where_its_environments_began_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(GymnasiumEnvs, "unsaved", "as if it could not be")
    settings = TINY | {"steps": 120, "checkpoint_every": 50, "eval_every": 50}
    run = dac.train("td3", "gym:Pendulum-v1", seeds=[2], out=tmp_path / "run", watchers=[Diary(stop_at=50)], **settings)
    assert not run.finished
    assert to_numpy(run, tmp_path / "early", member=0).exists()  # what was learnt by then
    assert to_minari(run, "pendulum/early-v0", member=0).total_steps == 50
    run = dac.resume(run.directory)
    dataset = to_minari(run, "pendulum/cut-v0")
    episodes = list(dataset.iterate_episodes())
    assert [len(episode.rewards) for episode in episodes] == [50, 70]
    assert all(episode.truncations[-1] for episode in episodes)
    seeds = [metadata["seed"] for metadata in dataset.storage.get_episode_metadata([0, 1])]
    env = dataset.recover_environment()
    for episode, seed in zip(episodes, seeds, strict=True):
        obs, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(episode.observations[0], obs)
        for action, following in zip(episode.actions, episode.observations[1:], strict=True):
            np.testing.assert_array_equal(env.step(action)[0], following)  # the dataset is what happens again
    env.close()


def test_the_maze_and_what_cannot_be_written(tmp_path):
    run = dac.train("td3", "maze", steps=40, capacity=40, out=tmp_path / "run", **TINY)
    dataset = to_minari(run)
    assert dataset.id == "maze/run_member0-v0"
    assert (dataset.total_episodes, dataset.total_steps) == (1, 40)
    np.testing.assert_array_equal(dataset[0].observations[0], [0.5, 0.5])
    env = dataset.recover_environment()
    assert env.action_space == dataset.action_space
    env.close()
    longer = dac.resume(run.directory, steps=60)
    with pytest.raises(UsageError, match="holds no episode from its beginning on; train with more --capacity"):
        to_minari(longer, "maze/longer-v0")
    shutil.rmtree(run.directory / "checkpoint")
    with pytest.raises(UsageError, match="has no checkpoint, so its replay buffer is not known"):
        to_minari(longer, "maze/longer-v0")


def test_stretching_and_shrinking_undo_each_other():
    bounds = ActionBounds(np.array([0.0, -3.0]), np.array([10.0, -1.0]), np.dtype(np.float32), (2,))
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, 2)).astype(np.float32)
    np.testing.assert_allclose(bounds.shrink(bounds.stretch(actions)), actions, rtol=0, atol=3e-7)
    np.testing.assert_array_equal(bounds.stretch(np.array([[-1.5, -1.0], [1.0, 2.0]])), [[0, -3], [10, -1]])
    stuck = ActionBounds(np.ones(1), np.ones(1), np.dtype(np.float32), (1,))
    assert stuck.shrink(stuck.stretch(np.zeros((1, 1)))) == 0
