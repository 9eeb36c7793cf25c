"""Time limits and frame skip: what an agent sees is what a loop over the environment's own steps gives."""

from typing import ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.cli import main
from dac.config import resolve
from dac.core.population import grid
from dac.core.types import EnvSpec, UsageError
from dac.envs.base import AbstractDeviceEnv
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.envs.mujoco import make_mujoco
from dac.envs.pace import Pace
from dac.envs.paced_device import PacedEnv
from dac.envs.paced_host import PacedEnvs, pace_one
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.common import schedule, tiny
from tests.training.test_host import leaves
from tests.training.test_resume import TINY, files, killed_and_resumed

OWN = 11


class Counting(gym.Env):
    """Shows the steps of the episode, pays their number, and is over after `last` of them."""

    observation_space = gym.spaces.Box(0, 1000, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    visit_grid = (100,)

    def __init__(self, last=100):
        self.last = last

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frames = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.frames += 1
        info = {"success": self.frames == 2}
        return np.full(1, self.frames, np.float32), float(self.frames), self.frames == self.last, False, info

    def visit_cell(self):
        return self.frames


class CountingOnDevice(AbstractDeviceEnv):
    spec: ClassVar[EnvSpec] = EnvSpec(1, 1)
    cells: ClassVar[None] = None
    horizon: int = OWN
    last: int = 100

    def start(self, key):
        return jnp.zeros(())

    def observe(self, world):
        return world[None]

    def move(self, world, action, key):
        return world + 1, world + 1, (world + 1 == self.last).astype(float)

    def cell(self, obs):
        raise TypeError


def by_hand(steps, pace, last):
    """What `steps` actions see: next observation, reward, terminated, truncated, observation."""
    seen, frames, actions = [], 0, 0
    for _ in range(steps):
        total, over = 0, False
        for _ in range(pace.skip):
            frames += 1
            total += frames
            over = frames == last
            if over or frames == OWN:
                break
        actions += 1
        out = not over and (frames == OWN or actions == pace.limit)
        next_obs = frames
        if over or out:
            frames = actions = 0
        seen.append((next_obs, total, over, out, frames))
    return np.array(seen, float)


PACES = [Pace(0, 1), Pace(4, 1), Pace(0, 3), Pace(3, 3), Pace(2, 4)]


@pytest.mark.parametrize("last", [100, 8, 6])
@pytest.mark.parametrize("pace", PACES)
def test_both_forms_are_the_loop(pace, last):
    """Ends by termination, by the environment's time limit and by ours, between actions and under way."""
    expected = by_hand(20, pace, last)
    host = PacedEnvs(make_gymnasium(lambda: gym.wrappers.TimeLimit(Counting(last), OWN), 2), pace)
    host.reset([0, 1])
    assert host.visited_cells().tolist() == [0, 0]
    device = PacedEnv(CountingOnDevice(last=last), pace)
    assert device.horizon == host.horizon == min(pace.limit or OWN, -(-OWN // pace.skip))
    key = jax.random.key(0)

    def step(state, _):
        state, now = device.step(state, jnp.zeros(1), key)
        return state, jnp.stack([now.next_obs[0], now.reward, now.terminated, now.truncated, now.obs[0]])

    np.testing.assert_array_equal(jax.lax.scan(step, device.reset(key)[0], length=20)[1], expected)
    for row in expected:
        now = host.step(np.zeros((2, 1), np.float32))
        for env in range(2):
            assert (now.next_obs[env, 0], now.reward[env], now.terminated[env]) == tuple(row[:3])
            assert (now.truncated[env], now.obs[env, 0]) == tuple(row[3:])
        assert host.visited_cells().tolist() == [row[0]] * 2
        begin = row[0] - (row[0] - 1) % pace.skip if row[0] != OWN else (OWN - 1) // pace.skip * pace.skip + 1
        assert host.successes().tolist() == [bool(begin <= 2 <= row[0])] * 2
    host.close()


def test_a_longer_skip_does_not_make_a_larger_program(monkeypatch):
    """It took minutes to compile one that has a copy of the environment for every frame."""
    traced, move = [], CountingOnDevice.move
    monkeypatch.setattr(CountingOnDevice, "move", lambda self, *given: (traced.append(self), move(self, *given))[1])
    counts = []
    for skip in (3, 300):
        env, key = PacedEnv(CountingOnDevice(), Pace(0, skip)), jax.random.key(0)
        state, _ = env.reset(key)
        traced.clear()
        jax.make_jaxpr(env.step)(state, jnp.zeros(1), key)
        counts.append(len(traced))
    assert counts[0] == counts[1] > 0


def test_one_that_is_filmed_is_the_same():
    env, pace = pace_one(gym.wrappers.TimeLimit(Counting(8), OWN), Pace(3, 3)), Pace(3, 3)
    env.reset()
    for next_obs, reward, terminated, truncated, _ in by_hand(10, pace, 8):
        obs, paid, over, out, _ = env.step(np.zeros(1))
        assert (obs[0], paid, over, over or out) == (next_obs, reward, terminated, terminated or truncated)
        if over or out:
            env.reset()


@pytest.mark.slow
def test_worker_processes_restart_the_right_environments():
    """Environments that end at different times, in two workers, and one process for all."""
    envs = [PacedEnvs(make_gymnasium("Pendulum-v1", 5, workers=workers), Pace(7, 2)) for workers in (0, 2)]
    rng = np.random.default_rng(0)
    for one in envs:
        one.reset(range(5))
        one._elapsed[:] = [0, 3, 1, 3, 6]
    for _ in range(20):
        actions = rng.uniform(-1, 1, (5, 1)).astype(np.float32)
        for part, other in zip(*(one.step(actions) for one in envs), strict=True):
            np.testing.assert_array_equal(part, other)
    for one in envs:
        one.close()


def test_an_environment_among_others_is_as_alone_and_can_be_saved():
    """Hoppers that fall at different times, in the middle of an action."""
    pace, rng = Pace(25, 4), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (40, 3, 3)).astype(np.float32)
    together = PacedEnvs(make_mujoco("Hopper", 3), pace)
    alone = PacedEnvs(make_mujoco("Hopper", 1), pace)
    together.reset([5, 6, 7])
    alone.reset([6])
    ends = 0
    for t, action in enumerate(actions):
        if t == 20:
            saved = together.state()
        many, one = together.step(action), alone.step(action[1:2])
        for part, other in zip(many, one, strict=True):
            np.testing.assert_array_equal(part[1], other[0])
        ends += int(many.terminated.sum())
    assert ends > 3
    last = together.step(actions[0])
    together.restore(saved)
    for action in actions[20:]:
        together.step(action)
    for part, other in zip(last, together.step(actions[0]), strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.slow
def test_the_loops_agree_in_the_maze():
    pace, members, sched = Pace(8, 3), grid([0], {}), schedule(90)
    device = DeviceLoop(tiny(), PacedEnv(FourRoomMaze(), pace), members, sched)
    host = HostLoop(tiny(), lambda n: PacedEnvs(make_gymnasium("dac/FourRoomMaze-v0", n), pace), members, sched)
    for loop in (device, host):
        loop.advance(90)
    np.testing.assert_allclose(device.latest_rows(0), host.latest_rows(0), atol=2e-3)
    assert np.asarray(device.latest_rows(0))[0, :, 6].sum() == 89 // 8  # time-outs
    for one, other in zip(leaves(device.policies()), leaves(host.policies()), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-3)
    np.testing.assert_array_equal(device.visits(), host.visits())
    host.close()


def test_a_run_has_them_everywhere(tmp_path, monkeypatch):
    """In training, in its evaluations, afterwards, and when it was killed and resumed."""
    settings = TINY | {"steps": 100, "eval_every": 50, "checkpoint_every": 30, "time_limit": 9, "frame_skip": 2}
    whole = dac.train("sac", "SparseHopper", out=tmp_path / "whole", n_step=3, **settings)
    parts = killed_and_resumed("sac", "SparseHopper", tmp_path / "parts", monkeypatch, 50, n_step=3, **settings)
    assert files(whole) == files(parts)
    assert (whole.metrics["length"] <= 9).all()
    assert (whole.evaluate(2).lengths <= 9).all()


def test_what_cannot_be_is_said_in_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sac", "maze", "--time-limit", "500", "--frame-skip", "4"]) == 2
    line = "time_limit must not be beyond the task's own, which ends an episode after 250 steps of 4 frames; got 500"
    assert line in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))
    with pytest.raises(UsageError, match="frame_skip must be from 1 to 1000, not 0"):
        resolve("sac", "maze", 0, {"frame_skip": 0})
    assert (
        resolve("sac", "maze", 0, {"time_limit": 0, "frame_skip": 1}).fingerprint()
        == resolve("sac", "maze").fingerprint()
    )
