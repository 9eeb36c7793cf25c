"""Environments on the host can be reset again and again: the same seeds and actions give the same steps, to the bit."""

import functools

import gymnasium as gym
import numpy as np
import pytest

from dac.envs.gymnasium import make_gymnasium
from dac.envs.mujoco import make_mujoco
from dac.envs.variants import VARIANTS
from dac.envs.wrappers import DelayedReward, SparseReward

SWINGS = functools.partial(gym.make, "Pendulum-v1", max_episode_steps=30)
EVERY = {
    **{name: functools.partial(make_mujoco, name, horizon=30) for name in VARIANTS},
    "Pendulum": functools.partial(make_gymnasium, SWINGS),
    "Pendulum in workers": functools.partial(make_gymnasium, SWINGS, workers=2),
    "maze in Gymnasium": functools.partial(make_gymnasium, "dac/FourRoomMaze-v0"),
    "delayed": functools.partial(make_gymnasium, lambda: DelayedReward(SWINGS(), 7)),
    "sparse": functools.partial(make_gymnasium, lambda: SparseReward(SWINGS(), 0.5, lambda env: env.state[0])),
}


def play(envs, seeds, actions):
    """Everything that can be seen of an episode, from its first observation on."""
    seen = [envs.reset(seeds), envs.visited_cells()]
    for action in actions:
        seen += [*envs.step(action), envs.visited_cells()]
    return seen


def same(left, right):
    return all(np.array_equal(ours, theirs) for ours, theirs in zip(left, right, strict=True))


@pytest.mark.parametrize("name", EVERY)
def test_a_reset_starts_afresh(name):
    envs = EVERY[name](3)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 3, envs.spec.action_size)).astype(np.float32)
    first = play(envs, [4, 5, 6], actions)  # beyond the time limit, where there is one
    other = play(envs, [7, 8, 9], -actions[:17])  # breaks off in the middle of an episode and of a delay
    assert not same(other, first[: len(other)])
    assert same(play(envs, [4, 5, 6], actions), first)
    envs.close()
    fresh = EVERY[name](3)
    assert same(play(fresh, [4, 5, 6], actions), first)
    fresh.close()


@pytest.mark.parametrize("name", ["Hopper", "Ant", "HumanoidStandup"])
def test_a_reset_forgets_a_simulation_that_blew_up(name):
    envs, fresh = make_mujoco(name, 1), make_mujoco(name, 1)
    envs.reset([0])
    state = envs.state()
    envs.restore(state | {"physics": np.where(np.arange(state["physics"].shape[1]) % 2, 1e9, state["physics"])})
    actions = np.ones((5, 1, envs.spec.action_size), np.float32)
    for action in actions:
        envs.step(action)
    assert same(play(envs, [3], actions), play(fresh, [3], actions))
