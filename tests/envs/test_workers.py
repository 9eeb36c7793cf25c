"""Worker processes as a training setting: the same run to the bit, and one line for whatever goes wrong."""

import functools
import multiprocessing
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

import dac
from dac.config import resolve
from dac.core.types import UsageError
from dac.tasks import find_task, task_of

TINY = {"hidden": (8, 8), "batch_size": 16, "steps": 300, "eval_every": 100, "random_steps": 20, "update_after": 50}
DYING = """
import os
import gymnasium

class Dying(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            os._exit(7)
        return super().step(action)

def make():
    return Dying(gymnasium.make("Pendulum-v1"))
"""


def test_a_task_with_workers_steps_as_without():
    here, there = find_task("gym:Pendulum-v1").host(3), find_task("gym:Pendulum-v1").make_envs(3, workers=2)
    assert len(multiprocessing.active_children()) == 2
    try:
        np.testing.assert_array_equal(here.reset([1, 2, 3]), there.reset([1, 2, 3]))
        for action in np.random.default_rng(0).uniform(-1, 1, (250, 3, 1)).astype(np.float32):
            for ours, theirs in zip(here.step(action), there.step(action), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    finally:
        there.close()


def test_a_run_with_workers_is_the_run_without_to_the_bit(tmp_path):
    runs = [
        dac.train("sac", "gym:Pendulum-v1", seeds=[0, 1, 2], out=tmp_path / str(workers), workers=workers, **TINY)
        for workers in (0, 2)
    ]
    for name in ("metrics.csv", "policy.safetensors"):
        assert (runs[0].directory / name).read_bytes() == (runs[1].directory / name).read_bytes()
    assert runs[0].config.fingerprint() == runs[1].config.fingerprint()
    assert [run.config.training.workers for run in runs] == [0, 2]
    assert not multiprocessing.active_children()


def test_more_workers_than_environments_are_not_started():
    envs = find_task("gym:Pendulum-v1").make_envs(1, workers=8)
    assert len(multiprocessing.active_children()) == 1
    envs.close()


def test_a_factory_given_from_python_travels_to_the_workers():
    factory = functools.partial(gym.make, "Pendulum-v1", max_episode_steps=7)
    factory.__module__, factory.__qualname__ = __name__, "factory"
    envs = find_task(task_of(factory)).make_envs(2, workers=2)
    assert envs.horizon == 7
    envs.close()


def test_a_factory_that_cannot_travel_is_refused():
    frame = sys._getframe()
    with pytest.raises(UsageError, match=r"cannot be sent to another process: .* ask for 0 workers"):
        find_task(task_of(lambda: frame)).make_envs(1, workers=1)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("task", ["maze", "target", "SparseHopper"])
def test_only_gymnasium_tasks_take_workers(task):
    words = rf"^workers must be 0 for {task}, not 2: it has threads, .*; only .* gym:ID and python:"
    with pytest.raises(UsageError, match=words) as error:
        resolve("sac", task, settings={"workers": 2})
    assert "\n" not in str(error.value)
    assert resolve("sac", task, settings={"workers": 0}).training.workers == 0


@pytest.mark.parametrize("workers", [-1, 1025])
def test_a_number_of_workers_out_of_range_is_refused(workers):
    with pytest.raises(UsageError, match=f"^workers must be from 0 to 1024, not {workers}$"):
        resolve("sac", "gym:Pendulum-v1", settings={"workers": workers})


@pytest.mark.parametrize("workers", [1.5, True, "two"])
def test_workers_that_are_no_whole_number_are_refused(workers):
    with pytest.raises(UsageError, match=r"^workers must be a whole number, not "):
        resolve("sac", "gym:Pendulum-v1", settings={"workers": workers})


def test_a_configuration_from_before_workers_loads(tmp_path):
    config = resolve("sac", "gym:Pendulum-v1")
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml().replace("workers = 0\n", ""))
    assert resolve(file=path) == config


def test_a_worker_that_dies_ends_the_command_with_one_line(tmp_path):
    """The environment's module is in the current folder, and the exit code of the worker is not that of the command."""
    (tmp_path / "dying.py").write_text(DYING)
    command = "-m dac train sac python:dying:make --workers 2 --seeds 0:3 --steps 60 --hidden 8,8 --quiet --out run"
    done = subprocess.run([sys.executable, *command.split()], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    said = "dac: the worker process of environments 0 to 1 died with exit code 7; the last checkpoint is of step 5, "
    assert done.stderr == f"{said}continue with: dac resume run\n"
