"""Functional environments for tests, written by the protocol, and some that break it."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np


class Params(NamedTuple):
    last: int = 100
    """Step at which an episode terminates."""
    cut: int = 11
    """Step at which the environment itself cuts an episode."""


class Counting:
    """Shows the steps of the episode, and pays their number."""

    default_params = Params()
    horizon = 90
    visit_grid = (100,)

    def action_space(self, params):
        return gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, key, params):
        return jnp.zeros(1), 0

    def step(self, key, state, action, params):
        state = state + 1
        terminated = state == params.last
        return jnp.full(1, state), state, state, terminated, ~terminated & (state == params.cut), {}

    def visit_cell(self, obs):
        return jnp.where(obs[0] > 5, obs[0], -1)


class Gymnax(Counting):
    """The same in gymnax's words: `step` begins a new episode by itself, and `step_env` does not."""

    reset_env = Counting.reset

    def reset(self, key, params):
        raise AssertionError("reset_env is there")

    def step(self, key, state, action, params):
        raise AssertionError("step_env is there")

    def step_env(self, key, state, action, params):
        obs, state, reward, terminated, _, info = Counting.step(self, key, state, action, params)
        return obs, state, reward, terminated, info

    def is_truncated(self, state, params):
        return state >= params.cut


class Drawn:
    """A point that is drawn at random and pushed, with a random key in its state and a dictionary to look at."""

    default_params = None
    horizon = 17

    def action_space(self, params):
        return gymnasium.spaces.Box(np.float32([[-0.1], [0.0]]), np.float32([[0.3], [5.0]]))

    def reset(self, key, params):
        key, start = jax.random.split(key)
        state = {"at": jax.random.uniform(start, (2,)), "key": key, "steps": 0}
        return self.observe(state), state

    def step(self, key, state, action, params):
        key, push = jax.random.split(state["key"])
        at = state["at"] + action[:, 0] / 10 + jax.random.normal(push, (2,)) / 100
        state = {"at": at, "key": key, "steps": state["steps"] + 1}
        return self.observe(state), state, -jnp.sum(at**2), (at > 3).any(), False, {}

    def observe(self, state):
        return {"z": state["at"], "a": state["steps"]}


class Clock:
    """Pays 1 per step, looks always alike, and ends every second step: by termination, or only by a time-out."""

    horizon = 50

    def __init__(self, terminates=False):
        self.terminates = terminates

    def action_space(self, params):
        return gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, key, params):
        return jnp.ones(1), jnp.int32(0)

    def step(self, key, state, action, params):
        over = state + 1 >= 2
        return jnp.ones(1), state + 1, 1.0, over & self.terminates, over & (not self.terminates), {}
