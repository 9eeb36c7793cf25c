"""Many simulations of one task of the suite on a pool of threads."""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float32, Int64

from dac.core.errors import UsageError, did_you_mean
from dac.core.spec import EnvSpec
from dac.envs.batch import AbstractBatchEnvs, World
from dac.envs.bounds import ActionBounds
from dac.envs.dmc.domain import AbstractDomain, begin_episode
from dac.envs.dmc.names import ENTRIES, HORIZON
from dac.envs.host import (
    HostStep,
    check_actions,
    check_count,
    seed_generators,
    usable_cores,
)


def make_domain(name: str) -> AbstractDomain:
    """Return the domain of a task with its settings, its model compiled."""
    if name not in ENTRIES:
        hint = did_you_mean(name, ENTRIES)
        raise UsageError(f"unknown task {name!r} of the DeepMind Control suite{hint} (dac list tasks dmc: names them)")
    entry = ENTRIES[name]
    try:
        return importlib.import_module(f"dac.envs.dmc.{entry.domain}").Domain(**entry.settings)
    except UsageError:
        raise
    except Exception as error:  # a model that this MuJoCo does not compile, or that has other names in it
        import mujoco

        versions = f"MuJoCo {mujoco.__version__} and dm_control {_version()}"
        raise UsageError(f"dmc:{name} could not be made with {versions}: {type(error).__name__}: {error}") from error


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("dm_control")


class DmcEnvs(AbstractBatchEnvs):
    """Simulations of one task, each with an episode and a generator of its own.

    After a step positions, velocities and sensors are those of the new state, as dm_control has them (its
    `legacy_step`); accelerations and the forces that sensors measure are those of the last substep.
    """

    def __init__(self, task: str, num: int, *, horizon: int = HORIZON, threads: int | None = None):
        import mujoco
        from mujoco.batch import Batch

        self.num = check_count("num", num)
        self.horizon = check_count("horizon", horizon)
        self.cells = None
        self.task, self.domain = task, make_domain(task)
        threads = min(self.num, usable_cores()) if threads is None else check_count("threads", threads)
        model = self.domain.model
        low, high = (bound.astype(np.float32) for bound in self.domain.action_range())
        self.bounds = ActionBounds(low, high, low.dtype, (model.nu,))

        # Persistent: a simulation keeps what was computed of its new state, and the next step need not do it again.
        self._batch: Batch | None = Batch(model, self.num, threads, persistent=True)
        # What an episode draws into the model is kept per simulation. A terrain cannot be: there each has a model.
        self._models = [copy.copy(model) for _ in range(self.num)] if "hfield_data" in self.domain.varies else []
        self._drawn = {} if self._models else {name: self._batch.expand(name) for name in self.domain.varies}
        self.world: World = {name: self._batch.bind(name) for name in self.domain.everything}
        self._stage = mujoco.mjtStage.mjSTAGE_VEL.value
        self._scratch = mujoco.MjData(model)  # in which episodes begin, one after the other
        self._generators: list[np.random.Generator] = []
        self._elapsed = np.zeros(self.num, np.int64)
        obs_size = sum(part.shape[1] for part in self.domain.observe(self.world))
        self._obs = np.zeros((self.num, obs_size), np.float32)
        self.spec = EnvSpec(obs_size, model.nu)

    def reset(self, seeds: Sequence[int]) -> Float32[np.ndarray, "env obs"]:
        self._open()
        self._generators = seed_generators(seeds, self.num)
        self._begin(np.arange(self.num))
        return self._obs.copy()

    def step(self, actions: Float32[np.ndarray, "env action"]) -> HostStep:
        batch, domain = self._open(), self.domain
        if not self._generators:
            raise UsageError("call reset(seeds) or restore(state) before step(actions)")
        self.world["ctrl"][:] = self.bounds.stretch(check_actions(actions, self.num, self.spec.action_size))
        counts = batch.warning[:, :, 1]  # of every kind of warning
        seen = counts.copy()
        batch.step(nstep=domain.substeps, stage=self._stage)
        self._elapsed += 1
        next_obs, reward = self._observe(self.world), domain.earn(self.world).astype(np.float32)
        terminated = domain.ends(self.world)
        truncated = self._elapsed >= self.horizon
        truncated &= ~terminated
        lost = diverged(seen, counts)
        if lost.any():  # the episode is cut before the step that was lost; dm_control raises an error there
            next_obs[lost], reward[lost], terminated[lost], truncated[lost] = self._obs[lost], 0.0, False, True
            warnings.warn(f"dmc:{self.task}: a simulation diverged, and its episode was cut", stacklevel=2)
        over = terminated | truncated
        self._obs[:] = next_obs
        if over.any():
            self._begin(np.flatnonzero(over))
        return HostStep(next_obs, reward, terminated, truncated, self._obs.copy())

    def visited_cells(self) -> Int64[np.ndarray, " env"]:
        return np.full(self.num, -1)

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        obs = super().restore(state)
        if self._models:
            for model, terrain in zip(self._models, state["hfield_data"], strict=True):
                model.hfield_data[:] = terrain
            self._open().set_models(self._models)
        return obs

    def close(self) -> None:
        self._batch = None
        self.world, self._drawn, self._models = {}, {}, []

    def _counters(self) -> dict[str, np.ndarray]:
        terrains = {"hfield_data": np.stack([model.hfield_data for model in self._models])} if self._models else {}
        return {"elapsed": self._elapsed, "obs": self._obs} | self._drawn | terrains

    def _observe(self, world: World) -> Float32[np.ndarray, "env obs"]:
        parts = self.domain.observe(world)
        obs = np.empty((len(world["qpos"]), sum(part.shape[1] for part in parts)), np.float32)
        return np.concatenate(parts, axis=1, out=obs, casting="same_kind")

    def _begin(self, rows: np.ndarray) -> None:
        """Start new episodes in some rows: each is drawn in a scratch simulation, and its state becomes the row."""
        import mujoco

        batch, data = self._open(), self._scratch
        for row in rows:
            model = self._models[row] if self._models else self.domain.model
            begin_episode(self.domain, model, data, self._generators[row])
            for name, drawn in self._drawn.items():
                drawn[row] = getattr(model, name)
            mujoco.mj_getState(model, data, batch.state[row], mujoco.mjtState.mjSTATE_INTEGRATION)
            self._obs[row] = self._observe({name: getattr(data, name)[None] for name in self.domain.everything})[0]
        if self._models:
            batch.set_models(self._models)
        self._elapsed[rows] = 0


def diverged(seen: np.ndarray, now: np.ndarray) -> Bool[np.ndarray, "*env"]:
    """Return whether a simulation, or each of some, was put back to its start since its warnings were counted.

    MuJoCo does so where a coordinate, a velocity or an acceleration is not finite or too large.
    """
    import mujoco

    kinds = mujoco.mjtWarning
    bad = [kind.value for kind in (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)]
    return np.asarray((now[..., bad] > seen[..., bad]).any(axis=-1))


def make_dmc(task: str, num: int, *, horizon: int = HORIZON, threads: int | None = None) -> DmcEnvs:
    """Make vector environments of a task of the suite: `make_dmc("cartpole-swingup_sparse", 30)`."""
    return DmcEnvs(task, num, horizon=horizon, threads=threads)
