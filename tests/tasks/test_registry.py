"""Tasks by name: what is found, how often an environment is built for it, and what a wrong name is answered."""

import dataclasses
import functools

import gymnasium as gym
import pytest

from dac.core.types import EnvSpec, UsageError
from dac.tasks import find_task, preset, task_of


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
