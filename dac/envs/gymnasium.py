"""Any Gymnasium environment under the contract of `envs/host.py`.

    make_gymnasium("Pendulum-v1", 8)                     by its id
    make_gymnasium("my_package:MyEnv-v0", 8)             by an id that a module registers when it is imported
    make_gymnasium(lambda: MyEnv(size=3), 8)             by a function that makes a new environment at every call
    make_gymnasium("my_package:Slow-v0", 8, workers=4)   stepped by four worker processes

Observations may be a Box, or a Dict or Tuple of Boxes; they are laid out flat, in Gymnasium's order. Actions must be a
Box with finite bounds; [-1, 1] is stretched over it. An environment is seeded once, by `reset`; the episodes after the
first go on with its own random numbers.

Visited states are counted where the innermost environment (`env.unwrapped`) has these two, as `maze_gym.py` does:

    visit_grid: tuple[int, ...]     the shape of a grid over the states
    visit_cell() -> int             flat index in it of the state it is in, or -1 outside

Successes are read from what a step says in `info` (`success.py`).

Gymnasium has no way to read an environment's state. These environments are saved by their attributes where a trial
shows that nothing else matters (`saving.py`), and `unsaved` says why not where it does not. `reset(seeds)` starts as
freshly as the environment's own `reset(seed=...)` does: an environment that keeps something across it (a curriculum, a
counter of episodes) keeps it here too.
"""

from __future__ import annotations

import functools
import importlib
import math
import weakref
from collections.abc import Mapping, Sequence

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from jaxtyping import Bool, Float32, Int64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds
from dac.envs.checked import Captured, MakeEnv
from dac.envs.host import AbstractHostEnvs, HostStep, check_actions, check_count, check_seeds, check_state
from dac.envs.robotics import import_package, maker
from dac.envs.rows import Rows
from dac.envs.spaces import one_line
from dac.envs.workers import Workers

PAGE = 4096
"""Saved environments are filled up to a multiple of so many bytes, so that equal ones are mostly of one length."""


def make_gymnasium(env: str | MakeEnv, num: int, *, workers: int = 0, check_finite: bool = True) -> GymnasiumEnvs:
    """Make vector environments of an id, or of a function that makes one: `make_gymnasium("Pendulum-v1", 8)`.

    `workers` processes share the environments; with 0 of them they run in this process. With `check_finite` an
    observation or reward that is not finite raises an error that names environment and step; without it the number is
    passed on, for a caller that checks.
    """
    return GymnasiumEnvs(env, num, workers=workers, check_finite=check_finite)


class GymnasiumEnvs(AbstractHostEnvs):
    """Several Gymnasium environments, stepped one after another in this process or spread over worker processes.

    Workers pay where a step takes longer than the messages about it, some tenths of a millisecond. They are spawned,
    not forked, so a script that asks for them needs the usual `if __name__ == "__main__":`.
    """

    def __init__(self, env: str | MakeEnv, num: int, *, workers: int = 0, check_finite: bool = True):
        self.num, workers = check_count("num", num), check_count("workers", workers, low=0)
        make = find_environment(env)
        self._rows = Workers(self.num, workers, check_finite) if workers else Rows(range(self.num), check_finite)
        # closes them when nobody calls close; not at exit, where workers end by themselves and modules may be gone
        self._finalizer = weakref.finalize(self, self._rows.close)
        self._finalizer.atexit = False
        try:
            layout = self._rows.open(make)
        except BaseException:
            self.close()
            raise
        self.spec = EnvSpec(layout.obs_size, math.prod(layout.action_space.shape))
        self.bounds = ActionBounds.of(layout.action_space)
        self.horizon = layout.horizon
        self.cells = layout.cells
        if layout.flattened:
            self.notes = (f"observations are laid out flat, as {layout.obs_size} numbers: {layout.flattened}",)
        self._visited = np.full(self.num, -1, np.int64)
        self._successes: Bool[np.ndarray, " env"] | None = None
        self._begun = False

    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        checked = check_seeds(seeds, self.num)
        self._begun = False
        obs, self._visited = self._rows.reset(checked)
        self._begun = True
        return obs

    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        checked = check_actions(actions, self.num, self.spec.action_size)
        if not self._begun and not self._rows.closed:
            raise UsageError("call reset(seeds) before step(actions)")
        self._begun = False  # should a step fail, some environments have made it and others not
        step, self._visited, self._successes = self._rows.step(checked)
        self._begun = True
        return step

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        return self._rows.restart(rows)

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        return self._visited.copy()

    def successes(self) -> Bool[np.ndarray, " env"] | None:
        return None if self._successes is None else self._successes.copy()

    @functools.cached_property
    def unsaved(self) -> str | None:
        """Found out by a trial, which makes two more environments, when it is first asked for."""
        return self._rows.find_unsaved()

    def state(self) -> dict[str, np.ndarray]:
        self._check_saved()
        if not self._begun:
            raise UsageError("call reset(seeds) before state()")
        captured = self._rows.capture()
        counters = [(one.steps, one.cell, -1 if one.success is None else one.success) for one in captured]
        sizes = np.array([len(one.packed) for one in captured], np.int64)
        packed = np.zeros((self.num, -(-sizes.max() // PAGE) * PAGE), np.uint8)
        for row, one in zip(packed, captured, strict=True):
            row[: len(one.packed)] = np.frombuffer(one.packed, np.uint8)
        return {
            "captured": packed,
            "sizes": sizes,
            "counters": np.array(counters, np.int64),
            "obs": np.stack([one.obs for one in captured]),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        self._check_saved()
        obs, counters = np.zeros((self.num, self.spec.obs_size), np.float32), np.zeros((self.num, 3), np.int64)
        check_state(state, {"sizes": counters[:, 0], "counters": counters, "obs": obs})
        sizes, packed = state["sizes"], state.get("captured", np.zeros((0, 0)))
        if packed.dtype != np.uint8 or packed.ndim != 2 or len(packed) != self.num or sizes.max() > packed.shape[1]:
            raise UsageError(f"'captured' of the state must have {self.num} rows of {sizes.max()} bytes or more")
        rows = zip(packed, sizes, state["obs"], state["counters"].tolist(), strict=True)
        self._rows.restore(
            [
                Captured(row[:size].tobytes(), own.copy(), steps, cell, None if success < 0 else bool(success))
                for row, size, own, (steps, cell, success) in rows
            ]
        )
        self._begun, self._visited = True, state["counters"][:, 1].copy()
        return state["obs"].copy()

    def _check_saved(self) -> None:
        if self.unsaved is not None:
            raise UsageError(f"these environments cannot be saved: {self.unsaved}")

    def close(self) -> None:
        self._finalizer()


def find_environment(env: str | MakeEnv) -> MakeEnv:
    """Return a function that makes the environment; ids are looked up here, as a worker process may not know them."""
    if not isinstance(env, str):
        if not callable(env):
            raise UsageError(f"env must be an id or a function that makes an environment; got {one_line(env)}")
        return env
    module, _, id = env.rpartition(":")
    if id.startswith("dac/"):
        from dac.envs.ids import register

        register()
    try:
        if module:
            importlib.import_module(module)
        else:
            import_package(id)
        namespace, name, version = parse_env_id(id)
        latest = find_highest_version(namespace, name)
        if version is None and id not in gym.registry and latest is not None:
            raise UsageError(f"{env!r} needs a version: {get_env_id(namespace, name, latest)!r} is the latest")
        spec = gym.spec(id)
    except (gym.error.Error, ImportError) as error:
        raise UsageError(f"no environment {env!r}: {one_line(error)}") from error
    return maker(spec)
