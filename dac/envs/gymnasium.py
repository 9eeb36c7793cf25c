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

Successes are read from what a step says in `info` (`read_success`).

Gymnasium has no way to read an environment's state, so these environments cannot be saved (`supports_state`). For the
same reason `reset(seeds)` starts as freshly as the environment's own `reset(seed=...)` does: an environment that keeps
something across it (a curriculum, a counter of episodes) keeps it here too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import math
import multiprocessing
import pickle
import signal
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id
from gymnasium.vector.utils import CloudpickleWrapper
from gymnasium.wrappers import TimeLimit
from jaxtyping import Bool, Float32, Int64

from dac.core.errors import UsageError
from dac.core.spec import EnvSpec
from dac.envs.bounds import ActionBounds
from dac.envs.host import AbstractHostEnvs, EnvironmentFailure, HostStep, check_actions, check_count, check_seeds
from dac.envs.robotics import import_package, maker
from dac.envs.spaces import Spaces, flatten, one_line

NO_LIMIT = 2**31 - 1
"""The horizon of an environment without a time limit."""
PATIENCE = 5.0
"""Seconds that worker processes get to end by themselves when they are closed."""
_LARGEST = float(np.finfo(np.float32).max)
SUCCESS = ("success", "is_success", "solved", "goal_achieved")
"""Keys of `info` under which packages say that the task is done; the first that is there counts."""
REMAINING = "tasks_to_complete"
"""Key of `info` under which Franka Kitchen lists what is left to do: with nothing left, the task is done."""

MakeEnv: TypeAlias = Callable[[], gym.Env]


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

    supports_state = False

    def __init__(self, env: str | MakeEnv, num: int, *, workers: int = 0, check_finite: bool = True):
        self.num, workers = check_count("num", num), check_count("workers", workers, low=0)
        make = find_environment(env)
        self._rows = _Workers(self.num, workers, check_finite) if workers else _Rows(range(self.num), check_finite)
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

    def state(self) -> dict[str, np.ndarray]:
        raise UsageError("Gymnasium environments cannot be saved: Gymnasium has no way to read an environment's state")

    def restore(self, state: Mapping[str, np.ndarray]) -> Float32[np.ndarray, "env obs"]:
        raise UsageError(
            "Gymnasium environments cannot be restored: Gymnasium has no way to set an environment's state"
        )

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


@dataclasses.dataclass(frozen=True)
class _Layout:
    """What has to be the same in all environments, and the time limit."""

    obs_size: int
    action_space: spaces.Box
    cells: tuple[int, ...] | None
    flattened: str = dataclasses.field(compare=False)
    """The observation space where it is not a vector already."""
    horizon: int = dataclasses.field(compare=False)
    row: int = dataclasses.field(compare=False)


def _common(layouts: Sequence[_Layout]) -> _Layout:
    """Return the layout that all environments share, or refuse those that differ."""
    first = layouts[0]
    for other in layouts[1:]:
        if other != first:
            raise UsageError(
                f"all environments must be alike: environment {first.row} has {first.obs_size} observation entries, "
                f"{one_line(first.action_space)} and visit grid {first.cells}, environment {other.row} has "
                f"{other.obs_size}, {one_line(other.action_space)} and {other.cells}"
            )
    return dataclasses.replace(first, horizon=max(layout.horizon for layout in layouts))


class _Answer(NamedTuple):
    """A step of every environment, and the cells it visited and its successes before any reset."""

    step: HostStep
    cells: Int64[np.ndarray, " env"]
    successes: Bool[np.ndarray, " env"] | None
    """None where no environment said anything of success."""


class _Rows:
    """Some environments of the vector, stepped one after another in this process."""

    def __init__(self, numbers: Iterable[int], check_finite: bool):
        self._numbers, self._check_finite = list(numbers), check_finite
        self._envs: list[_Single] = []
        self.closed = False

    def open(self, make: MakeEnv | bytes) -> _Layout:
        function = _unpickle(make) if isinstance(make, bytes) else make
        for row in self._numbers:
            env = _Single(function, row, self._check_finite)
            if any(env.env.unwrapped is other.env.unwrapped for other in self._envs):
                raise UsageError("env returned the same environment twice; it must make a new one at every call")
            self._envs.append(env)
        return _common([env.layout for env in self._envs])

    def reset(self, seeds: Sequence[int]) -> tuple[Float32[np.ndarray, "env obs"], Int64[np.ndarray, " env"]]:
        self._check_open()
        obs = np.stack([env.reset(seed) for env, seed in zip(self._envs, seeds, strict=True)])
        return obs, np.array([env.cell for env in self._envs], np.int64)

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        """Begin new episodes in some of these environments, numbered as they stand here."""
        self._check_open()
        return np.stack([self._envs[row].begin() for row in rows])

    def step(self, actions: Float32[np.ndarray, "env action"]) -> _Answer:
        self._check_open()
        moves = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        next_obs, reward, terminated, truncated, obs = zip(*moves, strict=True)
        flags = (np.array(terminated, np.bool_), np.array(truncated, np.bool_))
        step = HostStep(np.stack(next_obs), np.array(reward, np.float32), *flags, np.stack(obs))
        return _Answer(step, np.array([env.cell for env in self._envs], np.int64), self._successes())

    def _successes(self) -> Bool[np.ndarray, " env"] | None:
        said = [env.success for env in self._envs]
        return None if all(success is None for success in said) else np.array(said, np.bool_)

    def close(self) -> None:
        self.closed = True
        with contextlib.ExitStack() as stack:  # all of them, even where one fails to
            for env in self._envs:
                stack.callback(env.env.close)
            self._envs = []

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("these environments are closed")


