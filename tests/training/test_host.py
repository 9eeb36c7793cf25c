"""The host loop: the same as the device loop, the same from either replay, reproducible, and it learns."""

import csv
import os
import platform
import subprocess
import sys

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import SAC
from dac.core.networks import SquashedGaussianPolicy
from dac.core.population import grid, pick
from dac.core.types import EnvSpec, UsageError
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.envs.mujoco import make_mujoco
from dac.training import step
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from dac.training.memory import place_replay, replay_bytes
from dac.training.visits import VisitCounter
from tests.common import schedule, tiny


def hoppers(num):
    return make_mujoco("SparseHopper", num, horizon=60)


def mazes(num):
    return make_gymnasium("dac/FourRoomMaze-v0", num)


class Paying(gym.Env):
    """Nothing to see; each step earns what a function of its number says."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, reward):
        self.steps, self.reward = 0, reward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), self.reward(self.steps), False, False, {}


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("envs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_device_loop_and_host_loop_agree_in_the_maze(envs):
    """The same keys, batches and updates: positions agree to float32 rounding, and so do the networks."""
    members = grid([0, 3], {"alpha": [0.5, 1.0]})
    sched = schedule(120, envs=envs, eval_every=60)
    device = DeviceLoop(tiny(), FourRoomMaze(), members, sched)
    host = HostLoop(tiny(), mazes, members, sched)
    steps = 120 // envs
    device.advance(steps)
    host.advance(steps)
    np.testing.assert_allclose(device.latest_rows(0), host.latest_rows(0), atol=2e-3)
    pending, packed = device.snapshot()["pending"], host.snapshot()["packed"]
    np.testing.assert_allclose(pending, packed[..., : pending.shape[-1]], atol=2e-3)
    for one, other in zip(leaves(device.policies()), leaves(host.policies()), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    np.testing.assert_array_equal(device.visited(), host.visited())
    np.testing.assert_array_equal(device.visits(), host.visits())
    np.testing.assert_array_equal(device.first_visits(), host.first_visits())
    host.close()


def test_replay_on_the_host_draws_the_same_batches():
    members = grid([0, 1], {"alpha": [0.5]})
    loops = [HostLoop(tiny(), hoppers, members, schedule(), host_replay=place) for place in (False, True)]
    for loop in loops:
        loop.advance(150)
    np.testing.assert_array_equal(loops[0].latest_rows(29), loops[1].latest_rows(29))  # all that a ring of 120 has
    for one, other in zip(leaves(loops[0].states), leaves(loops[1].states), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert loops[1].measure().keys() == loops[0].measure().keys()
    assert loops[1].metric_names() == loops[0].metric_names()
    for loop in loops:
        loop.close()


@pytest.mark.parametrize("host_replay", [False, True])
def test_updates_launched_by_another_thread_are_the_same(host_replay, monkeypatch):
    """As on an accelerator, where launching takes time; to the bit, whatever the threads do first."""
    loops = []
    for backend in ("cpu", "gpu"):
        with monkeypatch.context() as patch:
            patch.setattr(jax, "default_backend", lambda backend=backend: backend)
            loops.append(HostLoop(tiny(), hoppers, grid([0, 1], {}), schedule(), host_replay=host_replay))
    assert [loop.launches_aside for loop in loops] == [False, True]
    for loop in loops:
        loop.advance(150)
    for one, other in zip(leaves(loops[0].snapshot()), leaves(loops[1].snapshot()), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(loops[0].latest_rows(0), loops[1].latest_rows(0))
    for loop in loops:
        loop.close()


def test_an_environment_that_breaks_leaves_the_launched_update_complete(monkeypatch):
    def reward(step):
        if step == 70:
            raise ValueError("out of coffee")
        return 0.0

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    loop = HostLoop(tiny(), lambda n: make_gymnasium(lambda: Paying(reward), n), grid([0], {}), schedule())
    with pytest.raises(ValueError, match="out of coffee"):
        loop.advance(100)
    assert loop.step == 70  # the step that broke counts, since its update is made: of steps 50 to 69 there is each once
    made = jax.tree.leaves(loop.states.policy.opt_state)[0]
    assert made.tolist() == [20] == [loop.schedule.updates(loop.step)]
    loop.close()


def test_member_k_of_three_equals_the_solo_run(x64):
    members = grid([0, 5], {"alpha": [0.5]}) + grid([5], {"alpha": [0.9]})
    together = HostLoop(tiny(), hoppers, members, schedule())
    together.advance(150)
    for k, member in enumerate(members):
        alone = HostLoop(tiny(), hoppers, [member], schedule())
        alone.advance(150)
        np.testing.assert_allclose(alone.latest_rows(29)[0], together.latest_rows(29)[k], rtol=1e-9, atol=1e-9)
        for one, other in zip(leaves(pick(alone.policies(), 0)), leaves(pick(together.policies(), k)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
        alone.close()
    rows = np.asarray(together.latest_rows(29))
    assert (rows[0, 0] != rows[1, 0]).any()
    together.close()


def test_the_ring_holds_observations_before_the_reset():
    """Episodes of 60 steps: a stored next observation is the following observation, except where an episode ends."""
    loop = HostLoop(tiny(), hoppers, grid([0], {}), schedule(100, capacity=100, update_after=90))
    loop.advance(100)
    n, a = loop.spec.obs_size, loop.spec.action_size
    ring = np.asarray(loop.latest_rows(0)[0])
    obs, ended, next_obs = ring[:, :n], ring[:, n + a + 1] + ring[:, n + a + 2] > 0, ring[:, n + a + 3 :]
    joined = (next_obs[:-1] == obs[1:]).all(axis=1)
    np.testing.assert_array_equal(joined, ~ended[:-1])
    assert ended.any()
    loop.close()


def test_a_bad_reward_names_the_step():
    def reward(step):
        return float("nan") if step == 7 else 0.0

    loop = HostLoop(tiny(), lambda n: make_gymnasium(lambda: Paying(reward), n), grid([0], {}), schedule())
    with pytest.raises(UsageError, match="step 7"):
        loop.advance(20)
    loop.close()


def test_runs_on_a_gymnasium_environment_repeat(tmp_path):
    """Two runs with the same seed: identical metrics.csv, from an id and from a factory."""

    def pendulum():
        return gym.make("Pendulum-v1")

    settings = {"hidden": (8, 8), "batch_size": 16, "steps": 300, "eval_every": 100, "update_after": 100}
    first = dac.train("sac", "gym:Pendulum-v1", seeds=[1, 2], out=tmp_path / "a", **settings)
    again = dac.train("sac", pendulum, seeds=[1, 2], out=tmp_path / "b", **settings)
    text = (first.directory / "metrics.csv").read_text()
    assert (again.directory / "metrics.csv").read_text() == text
    rows = list(csv.DictReader(text.splitlines()))
    assert len({row["return"] for row in rows if row["step"] == "100"}) == 2
    result = first.evaluate(2)
    assert result.returns.shape == (2, 2)
    assert (result.lengths == 200).all()
    assert (result.returns < 0).all()


def test_a_mujoco_run_counts_cells_and_repeats(tmp_path):
    settings = {
        "hidden": (8, 8),
        "batch_size": 16,
        "steps": 150,
        "eval_every": 50,
        "update_after": 50,
        "alpha": "adapt",
    }
    runs = [dac.train("dac", "SparseHopper", seeds="0:2", out=tmp_path / n, **settings) for n in "ab"]
    texts = [(run.directory / "metrics.csv").read_text() for run in runs]
    assert texts[0] == texts[1]
    visited = runs[0].metrics["visited"]
    assert (np.diff(visited, axis=0) >= 0).all()
    assert (visited > 1).all()
    with pytest.raises(UsageError, match="no visits"):
        _ = runs[0].visits


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("gym:CartPole-v1", "Discrete"),
        ("gym:NoSuchEnv-v0", "NoSuchEnv"),
        ("python:nowhere:make", "cannot import"),
        ("python:math:pi", "not a function"),
        ("gym:", "unknown task"),
    ],
)
def test_unusable_environments_are_named_and_nothing_is_written(task, words, tmp_path, capsys, monkeypatch):
    from dac.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["train", "dac", task, "--out", "out"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_replay_that_fits_nowhere_is_refused_with_the_figures():
    spec = EnvSpec(obs_size=100, action_size=10)
    huge = schedule(steps=10**9, capacity=10**9)
    assert replay_bytes(3, huge, spec) == 3 * 10**9 * 213 * 4
    with pytest.raises(UsageError, match=r"needs 2380\.\d\d GiB .*free"):
        place_replay("auto", 3, huge, spec, on_host=True)
    small = schedule()
    assert place_replay("auto", 3, small, spec, on_host=True) == "device"
    assert place_replay("host", 3, small, spec, on_host=True) == "host"
    with pytest.raises(UsageError, match="needs"):
        place_replay("host", 3, small, spec, on_host=False)


PAGES = """
import ctypes, resource, threading
from dac.training.memory import keep_freed_memory
kept, libc = keep_freed_memory(), ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def work():
    for _ in range(20):
        block = ctypes.c_void_p(libc.malloc(2**26))
        ctypes.memset(block, 1, 2**26)
        libc.free(block)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work)  # as XLA's
