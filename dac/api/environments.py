"""What a user calls an environment: an id, an environment, or a function that makes one."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dac.core.types import UsageError
from dac.envs.functional import PROTOCOL, is_functional
from dac.tasks import TASKS, Task, find_task, task_of
from dac.tasks.registry import FACTORIES, find_functional

if TYPE_CHECKING:
    import gymnasium as gym

Environment: TypeAlias = "str | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]]"
"""A task name of ours, `gym:ID` or an id of Gymnasium; an environment; or a function that makes one at every call.

A functional environment in JAX, or a pair of one and its parameters, is an environment too.
"""


class NamedTask:
    """A task by its name, with the function that makes its environment where there is one.

    Two functions may have the same name (every lambda of a module has), and the registry knows the latest one of it.
    So each object that trains keeps its own, and puts it back before the task is looked up.
    """

    def __init__(self, env: Environment):
        self.name, self._factory = _name(env)

    @classmethod
    def called(cls, name: str, env: Environment | None) -> NamedTask:
        """Return the task of a saved run; `env` stands for its environment if it is given."""
        found = cls(name if env is None else env)
        if env is not None and found.name != name:
            if not name.startswith(("python:", "jax:")):
                raise UsageError(
                    f"the run is of {name}, and its name decides the environment; `env=` stands for an environment "
                    "that was given as a function or an object"
                )
            found._factory = found._factory or _factory_of(found.name)
            found.name = name
        found.restore()
        return found

    def restore(self) -> None:
        """Let the name stand for this object's function again."""
        if self._factory is not None:
            FACTORIES[self.name.partition(":")[2]] = self._factory

    def find(self) -> Task:
        self.restore()
        return find_task(self.name)


def _name(env: Environment) -> tuple[str, Callable[[], Any] | None]:
    if isinstance(env, str):
        return _of_text(env), None
    if is_functional(env):
        # the same for every call of the same environment, so that it is compiled once
        name = f"<{type(env[0] if isinstance(env, tuple) else env).__qualname__}>"
        made = functools.partial(_itself, env)
        FACTORIES[name] = made
        return f"jax:{name}", made
    if _is_environment(env):
        factory: Callable[[], Any] = _Copies(cast("gym.Env[Any, Any]", env))
        # no name that another process could import: what it would make is not this environment
        name = f"<a copy of {type(_unwrapped(env)).__qualname__}>"
        FACTORIES[name] = factory
        return f"python:{name}", factory
    if not callable(env):
        raise UsageError(
            f"env must be an id, an environment or a function that makes one, not {' '.join(repr(env).split())[:100]}"
        )
    return task_of(env), env


def _itself(env: Any) -> Any:
    return env


def _factory_of(name: str) -> Callable[[], Any] | None:
    """Return what makes the environment of a task that is given by its name."""
    prefix, _, rest = name.partition(":")
    return find_functional(rest) if prefix == "jax" else find_task(name).single


def _of_text(name: str) -> str:
    """Return the task's name; what is no task of ours and ends as Gymnasium's ids do is one of them."""
    if name in TASKS or name.startswith(("gym:", "python:", "jax:")) or not re.search(r"-v\d+$", name):
        return name
    return f"gym:{name}"


def _is_environment(env: Any) -> bool:
    import gymnasium

    vector = getattr(gymnasium.vector, "VectorEnv", ())
    if isinstance(env, vector) or (hasattr(env, "num_envs") and hasattr(env, "reset") and not isinstance(env, type)):
        raise UsageError(
            "env is a vector of environments; pass a function that makes one environment, and say how many with envs=N"
        )
    if isinstance(env, gymnasium.Env):
        return True
    if not callable(env) and hasattr(env, "reset") and hasattr(env, "step"):
        raise UsageError(
            f"{type(env).__name__} is not a gymnasium.Env; derive it from that class, or wrap it in one "
            f"(a functional environment in JAX has {PROTOCOL})"
        )
    return False


def _unwrapped(env: Any) -> Any:
    return getattr(env, "unwrapped", env)


class _Copies:
    """Makes copies of an environment, which itself is left alone: training and evaluation need several."""

    def __init__(self, env: gym.Env[Any, Any]):
        self._env = env
        self._copy().close()  # what cannot be copied is said at once

    def __call__(self) -> gym.Env[Any, Any]:
        return self._copy()

    def _copy(self) -> gym.Env[Any, Any]:
        try:
            return copy.deepcopy(self._env)
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        raise UsageError(
            f"{type(_unwrapped(self._env)).__name__} cannot be copied ({why}), and training needs several of it; "
            "pass a function that makes one"
        )
