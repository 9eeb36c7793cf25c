"""A model learns, acts, is saved and loaded as Stable-Baselines3's do, and in parts to the bit as at once."""

import gc
import inspect
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import dac
import dac.api.models
from dac.algorithms import ALGORITHMS, Entry
from dac.algorithms.sac import SAC
from dac.api.model import class_of
from dac.training.watchers import AbstractWatcher
from tests.common import everything

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "eval_every": 30, "capacity": 60}


class Bow(gym.Env):
    """An own environment: a Dict of float64 to see, an asymmetric range to act in."""

    observation_space = gym.spaces.Dict(
        {"a": gym.spaces.Box(-1, 1, (2,), np.float64), "b": gym.spaces.Box(0, 9, (1, 2), np.float32)}
    )
    action_space = gym.spaces.Box(np.array([0.0, -3.0]), np.array([10.0, -1.0]), dtype=np.float64)

    def __init__(self):
        self.pull, self.steps = 1.0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        reward = self.pull * float(action[0])
        return self.observation_space.sample(), reward, False, self.steps == 10, {}


@pytest.fixture(scope="module")
def pendulum():
    """A model that has learnt a little."""
    return dac.DAC("Pendulum-v1", seed=3, **TINY).learn(60)


def test_every_algorithm_has_a_class_that_is_importable_from_dac():
    classes = {name: value for name, value in vars(dac.api.models).items() if getattr(value, "algorithm", None)}
    assert {one.algorithm for one in classes.values()} == set(ALGORITHMS)
    for name, one in classes.items():
        assert getattr(dac, name) is one
        assert "learning_rate" in inspect.signature(one).parameters or one.algorithm == "acktr"
        assert not {"steps", "settings", "self"} & set(inspect.signature(one).parameters)


def test_an_algorithm_from_outside_has_a_class_too(monkeypatch):
    monkeypatch.setitem(ALGORITHMS, "my-sac", Entry(SAC))
    monkeypatch.setattr("dac.api.model._CLASSES", {})
    assert class_of("my-sac")("maze", beta=0.5).config.hyper["beta"] == 0.5


@pytest.mark.parametrize(
    ("make", "task", "capacity"),
    [
        (dac.TD3, "target", 150),
        (dac.DAC, "gym:Pendulum-v1", 60),
        pytest.param(dac.TD3, "Hopper", 150, marks=pytest.mark.slow),
    ],
)
def test_learning_in_parts_is_the_same_to_the_bit(make, task, capacity):
    """Also where an environment's state cannot be saved: it stays alive. With room for 150 the replay buffer grows."""
    settings = TINY | {"capacity": capacity}
    whole, parts = make(task, **settings).learn(150), make(task, **settings)
    assert parts.learn(60).num_timesteps == 60
    parts.predict(np.zeros(parts.observation_space.shape), deterministic=False)  # changes nothing
    assert parts.learn(90) is parts
    assert parts.num_timesteps == 150
    one, other = (everything(model._agents._session.loop) for model in (whole, parts))
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    for name in ("metrics.csv", "config.toml", "policy.safetensors"):
        assert (whole.directory / name).read_bytes() == (parts.directory / name).read_bytes()


def test_what_follows_the_length_follows_it_in_the_next_part():
    model = dac.PPO("target", rollout=20, minibatches=2, hidden=(8, 8), eval_every=20).learn(40)
    assert model.config.hyper["total_steps"] == 40
    model.learn(40)
    assert model.config.hyper["total_steps"] == 80
    rate = 3e-4 * (1 - 40 / 80)  # of the last update, which came after 60 steps and began with 40 seen
    np.testing.assert_allclose(model.metrics["learning_rate"][-1], rate, rtol=1e-6)


