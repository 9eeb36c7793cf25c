"""Every task by name: how to make it, and the defaults the paper uses there."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds
from dac.envs.dmc.names import ENTRIES, Entry
from dac.envs.host import AbstractHostEnvs
from dac.envs.ids import dmc_id
from dac.envs.mujoco import make_mujoco
from dac.envs.pace import Pace
from dac.envs.robotics import is_maze_robot
from dac.envs.variants import VARIANTS, Delayed, Sparse
from dac.tasks.families import ANY, LISTED, family_of

if TYPE_CHECKING:  # without JAX and Gymnasium, so that a list of tasks is quick
    import gymnasium as gym

    from dac.envs.base import AbstractDeviceEnv
    from dac.envs.spaces import Spaces


@dataclasses.dataclass(frozen=True)
class Task:
    """A task with its defaults; what a user gives comes before them, what they leave out comes from the algorithm.

    Exactly one of `device` (makes an environment inside the compiled program) and `host` (makes a number of
    environments on the CPU) is given; it decides which loop trains.
    """

    name: str
    """The name on the command line and in Python."""
    summary: str
    """One line for `dac list tasks`."""
    device: Callable[[], AbstractDeviceEnv] | None = None
    """Makes an environment inside the compiled program."""
    host: Callable[..., AbstractHostEnvs] | None = None
    """Makes a number of environments on the CPU."""
    single: Callable[[], gym.Env] | None = None
    """Makes the environment as Gymnasium has it, with its own actions, where there is such a one."""
    sizes: EnvSpec | None = None
    """The sizes of observations and actions where they are known without making an environment."""
    extra: str = ""
    """The extra of this package that the environment needs, if any."""
    takes_workers: bool = False
    """Whether `host` has an argument `workers`: the number of processes that step the environments."""
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Defaults of the training loop."""
    hyper: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Defaults of the algorithm, where it has such a setting."""
    source: str = ""
    """Where the defaults come from."""
    _specs: list[EnvSpec] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)
    """The spec once it is known: to make an environment may take long, so none is made to ask for it again."""
    _spaces: list[Spaces] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)
    _bounds: list[ActionBounds] = dataclasses.field(default_factory=list, init=False, repr=False, compare=False)
    """The range of its actions, once it is known."""

    def make_envs(self, num: int, workers: int = 0) -> AbstractHostEnvs:
        """Make `num` environments on the CPU, stepped by `workers` processes, or by this one if there are none."""
        assert self.host is not None
        self.check_workers(workers)
        envs = self.host(num, workers=workers) if workers else self.host(num)
        self._specs[:], self._bounds[:] = [envs.spec], [envs.bounds]
        return envs

    def at(self, pace: Pace) -> Task:
        """Return this task with a time limit and a frame skip; every environment that it makes has them."""
        if pace == Pace():
            return self
        device, host = self.device, self.host

        def paced_device() -> AbstractDeviceEnv:
            from dac.envs.paced_device import PacedEnv

            assert device is not None
            return PacedEnv(device(), pace)

        def paced_host(num: int, **settings: Any) -> AbstractHostEnvs:
            from dac.envs.paced_host import PacedEnvs

            assert host is not None
            envs = host(num, **settings)
            try:
                return PacedEnvs(envs, pace)
            except BaseException:
                envs.close()
                raise

        found = dataclasses.replace(
            self, device=None if device is None else paced_device, host=None if host is None else paced_host
        )
        found._specs[:], found._bounds[:] = self._specs, self._bounds
        return found

    def check_workers(self, workers: int) -> None:
        """Refuse worker processes where the task does not run in them."""
        if workers and not self.takes_workers:
            raise UsageError(
                f"workers must be 0 for {self.name}, not {workers}: it has threads, or is part of the program; "
                "only the Gymnasium tasks gym:ID and python:MODULE:FACTORY run in worker processes"
            )

    def spaces(self) -> Spaces:
        """Return what the environment itself shows and takes; without a Gymnasium form it is what networks see."""
        if not self._spaces:
            self._spaces[:] = [self._find_spaces()]
        return self._spaces[0]

    def _find_spaces(self) -> Spaces:
        from dac.envs.spaces import Spaces

        if self.single is None:
            return Spaces.flat(self.spec(), self.bounds())
        try:
            env = self.single()
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"{self.name} could not be made: {type(error).__name__}: {error}") from error
        with contextlib.closing(env):
            return Spaces.of(env)

    def spec(self) -> EnvSpec:
        """Return the sizes of observations and actions, making an environment only if none was ever made."""
        if self.device is not None:
            return self.device().spec
        if not self._specs:
            self.make_envs(1).close()
        return self._specs[0]

    def bounds(self) -> ActionBounds:
        """Return the environment's own range of actions, over which the policies' [-1, 1] is stretched."""
        if self.device is not None:
            return self.device().bounds
        self.spec()
        return self._bounds[0]


def _device(place: str) -> Callable[[], AbstractDeviceEnv]:
    """Return a function that makes the environment at `module:Class`, imported only then: JAX is slow to load."""
    module, _, name = place.partition(":")
    return lambda: getattr(importlib.import_module(module), name)()


def _registered(id: str) -> Callable[[], gym.Env]:
    """Return a function that makes the environment of that id of ours."""

    def make() -> gym.Env:
        from dac.envs.gymnasium import find_environment

        return find_environment(id)()

    return make


_SIZES = {
    "HalfCheetah": EnvSpec(17, 6),
    "Hopper": EnvSpec(11, 3),
    "Walker2d": EnvSpec(17, 6),
    "Ant": EnvSpec(105, 8),
    "HumanoidStandup": EnvSpec(348, 17),
}
_TABLES = "beta: Table D.2, Han & Sung 2021; steps: the authors' code"


def _mujoco(name: str, steps: int, beta: float, source: str = _TABLES) -> Task:
    """Describe a MuJoCo task with the paper's settings."""
    robot, reward = VARIANTS[name].robot, VARIANTS[name].reward
    summary = f"{robot}, dense reward"
    if isinstance(reward, Sparse):
        summary = f"{robot}, reward 1 for every step beyond x = {reward.threshold:g}"
    elif isinstance(reward, Delayed):
        summary = f"{robot}, its reward summed and paid every {reward.delay} steps"
    elif robot == "HumanoidStandup":
        summary = "Humanoid stands up, dense reward"
    random_steps = 10_000 if robot in ("HalfCheetah", "Ant") else 1000
    source += "; uniform steps: the authors' code, 10,000 for HalfCheetah and Ant, 1000 elsewhere"
    return Task(
        name,
        summary,
        host=functools.partial(make_mujoco, name),
        single=_registered(f"dac/{name}-v0"),
        sizes=_SIZES[robot],
        training={"steps": steps, "random_steps": random_steps},
        hyper={"beta": beta},
        source=source,
    )