thread.start()
thread.join()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")
def test_freed_memory_is_kept_for_the_next_update():
    """Pages the system hands out for twenty blocks one after the other: once, not twenty times."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    pages = {}
    for variables in ({}, {"MALLOC_TOP_PAD_": "131072"}):  # the latter is glibc's default: whoever sets it is obeyed
        command = [sys.executable, "-c", PAGES]
        done = subprocess.run(command, env=clean | variables, capture_output=True, text=True, check=True)
        kept, count = done.stdout.split()
        pages[int(kept)] = int(count)
    assert pages[1] < pages[0] / 5


def test_visits_are_counted_once_per_cell():
    counter = VisitCounter(2, 10)
    counter.add(np.array([[3, 3], [-1, 4]]), env_step=2)
    counter.add(np.array([[3, 5], [4, -1]]), env_step=4)
    assert counter.visited.tolist() == [2, 1]
    assert counter.counts.sum(axis=1).tolist() == [4, 2]
    assert counter.first[0, [3, 5]].tolist() == [2, 4]
    assert VisitCounter(1, 4_000_000).counts is None


class Nudged(SquashedGaussianPolicy):
    """A policy that carries a hyperparameter of its member."""

    shift: jax.Array

    def act(self, obs, key, *, explore):
        del obs, key, explore
        return jnp.full(1, self.shift)


class Shifted(SAC):
    shift: float = 0.0

    def policy(self, state):
        plain = super().policy(state)
        policy = object.__new__(Nudged)
        object.__setattr__(policy, "mlp", plain.mlp)
        object.__setattr__(policy, "shift", jnp.asarray(self.shift))
        return policy


def test_each_member_acts_with_its_own_hyperparameters():
    members = grid([0], {"shift": [-0.25, 0.75]})
    sched = schedule(30, random_steps=0, update_after=100)
    loop = HostLoop(Shifted(hidden=(8, 8)), lambda n: make_gymnasium("Pendulum-v1", n), members, sched)
    loop.advance(20)
    np.testing.assert_array_equal(loop.latest_rows(0)[..., loop.spec.obs_size], [[-0.25] * 19, [0.75] * 19])
    loop.close()


def test_evaluation_ends_where_an_episode_would_not():
    class Endless(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 1.0, False, False, {}

    loop = HostLoop(tiny(), lambda n: make_gymnasium(Endless, n), grid([0], {}), schedule(), eval_limit=50)
    result = loop.evaluate(2)
    assert (result.lengths == 50).all()
    assert (result.returns == 50).all()
    loop.close()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dac", "sac"])
def test_pendulum_is_solved(tmp_path, algorithm):
    """Mean return over 5 seeds above -200 within 20k steps."""
    run = dac.train(
        algorithm, "gym:Pendulum-v1", seeds=range(5), out=tmp_path / "run", steps=20_000, eval_every=2000,
        eval_episodes=5, hidden=(64, 64), batch_size=128, learning_rate=1e-3,
    )  # fmt: skip
    assert run.metrics["return"].mean(axis=1).max() > -200
    assert run.evaluate(10).returns.mean() > -200


def test_sac_trains_here_too():
    loop = HostLoop(SAC(hidden=(8, 8), batch_size=16), hoppers, grid([0], {"beta": [0.1, 1.0]}), schedule())
    before = leaves(loop.policies())
    loop.advance(150)
    assert all((a != b).any() for a, b in zip(before, leaves(loop.policies()), strict=True))
    loop.close()


def test_a_second_loop_of_the_same_kind_compiles_nothing(monkeypatch):
    """Traces are counted, of the update and of the action; other seeds, alphas and lengths are the same programs."""
    traces = []
    for name in ("learn", "choose_actions"):
        real = getattr(step, name)

        def counted(*arguments, real=real, name=name):
            traces.append(name)
            return real(*arguments)

        monkeypatch.setattr(step, name, counted)
    for seeds, alpha, steps in (([0, 1], 0.5, 60), ([7, 9], 0.9, 80)):
        sched = schedule(steps, capacity=77, eval_every=steps)  # a shape no other test uses
        loop = HostLoop(tiny(), hoppers, grid(seeds, {"alpha": [alpha]}), sched)
        loop.advance(steps)
        loop.close()
    assert sorted(traces) == ["choose_actions", "learn"]


def test_environments_are_made_once(tmp_path):
    """Two members and four evaluations: two environments to train on, two to evaluate in, and none beside them."""
    made = []

    def pendulum():
        made.append(None)
        return gym.make("Pendulum-v1")

    settings = {"hidden": (8, 8), "batch_size": 16, "steps": 200, "eval_every": 50, "update_after": 100}
    dac.train("sac", pendulum, seeds=[0, 1], out=tmp_path / "run", checkpoint_every=0, **settings)
    assert len(made) == 4


def test_kept_environments_give_the_episodes_of_new_ones():
    loop = HostLoop(tiny(), hoppers, grid([0, 1], {}), schedule())
    first, second = loop.evaluate(2), loop.evaluate(2)  # the second in the environments of the first
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    loop.close()