def _unpickle(packed: bytes) -> MakeEnv:
    """Load the function that makes environments, in a worker process."""
    try:
        return pickle.loads(packed)
    except Exception as error:
        raise UsageError(
            f"env cannot be loaded in a worker process: {type(error).__name__}: {one_line(error)}; "
            "make its module importable there, or ask for 0 workers"
        ) from error


class _Single:
    """One environment, every answer of which is checked."""

    def __init__(self, make: MakeEnv, row: int, check_finite: bool):
        self._row, self._check_finite = row, check_finite
        try:
            self.env = make()
        except Exception as error:
            raise UsageError(f"environment {row} could not be made: {_describe(error)}") from error
        if not isinstance(self.env, gym.Env):
            got = f"environment {row} is not a gymnasium.Env; env returned {one_line(repr(self.env))}"
            raise UsageError(got + _advise(self.env))
        try:
            self.layout = self._inspect(row)
        except BaseException:
            self.env.close()
            raise
        self._obs_space = self.env.observation_space
        self._bounds = ActionBounds.of(self.layout.action_space)
        self._steps = 0
        self.cell = -1
        self.success: bool | None = None
        """What the last step said of success."""

    def reset(self, seed: int) -> Float32[np.ndarray, " obs"]:
        self._steps = 0
        obs = self._begin("reset", seed)
        self.cell = self._find_cell("reset")
        return obs

    def step(self, action: Float32[np.ndarray, " action"]) -> tuple[np.ndarray, float, bool, bool, np.ndarray]:
        self._steps += 1
        when = f"step {self._steps}"
        move = self._bounds.stretch(action).reshape(self._bounds.shape)
        try:
            answer = self.env.step(move)
        except Exception as error:
            self._fail(when, _describe(error), error)
        if not isinstance(answer, tuple) or len(answer) != 5:
            got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            self._fail(when, f"step must return (obs, reward, terminated, truncated, info); got {got}")
        obs, reward, terminated, truncated = answer[0], self._read_reward(answer[1], when), *map(bool, answer[2:4])
        next_obs = self._read(obs, when)
        self.cell, self.success = self._find_cell(when), read_success(answer[4])
        over = terminated or truncated
        first = self._begin(f"reset after {when}") if over else next_obs
        return next_obs, reward, terminated, truncated and not terminated, first

    def begin(self) -> Float32[np.ndarray, " obs"]:
        """Break the episode off and begin the next one."""
        return self._begin(f"reset after step {self._steps}")

    def _begin(self, when: str, seed: int | None = None) -> Float32[np.ndarray, " obs"]:
        try:
            answer = self.env.reset() if seed is None else self.env.reset(seed=seed)
        except Exception as error:
            if isinstance(error, TypeError) and not _takes_seed(self.env.unwrapped.reset):
                self._fail(when, "reset must take a seed: def reset(self, *, seed=None, options=None)", error)
            self._fail(when, _describe(error), error)
        if not isinstance(answer, tuple) or len(answer) != 2:
            got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
            self._fail(when, f"reset must return (obs, info); got {got}")
        return self._read(answer[0], when)

    def _inspect(self, row: int) -> _Layout:
        """Refuse an environment that cannot be trained on."""
        found = Spaces.of(self.env)
        inner: Any = self.env.unwrapped
        cells = getattr(inner, "visit_grid", None)
        if cells is not None:
            cells = tuple(cells)
            if not cells or any(not isinstance(side, int | np.integer) or side < 1 for side in cells):
                raise UsageError(f"visit_grid must be a tuple of positive whole numbers; got {cells}")
            if not callable(getattr(inner, "visit_cell", None)):
                raise UsageError(f"{one_line(inner)} has a visit_grid and no method visit_cell()")
        flat = isinstance(found.observation, spaces.Box) and len(found.observation.shape) < 2
        flattened = "" if flat else one_line(found.observation)
        return _Layout(found.obs_size, found.action, cells, flattened, find_horizon(self.env), row)

    def _read(self, obs: Any, when: str) -> Float32[np.ndarray, " obs"]:
        try:
            parts = flatten(self._obs_space, obs, "the observation")
        except UsageError as error:
            self._fail(when, str(error))
        with np.errstate(over="ignore"):
            row = np.concatenate(parts, dtype=np.float32)
        if self._check_finite and not np.isfinite(row).all():
            entry = int(np.flatnonzero(~np.isfinite(row))[0])
            value = np.concatenate(parts)[entry]
            self._fail(when, f"observations must be finite in float32; entry {entry} is {value}")
        return row

    def _read_reward(self, reward: Any, when: str) -> float:
        value = np.asarray(reward)
        if value.size != 1 or value.dtype.kind not in "fiub":
            self._fail(when, f"the reward must be one number; got {one_line(repr(reward))}")
        number = float(value.item())
        if self._check_finite and not abs(number) <= _LARGEST:
            self._fail(when, f"the reward must be finite in float32; got {number}")
        with np.errstate(over="ignore"):
            return float(np.float32(number))

    def _find_cell(self, when: str) -> int:
        if self.layout.cells is None:
            return -1
        inner: Any = self.env.unwrapped
        cell, count = inner.visit_cell(), math.prod(self.layout.cells)
        if not isinstance(cell, int | np.integer) or not -1 <= cell < count:
            got = one_line(repr(cell))
            self._fail(when, f"visit_cell() must return an index from 0 to {count - 1}, or -1; got {got}")
        return int(cell)

    def _fail(self, when: str, what: str, cause: Exception | None = None) -> NoReturn:
        raise EnvironmentFailure(f"environment {self._row}, {when}: {what}", self._row, when, what) from cause