_MILLION = 1_000_000
_DENSE = "beta: the delayed tasks', since the rewards are the same; steps: ours"
_MUJOCO = (
    _mujoco("SparseHalfCheetah", _MILLION, 0.02),
    _mujoco("SparseHopper", _MILLION, 0.04),
    _mujoco("SparseWalker2d", _MILLION, 0.02),
    _mujoco("SparseAnt", 3 * _MILLION, 0.01),
    _mujoco("DelayedHalfCheetah", 5 * _MILLION, 0.2),
    _mujoco("DelayedHopper", 3 * _MILLION, 0.2),
    _mujoco("DelayedWalker2d", 5 * _MILLION, 0.2),
    _mujoco("DelayedAnt", 5 * _MILLION, 0.2),
    _mujoco("HumanoidStandup", 10 * _MILLION, 1.0),
    _mujoco("HalfCheetah", _MILLION, 0.2, _DENSE),
    _mujoco("Hopper", _MILLION, 0.2, _DENSE),
    _mujoco("Walker2d", _MILLION, 0.2, _DENSE),
    _mujoco("Ant", _MILLION, 0.2, _DENSE),
)


def _dmc(name: str, entry: Entry) -> Task:
    """Describe a task of the DeepMind Control suite."""

    def make(num: int) -> AbstractHostEnvs:
        from dac.envs.dmc.envs import make_dmc

        return make_dmc(name, num)

    return Task(
        f"dmc:{name}",
        entry.summary,
        host=make,
        single=_registered(dmc_id(name)),
        sizes=entry.spec,
        extra="dmc",
        training={"steps": _MILLION, "random_steps": 5000},
        hyper={"beta": float(f"{0.1 / entry.spec.action_size:.2g}")},
        source="beta: 0.1 over the number of actions, because a step earns at most 1, as in the paper's sparse tasks, "
        "whose beta is 0.08 to 0.12 over that number (Table D.2, Han & Sung 2021); steps, random_steps: those of SAC "
        "in github.com/denisyarats/pytorch_sac (config/train.yaml), whose temperature begins at 0.1",
    )


