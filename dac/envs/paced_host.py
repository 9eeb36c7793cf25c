"""Time limits and frame skip for environments on the host, whatever they are; and for one of Gymnasium, to film it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from jaxtyping import Bool, Float32, Int64

from dac.envs.host import AbstractHostEnvs, HostStep, check_state
from dac.envs.pace import Pace


class PacedEnvs(AbstractHostEnvs):
    """Environments that hold every action for `skip` of their steps and end an episode after `limit` actions.

    The rewards of the steps are summed. All environments are stepped together, so one whose episode ends under way has
    begun the next one by the time of the next action: that is broken off, and another one begun.
    """

    def __init__(self, envs: AbstractHostEnvs, pace: Pace):
        self.envs, self._pace = envs, pace
        self.spec, self.bounds, self.num = envs.spec, envs.bounds, envs.num
        self.cells, self.walls = envs.cells, envs.walls
        self.horizon, self.notes = pace.horizon(envs.horizon), envs.notes
        self._elapsed = np.zeros(envs.num, np.int64)
        self._visited = np.full(envs.num, -1, np.int64)
        self._successes: Bool[np.ndarray, " env"] | None = None

    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        self._elapsed[:] = 0
        obs = self.envs.reset(seeds)
        self._visited = self.envs.visited_cells()
        return obs

    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        next_obs, reward, terminated, truncated, obs = self.envs.step(actions)
        self._visited, self._successes = self.envs.visited_cells(), self.envs.successes()
        late = np.zeros(self.num, np.bool_)  # has begun the next episode and made steps of it
        for _ in range(self._pace.skip - 1):
            late = terminated | truncated
            now = self.envs.step(actions)
            going = ~late
            next_obs[going], reward[going] = now.next_obs[going], (reward + now.reward)[going]
            terminated[going], truncated[going], obs[going] = (
                now.terminated[going],
                now.truncated[going],
                now.obs[going],
            )
            self._visited = np.where(going, self.envs.visited_cells(), self._visited)
            if (successes := self.envs.successes()) is not None:
                self._successes = (False if self._successes is None else self._successes) | (successes & going)
        self._elapsed += 1
        cut = (self._elapsed >= self.horizon) & ~terminated & ~truncated
        truncated |= cut
        if (late | cut).any():
            rows = np.flatnonzero(late | cut)
            obs[rows] = self.envs.restart(rows)
        self._elapsed[terminated | truncated] = 0
        return HostStep(next_obs, reward, terminated, truncated, obs)

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        self._elapsed[rows] = 0
        return self.envs.restart(rows)

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        return self._visited.copy()

    def successes(self) -> Bool[np.ndarray, " env"] | None:
        return None if self._successes is None else self._successes.copy()

    @property
    def unsaved(self) -> str | None:
        return self.envs.unsaved

    def state(self) -> dict[str, np.ndarray]:
        return self.envs.state() | {"decisions": self._elapsed.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        check_state(state, {"decisions": self._elapsed})
        self._elapsed[:] = state["decisions"]
        return self.envs.restore({name: array for name, array in state.items() if name != "decisions"})

    def close(self) -> None:
        self.envs.close()


class HeldAction(gym.Wrapper):
    """An environment of Gymnasium that holds every action for some steps, or until its episode ends."""

    def __init__(self, env: gym.Env, skip: int):
        super().__init__(env)
        self._skip = skip

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


def pace_one(env: gym.Env, pace: Pace) -> gym.Env:
    """Return an environment of Gymnasium at this pace."""
    env = HeldAction(env, pace.skip) if pace.skip > 1 else env
    return TimeLimit(env, pace.limit) if pace.limit else env
