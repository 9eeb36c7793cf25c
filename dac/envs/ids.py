"""The tasks under Gymnasium's names: `gymnasium.make("dac/SparseHopper-v0")` works once `dac` is imported.

Since its version 1.0 Gymnasium looks for no environments in installed packages by itself. So `import dac` tells it the
ids if it is there already, and otherwise waits for it to be imported. Everything here is text: an environment's own
module is imported when one is made.
"""

from __future__ import annotations

import sys
from typing import Any

NAMESPACE = "dac"


def announce() -> None:
    """Make the ids known to Gymnasium, now or as soon as it is imported; `import dac` does not wait for either."""
    if "gymnasium" in sys.modules:
        register()
    elif not any(isinstance(finder, _Announcement) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Announcement())


class _Announcement:
    """A finder of modules that finds none: it waits for Gymnasium, and registers the ids once that is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        del path, target
        if name != "gymnasium":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: Any) -> None:
                load(module)
                register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Make every id known to `gymnasium.make`; calling it again changes nothing."""
    import gymnasium

    for id, entry in _entries().items():
        if id not in gymnasium.registry:
            gymnasium.register(id, **entry)


def _entries() -> dict[str, dict[str, Any]]:
    """Return every id of the package, with the arguments of `gymnasium.register`."""
    from dac.envs.dmc.names import ENTRIES
    from dac.envs.variants import VARIANTS

    maze = {
        "entry_point": "dac.envs.maze_gym:FourRoomMazeEnv",
        "max_episode_steps": 1000,  # FourRoomMaze.horizon, for which JAX would have to be imported
    }
    robots = {f"{NAMESPACE}/{name}-v0": _mujoco_entry(name) for name in VARIANTS}
    return {f"{NAMESPACE}/FourRoomMaze-v0": maze} | robots | {dmc_id(name): _dmc_entry(name) for name in ENTRIES}


def dmc_id(name: str) -> str:
    """Return the id of a task of the DeepMind Control suite."""
    return f"{NAMESPACE}/dmc-{name}-v0"


def _dmc_entry(name: str) -> dict[str, Any]:
    from dac.envs.dmc.names import HORIZON

    return {"entry_point": "dac.envs.dmc.single:DmcEnv", "max_episode_steps": HORIZON, "kwargs": {"task": name}}


def _mujoco_entry(name: str) -> dict[str, Any]:
    """Return what Gymnasium's registry has to know of a MuJoCo task."""
    from gymnasium.envs.registration import WrapperSpec

    from dac.envs.mujoco import HORIZON
    from dac.envs.variants import VARIANTS, Delayed, Sparse

    home, reward = "dac.envs.registration", VARIANTS[name].reward
    entry: dict[str, Any] = {
        "entry_point": f"{home}:make_robot",
        "max_episode_steps": HORIZON,
        "kwargs": {"task": name},
    }
    if isinstance(reward, Sparse):
        entry["kwargs"]["threshold"] = reward.threshold
        entry["additional_wrappers"] = (WrapperSpec("SparseTask", f"{home}:SparseTask", {}),)
    elif isinstance(reward, Delayed):
        entry["kwargs"]["delay"] = reward.delay
        entry["additional_wrappers"] = (WrapperSpec("DelayedTask", f"{home}:DelayedTask", {}),)
    return entry


def ids() -> list[str]:
    """Return every id of the package."""
    return list(_entries())
