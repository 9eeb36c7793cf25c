"""What a model and a population have in common: members that learn in this process, or that were loaded."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from dac.api.environments import Environment, NamedTask
from dac.api.prediction import Draws, Predictor
from dac.config import RunConfig, Training, resolve, with_steps
from dac.config.text import read_toml
from dac.core.keys import INIT, stream
from dac.core.population import Member, each_member, pick, stack_algorithms, stack_keys
from dac.core.types import UsageError
from dac.envs.pace import Pace
from dac.envs.spaces import Spaces
from dac.rundir.lock import Lock
from dac.rundir.names import ASIDE, CONFIG, METRICS, POLICY, SAVED, SUMMARY
from dac.rundir.reading import RunDirectory
from dac.rundir.weights import load_tree, save_tree
from dac.rundir.writing import Recorder, check_new, make_directory
from dac.tasks import Task, find_task
from dac.training.compilation import enable_compilation_cache
from dac.training.evaluate import Evaluation, Moment, evaluate_on_device
from dac.training.host import evaluate_on_host
from dac.training.run import all_watchers
from dac.training.session import Session
from dac.training.watchers import AbstractWatcher, Watcher
from dac.training.watchers.log import Log
from dac.training.watchers.progress import ProgressBar, shows_progress

NO_STEP = 2**31 - 1
"""No step of training: the episodes of an evaluation that is none of the run's own."""
FOLDER = "checkpoint"