def test_a_saved_model_is_a_run_directory_and_goes_on_to_the_bit(tmp_path):
    model = dac.SAC("maze", seed=1, **TINY).learn(60)
    model.save(tmp_path / "model")
    loaded = dac.SAC.load(tmp_path / "model")
    obs = np.array([3.0, 4.0], np.float32)
    np.testing.assert_array_equal(loaded.predict(obs)[0], model.predict(obs)[0])
    assert loaded.num_timesteps == 60
    before = {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    loaded.learn(60)
    assert before == {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    run = dac.resume(tmp_path / "model", 120)  # what the command line does
    model.learn(60)
    for name in ("metrics.csv", "policy.safetensors"):
        assert (run.directory / name).read_bytes() == (model.directory / name).read_bytes()
        assert (run.directory / name).read_bytes() == (loaded.directory / name).read_bytes()
    loaded.save(tmp_path / "model")  # over a model of ours
    assert dac.load(tmp_path / "model").finished
    assert dac.load(tmp_path / "model").model().num_timesteps == 120


def test_a_model_can_be_saved_before_it_learns(tmp_path):
    model = dac.DAC("target", seed=2, **TINY)
    model.save(tmp_path / "new")
    loaded = dac.Model.load(tmp_path / "new")
    assert type(loaded) is dac.DAC
    np.testing.assert_array_equal(loaded.predict(np.ones(1))[0], model.predict(np.ones(1))[0])
    model.learn(60)
    np.testing.assert_array_equal(loaded.learn(60).predict(np.ones(1))[0], model.predict(np.ones(1))[0])


def test_save_writes_over_nothing_else(tmp_path, pendulum):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(dac.UsageError, match="exists and is not a run directory"):
        pendulum.save(tmp_path / "notes")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(dac.UsageError, match="exists and is not a run directory"):
        pendulum.save(tmp_path / "file")
    dac.SAC("maze", **TINY).save(tmp_path / "sac")
    with pytest.raises(dac.UsageError, match=r"sac holds a run of sac, not of dac"):
        pendulum.save(tmp_path / "sac")
    with pytest.raises(dac.UsageError, match=r"holds a run of sac, not of dac: load it with dac\.SAC"):
        dac.DAC.load(tmp_path / "sac")
    pendulum.save(tmp_path / "model")
    (tmp_path / "model" / "mine.txt").write_text("mine")
    pendulum.save(tmp_path / "model")
    assert (tmp_path / "model" / "mine.txt").read_text() == "mine"
    assert not list(tmp_path.glob(".model*"))
    with pytest.raises(dac.UsageError, match="is where this run lives already"):
        pendulum.save(pendulum.directory)


def test_out_keeps_the_run_with_checkpoints(tmp_path):
    model = dac.DAC("target", out=tmp_path / "run", checkpoint_every=15, **TINY).learn(30)
    assert dac.load(tmp_path / "run").last_checkpoint() == 30
    with pytest.raises(dac.UsageError, match="exists already"):
        dac.DAC("target", out=tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").write_text("")
    with pytest.raises(dac.UsageError, match="was changed by another process"):
        model.learn(30)


def test_a_temporary_directory_lives_as_long_as_its_model():
    model = dac.DAC("target", **TINY).learn(30)
    directory = model.directory
    assert (directory / "config.toml").exists()
    assert not (directory / "checkpoint").exists()  # nobody else knows it, so nothing is saved there
    del model
    gc.collect()
    assert not directory.exists()


def test_evaluation_gives_returns_and_lengths(pendulum):
    found = dac.evaluate(pendulum, episodes=3)
    assert found.returns.shape == found.lengths.shape == (3,)
    assert (found.lengths == 200).all()
    assert found.mean == pytest.approx(found.returns.mean())
    assert found.std == pytest.approx(found.returns.std())
    copies = pendulum.evaluate(gym.make("Pendulum-v1"), episodes=3)  # of it: the same episodes
    np.testing.assert_array_equal(copies.returns, found.returns)
    assert "3 episodes: return " in repr(found)


def test_an_environment_is_copied_and_left_alone(tmp_path):
    env = Bow()
    env.pull = 2.0
    env.reset(seed=0)
    model = dac.DAC(env, **TINY).learn(30)
    assert env.steps == 0
    action, _ = model.predict(env.observation_space.sample())
    assert env.action_space.contains(action)
    model.save(tmp_path / "bow")
    best = model.evaluate(episodes=2).returns
    assert (best > 0).all()
    assert (best <= 200).all()
    with pytest.raises(dac.UsageError, match="copy of Bow"):  # no process can make this environment from a name
        subprocess_load(tmp_path / "bow")
    assert dac.DAC.load(tmp_path / "bow", env=Bow).evaluate(episodes=1).mean == pytest.approx(best[0] / 2, rel=0.5)


def subprocess_load(path):
    """Load a model in a process that knows nothing of this one's environments."""
    program = f"import dac\ntry: dac.Model.load({str(path)!r})\nexcept dac.UsageError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    if done.stdout:
        raise dac.UsageError(done.stdout)


def test_two_functions_of_one_name_are_two_environments():
    first = dac.DAC(lambda: gym.make("Pendulum-v1"), **TINY)
    second = dac.DAC(lambda: gym.make("MountainCarContinuous-v0"), **TINY)
    assert first.config.task == second.config.task
    assert first.observation_space.shape == (3,)
    assert second.observation_space.shape == (2,)
    assert first.predict(np.zeros(3))[0].shape == (1,)
    with pytest.raises(dac.UsageError, match="the environment to evaluate on has 2 observation entries"):
        first.evaluate(lambda: gym.make("MountainCarContinuous-v0"))


class Uncopied(Bow):
    def __deepcopy__(self, memo):
        raise TypeError("a socket")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: dac.DAC("maze", alhpa=0.5), "unknown setting 'alhpa' for dac; did you mean alpha?"),
        (
            lambda: dac.DAC("maze", alpha=[0.5, 1.0]),
            r"a model has one alpha; dac\.Population\(DAC, env, alpha=\[...\]\)",
        ),
        (lambda: dac.DAC("maze", seeds=3), "a model has one seed: give seed=0"),
        (lambda: dac.DAC("maze", seed="0:3"), "seed must be a whole number"),
        (lambda: dac.DAC("maze", steps=100), r"steps is what learn takes: learn\(100\)"),
        (lambda: dac.DAC("labyrinth"), "unknown task 'labyrinth'"),
        (lambda: dac.DAC("Pendulum-v9").learn(10), "no environment 'Pendulum-v9'"),
        (lambda: dac.DAC(3), "env must be an id, an environment or a function that makes one"),
        (lambda: dac.DAC(Uncopied()), "Uncopied cannot be copied .* pass a function that makes one"),
        (lambda: dac.DAC(gym.make_vec("Pendulum-v1", 2, "sync")), "env is a vector of environments"),
        (lambda: dac.DAC("maze").learn(0), "steps must be a whole number of at least 1"),
        (lambda: dac.DAC("maze", envs=4).learn(30), "steps 30 is not a multiple of the 4 environments"),
        (lambda: dac.DAC("maze").evaluate("target"), "the environment to evaluate on has 1 observation entries"),
        (lambda: dac.DAC("maze").evaluate(episodes=0), "episodes must be a whole number"),
        (lambda: dac.Model("maze"), r"use the class of an algorithm: dac\.DAC"),
        (lambda: dac.DAC.load("nowhere"), "no such run directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(wrong, message):
    with pytest.raises(dac.UsageError, match=message) as caught:
        wrong()
    assert "\n" not in str(caught.value)


def test_models_say_what_they_are(pendulum):
    assert repr(pendulum) == "<DAC on gym:Pendulum-v1, seed 3: 60 steps>"
    assert repr(dac.SAC("maze")) == "<SAC on maze, seed 0: 0 steps>"


def test_watchers_see_the_present_policy_and_may_stop(pendulum):
    class Stop(AbstractWatcher):
        def __init__(self):
            self.actions = []

        def on_evaluation(self, evaluation):
            self.actions.append(model.predict(np.ones(1))[0])
            return "enough" if evaluation.step == 60 else None

    stop = Stop()
    model = dac.DAC("target", **TINY)
    model.learn(90, watchers=[stop])
    assert model.num_timesteps == 60
    model.learn(60)
    assert model.num_timesteps == 120
    assert len(stop.actions) == 2
    assert not np.array_equal(*stop.actions)


def test_a_progress_bar_is_shown_only_where_asked_for(capsys):
    dac.DAC("target", **TINY).learn(30, progress=True)
    assert "dac on target, 1 member" in capsys.readouterr().err
    dac.DAC("target", **TINY).learn(30)  # not a terminal
    dac.DAC("target", **TINY).learn(30, progress=False)
    assert capsys.readouterr().err == ""


def test_what_can_be_drawn_over_is_a_terminal_or_a_notebook_that_can(monkeypatch):
    import importlib.util
    import io

    from rich.console import Console

    from dac.training.watchers.progress import _is_live

    assert _is_live(Console(file=io.StringIO(), force_terminal=True))
    assert not _is_live(Console(file=io.StringIO()))
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    for there in (True, False):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, there=there: object() if there else None)
        assert _is_live(notebook) == there


def test_an_environment_that_fails_leaves_one_line_for_the_next_call(tmp_path):
    """What was learnt by then acts, and can be saved and gone on from."""

    class Failing(Bow):
        def step(self, action):
            if self.steps == 5:
                raise RuntimeError("the string broke")
            return super().step(action)

    model = dac.DAC(Failing, **TINY)
    failure = r"member 0 \(seed 0\), environment 0, step 6: RuntimeError: the string broke"
    with pytest.raises(dac.UsageError, match=failure):
        model.learn(60)
    with pytest.raises(dac.UsageError, match=rf"training broke off .*{failure}\); save it, and load that to go on"):
        model.learn(60)
    model.save(tmp_path / "saved")
    again, obs = dac.DAC.load(tmp_path / "saved", env=Bow), model.observation_space.sample()
    np.testing.assert_array_equal(again.predict(obs)[0], model.predict(obs)[0])
    assert again.learn(30).num_timesteps == 36


def test_the_policies_of_a_population_do_not_act_as_one(tmp_path):
    import jax

    run = dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "run", steps=30, **TINY)
    with pytest.raises(dac.UsageError, match=r"stacked; use one of them: run\.model\(k\)\.predict"):
        run.policies().act(np.zeros(1, np.float32), jax.random.key(0), explore=False)
    one = run.model(1).predict(np.full(1, 0.5))[0]
    assert one.shape == (1,)
    assert not np.array_equal(one, run.model(0).predict(np.full(1, 0.5))[0])
    assert repr(run) == f"<Run of dac on target, 2 members, 30 steps each, finished: {run.directory}>"
    with pytest.raises(dac.UsageError, match=r"holds 2 members: load them with dac\.Population\.load"):
        dac.DAC.load(run.directory)