DMC: dict[str, Task] = {f"dmc:{name}": _dmc(name, entry) for name, entry in ENTRIES.items()}
"""The tasks of the DeepMind Control suite by their names."""


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            name="maze",
            summary="continuous four-room maze, no reward: how many of 9225 cells does an agent visit?",
            device=_device("dac.envs.maze:FourRoomMaze"),
            single=_registered("dac/FourRoomMaze-v0"),
            sizes=EnvSpec(2, 2),
            training={"steps": 300_000, "eval_every": 5000},
            hyper={"gamma": 0.999, "clip": float("inf"), "bonus_density": "histogram"},
            source="steps, gamma: Section 6.1 and Table D.1, Han & Sung 2021; eval_every: evaluation tells nothing "
            "here, so it is rare; clip: without it DAC visits 1.28 times as many cells, the paper's is 1; "
            "bonus_density: two coordinates can be counted exactly, in the cells of the metric",
        ),
        *_MUJOCO,
        Task(
            name="target",
            summary="one-step probe with a known answer: see s, act s/2",
            device=_device("dac.envs.probes:Target"),
            sizes=EnvSpec(1, 1),
            training={"steps": 3000, "eval_every": 500, "eval_episodes": 20},
            hyper={"beta": 0.01, "hidden": (32, 32), "batch_size": 64},
            source="ours: small enough for a test",
        ),
    )
}
"""Every task that the package itself brings, by its name."""


def listed() -> dict[str, Task]:
    """Return every task that has a name of its own, also those that need an extra."""
    return TASKS | DMC | {f"gym:{id}": _gymnasium(f"gym:{id}", id) for id in LISTED}


def find_task(name: str) -> Task:
    """Return the task of that name, or of one of the `FORMS`, or raise an error that says what there is."""
    known = listed()
    if name in known:
        return known[name]
    prefix, _, rest = name.partition(":")
    if prefix == "gym" and rest:
        return _gymnasium(name, rest)
    if prefix == "python" and rest:
        return _gymnasium(name, find_factory(rest))
    if prefix == "jax" and rest:
        return _remembered(name, find_functional(rest), _make_functional_task)
    close = _close(name)
    hint = f"; did you mean {close}?" if close else ""
    raise UsageError(f"unknown task {name!r}{hint} (accepted: {', '.join(TASKS)}, {', '.join(FORMS)})")


FORMS = {
    "dmc:DOMAIN-TASK": f"the {len(DMC)} tasks of the DeepMind Control suite: dac list tasks dmc",
    "gym:ID": "any Gymnasium environment with real-valued actions; gym:MODULE:ID imports the module that registers it",
    "python:MODULE:FACTORY": "an environment of your own, made by a function or class of a module",
    "jax:MODULE:FACTORY": "a functional environment in JAX, part of the program; jax:gymnax:ID is one of gymnax",
}
"""The names of tasks that are not in `TASKS`, as forms, and what they stand for."""