class Agents:
    """The members of one run, from nothing, from a run directory, or as they are in training now."""

    def __init__(self, config: RunConfig, task: NamedTask, out: Path | None, source: RunDirectory | None = None):
        self.config, self.task = config, task
        self._out, self._source = out, source
        check_new(out)
        self._session: Session | None = None
        self._policies: tuple[int, PyTree] | None = None
        self._predictors: dict[int, tuple[int, Predictor]] = {}
        self._draws: dict[int, Draws] = {}
        self.members: list[Member] = config.members()

    @classmethod
    def new(
        cls, algorithm: str, env: Environment, seeds: Any, out: Path | str | None, settings: dict[str, Any]
    ) -> Agents:
        """Check a complete configuration; nothing is made before it is needed."""
        if "steps" in settings:
            raise UsageError(f"steps is what learn takes: learn({settings['steps']!r})")
        task = NamedTask(env)
        task.restore()
        config = resolve(algorithm, task.name, seeds, settings)
        return cls(config, task, None if out is None else Path(out))

    @classmethod
    def load(cls, path: Path | str, env: Environment | None) -> Agents:
        """Read a run directory, of the command line or of a model; it is only read, also if learning goes on."""
        path = Path(path)
        if env is not None and (path / CONFIG).is_file():
            task = NamedTask.called(str(read_toml(path / CONFIG).get("task")), env)
        source = RunDirectory(path)
        if env is None:
            task = NamedTask.called(source.config.task, None)
        return cls(source.config, task, None, source)

    @property
    def directory(self) -> Path | None:
        """The run directory, once there is one."""
        if self._session is not None:
            return self._session.recorder.directory
        return None if self._source is None else self._source.directory

    @property
    def steps(self) -> int:
        """Environment steps that each member has learnt from."""
        if self._session is not None:
            return self._session.env_steps
        if self._source is None:
            return 0
        return self._source.config.training.steps if self._source.finished else self._source.last_checkpoint()

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every column of metrics.csv, (evaluation, member); nothing before the first evaluation."""
        directory = self.directory
        if directory is None or not (directory / METRICS).is_file():
            return {}
        return RunDirectory(directory).metrics

    @property
    def failures(self) -> set[int]:
        """The members that are frozen."""
        frozen = self.metrics.get("frozen", np.zeros((0, len(self.members))))
        return {int(index) for index in np.flatnonzero(frozen[-1:].any(axis=0))}

    def learn(self, steps: int | None, watchers: Sequence[Watcher], progress: bool | None) -> None:
        """Train every member for `steps` more environment steps, or for as many as the task has by default."""
        more = self.config.training.steps if steps is None and not self.steps else steps
        if more is None:
            raise UsageError("say how many steps more: learn(10_000)")
        if isinstance(more, bool) or not isinstance(more, int | np.integer) or more < 1:
            raise UsageError(f"steps must be a whole number of at least 1, not {more!r}")
        self.task.restore()
        config = with_steps(self.config, self.steps + int(more))
        everyone = all_watchers(config, [ProgressBar() if shows_progress(progress) else Log(), *watchers])
        if self._session is None:
            self._begin(config, everyone)
        else:
            self._session.extend(config)
            self.config = config
            self._session.train(everyone)

    def _begin(self, config: RunConfig, watchers: Sequence[AbstractWatcher]) -> None:
        source = None if self._source is None else self._source.directory
        if source is not None and not any(source.glob(f"{FOLDER}/step-*.json")):
            if (source / METRICS).exists():
                raise UsageError(f"{source} has no checkpoint to go on from: it can act, but not learn")
            source = None  # a model that was saved before it learnt anything
        enable_compilation_cache()
        directory = self._out or _temporary_directory(self)
        session = Session(config, directory, saves=self._out is not None)
        closing = weakref.finalize(self, session.close)
        closing.atexit = False
        # watchers may ask this object already
        before, self.config, self._session = self.config, session.config, session
        try:
            session.train(watchers, resume_from=source)
        finally:
            if not session.begun:
                self.config, self._session = before, None
                closing()

    def policies(self) -> PyTree:
        """The policies of all members as they are now, stacked."""
        now = self._policy_step
        if self._policies is None or self._policies[0] != now:
            self._policies = now, self._find_policies()
        return self._policies[1]

    @property
    def _policy_step(self) -> int:
        """Changes when the policies do; what was loaded does not change before it learns."""
        return -1 if self._session is None else self._session.loop.step

    def _find_policies(self) -> PyTree:
        if self._session is not None:
            return self._session.loop.policies()
        self.task.restore()
        return fresh_policies(self.config) if self._source is None else load_policies(self._source)

    @property
    def spaces(self) -> Spaces:
        """What the environment itself shows and takes."""
        return self.task.find().spaces()

    def predict(self, index: int, obs: Any, deterministic: bool) -> np.ndarray:
        """The action of one member for one observation, or its actions for a batch."""
        now = self._policy_step
        found = self._predictors.get(index)
        if found is None or found[0] != now:
            found = self._predictors[index] = now, Predictor(pick(self.policies(), index), self.spaces)
            self._draws.setdefault(index, Draws(self.members[index].seed))
        draws = self._draws[index]
        return found[1](obs, draws.key, draws.next(), deterministic=deterministic)

    def evaluate(self, env: Environment | None, episodes: int, member: int | None = None) -> Evaluation:
        """Run episodes without exploration, of one member or of all."""
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
            raise UsageError(f"episodes must be a whole number of at least 1, not {episodes!r}")
        policies, members = self.policies(), self.members
        if member is not None:
            policies, members = jax.tree.map(lambda leaf: leaf[member : member + 1], policies), [members[member]]
        task = (self.task if env is None else NamedTask(env)).find()
        if env is not None and task.spec() != self.task.find().spec():
            raise UsageError(
                f"the environment to evaluate on has {_sizes(task)}, that of training {_sizes(self.task.find())}"
            )
        pace = self.config.training.pace if env is None else Pace(skip=self.config.training.frame_skip)
        return evaluate_policies(policies, members, task.at(pace), episodes, self.config.training)

    def save(self, path: Path, member: int | None = None) -> None:
        """Write a run directory, on which the command line works too; of one member without a checkpoint."""
        if path.is_dir() and self.directory is not None and path.samefile(self.directory):
            raise UsageError(f"{path} is where this run lives already; save it somewhere else")
        _check_target(path, self.config.algorithm)
        make_directory(path.parent)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as part:
            folder = Path(part) / "run"
            folder.mkdir()
            if member is not None:
                self._write_member(folder, member)
            elif self._session is not None:
                self._session.save(folder)
            elif self._source is not None:
                _move_run(self._source.directory, folder, shutil.copyfile)
            else:
                Recorder(folder, self.config, self.members).write_config()
                save_tree(folder / POLICY, self.policies())
            make_directory(path)
            with Lock(path):
                _clear(path)
                _move_run(folder, path, Path.replace)

    def _write_member(self, folder: Path, index: int) -> None:
        """Write the run that holds one member alone: its configuration, its rows and its policy."""
        config = self.config.alone(self.members[index])
        Recorder(folder, config, config.members()).write_config()
        save_tree(folder / POLICY, jax.tree.map(lambda leaf: leaf[index : index + 1], self.policies()))
        directory = self.directory
        if directory is None or not (directory / METRICS).is_file():
            return
        header, *rows = (directory / METRICS).read_text(encoding="utf-8").splitlines()
        own = [f"0,{row.partition(',')[2]}" for row in rows if row.partition(",")[0] == str(index)]
        (folder / METRICS).write_text("\n".join([header, *own, ""]), encoding="utf-8")
        if (directory / SUMMARY).is_file():
            summary = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
            summary["members"] = summary["members"][index : index + 1]
            (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def fresh_policies(config: RunConfig) -> PyTree:
    """The policies of all members before their first step."""
    algorithms, spec = stack_algorithms(config.make_algorithm(), config.members()), find_task(config.task).spec()
    return _fresh(algorithms, stack_keys(config.members()), spec)


def load_policies(run: RunDirectory, file: str | None = None) -> PyTree:
    """The policies that a run directory holds, stacked; its own, or those of another file there."""
    algorithms, spec = stack_algorithms(run.config.make_algorithm(), run.members), find_task(run.config.task).spec()
    template = eqx.filter_eval_shape(_fresh, algorithms, stack_keys(run.members), spec)
    return load_tree(run.policy_file() if file is None else run.directory / file, template)


@eqx.filter_jit
def _fresh(algorithms: Any, keys: Any, spec: Any) -> PyTree:
    return each_member(lambda algorithm, key: algorithm.policy(algorithm.init(stream(key, INIT), spec)))(
        algorithms, keys
    )


def evaluate_policies(
    policies: PyTree, members: Sequence[Member], task: Task, episodes: int, training: Training
) -> Evaluation:
    """Run fresh episodes without exploration (Soft Q-Learning's policy samples anyway)."""
    moment = Moment(policies, NO_STEP)
    if task.device is not None:
        return evaluate_on_device(task.device(), moment, stack_keys(members), episodes)
    envs = task.make_envs(len(members) * episodes, workers=training.workers)
    with contextlib.closing(envs):
        return evaluate_on_host(envs, [moment], members, episodes, training.eval_limit)[0]


def _sizes(task: Task) -> str:
    spec = task.spec()
    return f"{spec.obs_size} observation entries and {spec.action_size} actions"


def _temporary_directory(owner: object) -> Path:
    """A folder that lives as long as its owner."""
    directory = Path(tempfile.mkdtemp(prefix="dac-"))
    weakref.finalize(owner, shutil.rmtree, directory, ignore_errors=True)
    return directory


def _check_target(path: Path, algorithm: str) -> None:
    """Refuse to write over anything but a run of the same algorithm."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir() or not (path / CONFIG).is_file():
        raise UsageError(f"{path} exists and is not a run directory; save under another name")
    found = read_toml(path / CONFIG).get("algorithm")
    if found != algorithm:
        raise UsageError(f"{path} holds a run of {found}, not of {algorithm}; save under another name")


def _pieces(folder: Path) -> list[Path]:
    """The files of checkpoints in a run directory."""
    patterns = ("step-*.json", "state-*.safetensors", "ring-*.safetensors")
    return [path for pattern in patterns for path in (folder / FOLDER).glob(pattern)]


def _clear(path: Path) -> None:
    """Remove the files of a run and nothing else; its configuration goes last, which makes it a run."""
    for old in [*_pieces(path), *(path / name for name in (*ASIDE, *reversed(SAVED)))]:
        old.unlink(missing_ok=True)


def _move_run(source: Path, target: Path, move: Any) -> None:
    """Move or copy the files of a run; the configuration, which makes it one, comes last."""
    if pieces := _pieces(source):
        (target / FOLDER).mkdir(exist_ok=True)
        for piece in sorted(pieces, key=lambda piece: piece.suffix == ".json"):  # manifests last
            move(piece, target / FOLDER / piece.name)
    for name in reversed(SAVED):
        if (source / name).is_file():
            move(source / name, target / name)