def read_success(info: Any) -> bool | None:
    """Return whether a step's `info` says that the task is done; None where it says nothing of it."""
    if not isinstance(info, Mapping):
        return None
    for key in SUCCESS:
        if key in info:
            value = np.asarray(info[key])
            if value.size == 1 and value.dtype.kind in "biuf":
                return bool(value.item() > 0)
    remaining = info.get(REMAINING)
    return None if remaining is None else len(remaining) == 0


def _advise(env: Any) -> str:
    """Say what to do about an object that is not an environment of Gymnasium but of a kind that is known."""
    if hasattr(env, "possible_agents") or hasattr(env, "agents"):
        return (
            "; it has several agents, and libraries for those are BenchMARL and RLlib; "
            "a wrapper that is a gymnasium.Env and acts for one of them can be trained on"
        )
    if any(part.__module__.split(".")[0] == "gym" for part in type(env).__mro__):
        return "; it is of the old package gym: wrap it with shimmy.GymV26CompatibilityV0"
    if hasattr(env, "reset") and hasattr(env, "step"):
        return "; derive its class from gymnasium.Env"
    return ""


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error)}" if str(error) else type(error).__name__


def _takes_seed(reset: Callable[..., Any]) -> bool:
    parameters = inspect.signature(reset).parameters.values()
    return any(parameter.name == "seed" or parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)


def find_horizon(env: gym.Env) -> int:
    """Return the time limit, also of an environment that Gymnasium did not make and a wrapper limits."""
    limit = None if env.spec is None else env.spec.max_episode_steps
    while limit is None and isinstance(env, gym.Wrapper):
        limit = env._max_episode_steps if isinstance(env, TimeLimit) else None
        env = env.env
    return NO_LIMIT if limit is None else int(limit)


class WorkerDied(EnvironmentFailure):
    """A worker process ended without an answer: its environment called exit, crashed, or was killed."""


class _Failure(NamedTuple):
    """An exception that was raised in a worker process, as text."""

    usage: bool
    message: str
    trace: str
    details: tuple[int | None, str, str] | None = None
    """Row, time and words of an `EnvironmentFailure`."""