def _close(name: str) -> str | None:
    """Return the name that was probably meant: a task's, or the same name with the prefix it lacks."""
    close = next(iter(difflib.get_close_matches(name, listed(), n=1)), None)
    if name.startswith("dmc:"):
        return close
    if re.search(r"-v\d+$", name):  # as every id of Gymnasium ends
        return f"gym:{name}"
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return f"python:{name}"
    return close


FACTORIES: dict[str, Callable[[], Any]] = {}
"""Environment factories given from Python in this process, by `module:name`."""


def task_of(factory: Callable[[], Any]) -> str:
    """Return the task name of a factory; another process can read a run of it if it can import that name."""
    name = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__name__)}"
    FACTORIES[name] = factory
    return f"python:{name}"


def find_factory(name: str) -> Callable[..., Any]:
    """Return the function `module:name` that makes environments: one given in this process, or an imported one."""
    if name in FACTORIES:
        return FACTORIES[name]
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        if module == "__main__" or "<" in attribute:  # <lambda>, <locals>
            raise UsageError(
                f"the environment factory {name!r} was defined in a script, a notebook or a function, where only that "
                "process finds it: call dac.resume or dac.load there, and put it into a module for the next run"
            ) from None
        raise UsageError(f"cannot import the environment factory {name!r}: {error}") from None
    if not callable(found):
        raise UsageError(f"{name!r} is not a function that makes an environment")
    return found


def find_functional(name: str) -> Callable[..., Any]:
    """Return what makes the functional environment `module:name`: a function, a class, or the module's own `make`."""
    module, _, id = name.partition(":")
    return _maker(module, id) or find_factory(name)


@functools.cache
def _maker(module: str, id: str) -> Callable[..., Any] | None:
    """Return `make(id)` of a module that has such a function and nothing of that name, as gymnax has."""
    try:
        found = importlib.import_module(module)
    except (ImportError, ValueError):
        return None  # `find_factory` says what is wrong
    make = getattr(found, "make", None)
    return functools.partial(make, id) if callable(make) and not hasattr(found, id.partition(".")[0]) else None


_FOUND: dict[str, tuple[str | Callable[[], Any], Task]] = {}
"""Tasks by name, each with the id or factory it was made of; a task remembers its spec."""


def _remembered(name: str, env: Any, make: Callable[[str, Any], Task]) -> Task:
    """Return the task of an id or a factory, the same object every time."""
    known, task = _FOUND.get(name, (None, None))
    if task is None or (callable(env) and known is not env):  # another factory of the same name is another task
        task = make(name, env)
        _FOUND[name] = env, task
    return task


def _gymnasium(name: str, env: str | Callable[[], Any]) -> Task:
    return _remembered(name, env, _make_gymnasium_task)


def _make_functional_task(name: str, factory: Callable[[], Any]) -> Task:
    @functools.cache  # programs are compiled for one such object
    def make() -> AbstractDeviceEnv:
        from dac.envs.functional import make_functional

        return make_functional(factory)

    summary = "a functional environment in JAX"
    return Task(name, summary, device=make, training=ANY.training, hyper=ANY.hyper, source=ANY.source)


def _make_gymnasium_task(name: str, env: str | Callable[[], Any]) -> Task:
    def make(num: int, workers: int = 0) -> AbstractHostEnvs:
        from dac.envs.gymnasium import make_gymnasium

        # the loop checks what is finite: it knows to which member an environment belongs
        return make_gymnasium(env, num, workers=workers, check_finite=False)

    def make_one() -> gym.Env:
        from dac.envs.gymnasium import find_environment

        return find_environment(env)()

    def make_batch(num: int) -> AbstractHostEnvs:
        from dac.envs.maze_robots import make_maze_robots

        return make_maze_robots(str(env), num)

    family, batch = family_of(env), isinstance(env, str) and is_maze_robot(env)
    return Task(
        name,
        family.summary,
        host=make_batch if batch else make,
        single=make_one,
        takes_workers=not batch,
        sizes=LISTED.get(env) if isinstance(env, str) else None,
        extra=family.extra,
        training=family.training,
        hyper=family.hyper,
        source=family.source,
    )
