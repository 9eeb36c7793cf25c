"""Tasks by name: what is found, how often an environment is built for it, and what a wrong name is answered."""

import dataclasses
import functools
import math

import gymnasium as gym
import pytest

from dac.config import resolve
from dac.config.resolution import with_steps
from dac.core.types import EnvSpec, UsageError
from dac.tasks import find_task, listed, preset, task_of
from dac.tasks.presets import PAPER, PAPER_ALGORITHMS


@pytest.fixture
def counting():
    """A factory that counts its calls."""
    made = []

    def make(limit=5):
        made.append(limit)
        return gym.make("Pendulum-v1", max_episode_steps=limit)

    make.made = made
    return make


def test_the_spec_is_found_once(counting):
    name = task_of(counting)
    for _ in range(3):
        assert find_task(name).spec() == EnvSpec(3, 1)
        preset("sac", name)
    assert counting.made == [5]


def test_environments_that_exist_tell_the_spec(counting):
    task = find_task(task_of(counting))
    envs = task.make_envs(3)
    assert task.spec() == EnvSpec(3, 1)
    assert counting.made == [5] * 3
    envs.close()


def test_a_name_is_one_task_until_another_factory_takes_it(counting):
    name = task_of(counting)
    task = find_task(name)
    assert find_task(name) is task
    other = functools.partial(counting, 9)
    other.__module__, other.__qualname__ = counting.__module__, counting.__qualname__
    assert task_of(other) == name
    assert find_task(name) is not task
    assert find_task(name).make_envs(1).horizon == 9
    assert find_task("gym:Pendulum-v1") is find_task("gym:Pendulum-v1")


def test_the_spec_of_a_mujoco_task_is_found_once():
    calls = []

    def make(num):
        calls.append(num)
        return find_task("SparseHopper").host(num)

    task = dataclasses.replace(find_task("SparseHopper"), host=make)
    assert [task.spec(), task.spec()] == [EnvSpec(11, 3)] * 2
    assert calls == [1]


@pytest.mark.parametrize("name", ["__main__:make", f"{__name__}:<lambda>", f"{__name__}:f.<locals>.make"])
def test_a_factory_of_another_process_is_refused_with_what_to_do(name):
    """A notebook's function, a lambda, a function in a function: their runs belong to where they were made."""
    said = r"was defined in a script, a notebook or a function, .* call dac.resume or dac.load there"
    with pytest.raises(UsageError, match=said) as error:
        find_task(f"python:{name}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name in listed() if not name.startswith("dmc:")])
def test_the_sizes_of_the_list_are_the_environments(name):
    """Those of the DeepMind Control suite are compared in tests/envs/dmc, where their models are compiled once."""
    task = listed()[name]
    assert task.sizes == task.spec()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("dmc:cartpole-swingup-sparse", "dmc:cartpole-swingup_sparse"),
        ("cartpole-swingup_sparse", "dmc:cartpole-swingup_sparse"),
        ("dmc:humanoid-runs", "dmc:humanoid-run"),
        ("SparseHoper", "SparseHopper"),
        ("Pendulum-v1", "gym:Pendulum-v1"),
        ("package:make", "python:package:make"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, meant):
    with pytest.raises(UsageError, match=f"^unknown task '{name}'; did you mean {meant}\\?") as error:
        find_task(name)
    assert "\n" not in str(error.value)


def test_a_name_that_is_near_to_none_suggests_none():
    with pytest.raises(UsageError, match=r"^unknown task 'dmc:' \(accepted: maze, .*dmc:DOMAIN-TASK"):
        find_task("dmc:")


def test_defaults_of_the_control_suite():
    """A tenth over the number of actions, and the steps of pytorch_sac; an algorithm's own come before them."""
    assert preset("sac", "dmc:cheetah-run")["beta"] == 0.017
    assert preset("dac", "dmc:pendulum-swingup") == {"steps": 1_000_000, "random_steps": 5000, "beta": 0.1}
    assert preset("ppo", "dmc:pendulum-swingup")["random_steps"] == 0
    assert all(task.extra == "dmc" and task.source for name, task in listed().items() if name.startswith("dmc:"))


def test_the_papers_settings_are_one_preset_away():
    """In the maze that is the clip; on the robots the defaults are the paper's already."""
    asked, plain = (resolve("dac", "maze", settings=given) for given in ({"preset": "paper"}, {}))
    assert (asked.hyper["clip"], plain.hyper["clip"]) == (1.0, math.inf)
    assert {n: v for n, v in asked.hyper.items() if n != "clip"} == {
        n: v for n, v in plain.hyper.items() if n != "clip"
    }
    assert asked.fingerprint() == resolve("dac", "maze", settings={"clip": 1.0}).fingerprint() != plain.fingerprint()
    assert resolve("dac", "maze", settings={"preset": "paper", "clip": 2.0}).hyper["clip"] == 2.0
    for task in PAPER:
        for algorithm in PAPER_ALGORITHMS:
            config = resolve(algorithm, task, settings={"preset": "paper"})
            assert config.hyper.get("clip", 1.0) == 1.0
            assert with_steps(config, 50_000).training.preset == "paper"
    with pytest.raises(UsageError, match="is for dac, sac, sac-div, rnd, maxent-state, not for td3"):
        resolve("td3", "maze", settings={"preset": "paper"})
    with pytest.raises(UsageError, match=r"is for the paper's tasks .* not for HalfCheetah"):
        resolve("dac", "HalfCheetah", settings={"preset": "paper"})
    with pytest.raises(UsageError, match="preset must be one of task, paper, not 'ours'"):
        resolve("dac", "maze", settings={"preset": "ours"})