class _Workers:
    """`_Rows` spread over processes, a block of neighbouring rows in each."""

    def __init__(self, num: int, workers: int, check_finite: bool):
        self._check_finite = check_finite
        self._context = multiprocessing.get_context("spawn")  # a fork of a process that runs JAX may hang
        self._blocks = [block.tolist() for block in np.array_split(np.arange(num), min(num, workers))]
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self.closed = False

    def open(self, make: MakeEnv) -> _Layout:
        try:
            packed = pickle.dumps(CloudpickleWrapper(make))
        except Exception as error:
            raise UsageError(
                f"env cannot be sent to another process: {type(error).__name__}: {one_line(error)}; "
                "make it import or build what it needs, or ask for 0 workers"
            ) from error
        for block in self._blocks:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs, block, self._check_finite), daemon=True)
            self._pipes.append(ours)
            self._processes.append(process)
            process.start()
            theirs.close()  # so that the end of the worker is the end of the pipe
        return _common(self._ask("open", [packed] * len(self._blocks)))

    def reset(self, seeds: Sequence[int]) -> tuple[Float32[np.ndarray, "env obs"], Int64[np.ndarray, " env"]]:
        obs, cells = zip(*self._ask("reset", [seeds[block[0] : block[-1] + 1] for block in self._blocks]), strict=True)
        return np.concatenate(obs), np.concatenate(cells)

    def restart(self, rows: Int64[np.ndarray, " row"]) -> Float32[np.ndarray, "row obs"]:
        parts = [rows[(rows >= block[0]) & (rows <= block[-1])] - block[0] for block in self._blocks]
        asked = [number for number, part in enumerate(parts) if len(part)]
        answers = self._ask("restart", [parts[number] for number in asked], asked)
        obs = np.concatenate(answers)
        order = np.concatenate([parts[number] + self._blocks[number][0] for number in asked])
        return obs[np.argsort(order)][np.argsort(np.argsort(rows))]

    def step(self, actions: Float32[np.ndarray, "env action"]) -> _Answer:
        answers = self._ask("step", [actions[block] for block in self._blocks])
        steps, cells, said = zip(*answers, strict=True)
        step = HostStep(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))
        if all(successes is None for successes in said):
            return _Answer(step, np.concatenate(cells), None)
        blocks = [np.zeros(len(b), np.bool_) if s is None else s for b, s in zip(self._blocks, said, strict=True)]
        return _Answer(step, np.concatenate(cells), np.concatenate(blocks))

    def close(self) -> None:
        self.closed = True
        for pipe in self._pipes:
            pipe.close()  # a worker ends when it finds nobody there
        deadline = time.monotonic() + PATIENCE
        for process in self._processes:
            if process.pid is not None:  # it was started
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
            process.close()
        self._pipes, self._processes = [], []

    def _ask(self, method: str, arguments: Sequence[Any], numbers: Sequence[int] | None = None) -> list[Any]:
        """Send every worker, or those of these numbers, its part, and only then wait for the answers."""
        if self.closed:
            raise UsageError("these environments are closed")
        numbers = range(len(arguments)) if numbers is None else numbers
        answers = []
        try:
            for number, argument in zip(numbers, arguments, strict=True):
                with self._notice_death(number, method):
                    self._pipes[number].send((method, argument))
            for number in numbers:
                with self._notice_death(number, method):
                    answers.append(self._pipes[number].recv())
        except BaseException:  # Ctrl-C too: answers still on their way would be taken for those to the next question
            self.close()
            raise
        for answer in answers:
            if isinstance(answer, _Failure):
                error = RuntimeError(f"in a worker process: {answer.message}")
                error.add_note(answer.trace)
                if answer.details is not None:
                    raise EnvironmentFailure(answer.message, *answer.details) from error
                if answer.usage:
                    raise UsageError(answer.message)
                raise error
        return answers

    @contextlib.contextmanager
    def _notice_death(self, number: int, method: str) -> Any:
        try:
            yield
        except (EOFError, OSError):
            first, last = self._blocks[number][0], self._blocks[number][-1]
            rows = f"environment {first}" if first == last else f"environments {first} to {last}"
            self._processes[number].join(PATIENCE)
            code = self._processes[number].exitcode
            hint = '; does the script start its work under `if __name__ == "__main__":`?' if method == "open" else ""
            raise WorkerDied(f"the worker process of {rows} died with exit code {code}{hint}") from None


def _serve(pipe: Connection, block: Sequence[int], check_finite: bool) -> None:
    """Answer requests in a worker process until the pipe is closed."""
    # Ctrl-C and the end of the terminal are meant for the process that asks, which then closes this one
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rows = _Rows(block, check_finite)
    with contextlib.closing(rows), contextlib.suppress(EOFError, OSError):
        while True:
            method, argument = pipe.recv()
            try:
                answer = getattr(rows, method)(argument)
            except Exception as error:
                usage = isinstance(error, UsageError)
                details = (error.row, error.when, error.what) if isinstance(error, EnvironmentFailure) else None
                answer = _Failure(usage, str(error) if usage else _describe(error), traceback.format_exc(), details)
            pipe.send(answer)
