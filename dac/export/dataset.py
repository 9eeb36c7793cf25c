"""What a member has seen as a Minari dataset: the replay buffer of the latest checkpoint, its episodes whole."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from dac._version import __version__
from dac.api import Run
from dac.core.errors import needs_extra
from dac.core.keys import RESET, env_seed
from dac.core.types import EnvSpec, Transition, UsageError, row_size
from dac.export.members import as_run, choose_member
from dac.rundir.checkpoints import restore_latest
from dac.tasks import Task, find_task
from dac.training.loop import waiting_rows

LOGGER = logging.getLogger("dac")
ID = r"(?:[-\w][-\w/]*[-\w]/)?[-\w]+-v\d+"


@dataclasses.dataclass(frozen=True)
class Episode:
    """Consecutive transitions of one environment."""

    steps: Transition
    begun: bool
    """Whether its first step is known to be the first of the episode."""
    seed: int | None
    """Seed of the reset before it, where there was one: an environment is seeded once and then draws on."""


def to_minari(run: Run | Path | str, id: str | None = None, member: int | None = None, *, force: bool = False) -> Any:
    """Write what a member, the best one if None, has in its replay buffer as a Minari dataset, and return the dataset.

    It goes to Minari's local folder (MINARI_DATASETS_PATH), under an id such as "maze/my-run-v0". Episodes have T + 1
    observations as float32, laid out flat, and actions in the environment's own range. An episode whose beginning the
    buffer has overwritten is left out; one that had not ended is closed as truncated.
    """
    with needs_extra("minari", "export to minari"):
        import minari
        from minari.storage import get_dataset_path
    run = as_run(run)
    task, chosen = find_task(run.config.task), choose_member(run, member)
    name = default_id(run, chosen) if id is None else str(id)
    if not re.fullmatch(ID, name):
        raise UsageError(
            f"a dataset's id must be like maze/my-run-v0 (letters, digits, - and _, and a version), not {name!r}"
        )
    path = get_dataset_path(name)
    if path.exists() and not (force and (path / "data").is_dir()):
        raise UsageError(f"the dataset {name} exists already, in {path}; give another --out, or --force to replace it")
    found = list(read_episodes(run, task, chosen))
    kept = [episode for episode in found if episode.begun]
    if not kept:
        raise UsageError(
            f"the replay buffer of {run.directory} holds no episode from its beginning on; train with more --capacity"
        )
    spec, bounds = task.spec(), task.bounds()
    buffers = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            seed=episode.seed,
            observations=np.concatenate([episode.steps.obs, episode.steps.next_obs[-1:]]),
            actions=bounds.stretch(np.asarray(episode.steps.action)).reshape(-1, *bounds.shape),
            rewards=episode.steps.reward,
            terminations=episode.steps.terminated > 0,
            truncations=_closed(episode.steps),
        )
        for number, episode in enumerate(kept)
    ]
    low, high = (bound.astype(bounds.dtype).reshape(bounds.shape) for bound in (bounds.low, bounds.high))
    if path.exists():
        shutil.rmtree(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an author and a link, which are the user's to add
            dataset = minari.create_dataset_from_buffers(
                name,
                buffers,
                env=_gymnasium_spec(run.config.task),
                observation_space=spaces.Box(-np.inf, np.inf, (spec.obs_size,), np.float32),
                action_space=spaces.Box(low, high, dtype=bounds.dtype.type),
                algorithm_name=run.config.algorithm,
                description=f"Replay buffer of {run.config.algorithm}, {run.members[chosen].label()}",
                requirements=[f"diversity-actor-critic=={__version__}"],
            )
            dropped = sum(len(episode.steps.reward) for episode in found if not episode.begun)
            dataset.storage.update_metadata({"dac": json.dumps(_facts(run, chosen) | {"steps_left_out": dropped})})
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return dataset


def default_id(run: Run, member: int) -> str:
    """The id of a dataset that was given none: TASK/RUN_memberK-v0."""
    parts = run.config.task, f"{run.directory.resolve().name}_member{member}-v0"
    return "/".join(re.sub(r"[^-\w]+", "-", part) for part in parts)


def read_episodes(run: Run, task: Task, member: int) -> Iterator[Episode]:
    """The episodes, or parts of them, that a member's replay buffer holds, one environment after the other."""
    config = run.config

    def report(problem: str) -> None:
        LOGGER.warning(problem)

    restored = restore_latest(run.directory, config.fingerprint(), lambda checkpoint: None, report)
    if restored is None:
        raise UsageError(f"{run.directory} has no checkpoint, so its replay buffer is not known")
    checkpoint, arrays, pieces = restored
    envs, spec = config.training.envs, task.spec()
    waiting = waiting_rows(arrays, row_size(spec))[member]
    stored = (checkpoint.step - 1) * envs
    oldest = max(0, stored - config.schedule().capacity)
    rows = np.concatenate([*(piece[member] for _, piece in pieces), waiting])
    rows = rows[oldest - (pieces[0][0] if pieces else 0) :].reshape(-1, envs, row_size(spec))
    seed = run.members[member].seed
    for env in range(envs):
        for begin, end, begun, reset in _spans(unpack_rows(rows[:, env], spec), oldest == 0):
            seeded = reset and task.host is not None
            yield Episode(
                unpack_rows(rows[begin:end, env], spec),
                begun,
                env_seed(seed, RESET, oldest // envs + begin, env) if seeded else None,
            )


def _spans(steps: Transition, from_the_start: bool) -> Iterator[tuple[int, int, bool, bool]]:
    """Begin and end of each episode, whether that is its real beginning, and whether a seeded reset was before it."""
    over = (steps.terminated + steps.truncated) > 0
    # a run that was resumed on environments that cannot be saved began new episodes there
    jumps = np.append((steps.next_obs[:-1] != steps.obs[1:]).any(axis=1), True)
    begin, begun, reset = 0, from_the_start, from_the_start
    for last in np.flatnonzero(over | jumps):
        yield begin, int(last) + 1, begun, reset
        begin, begun, reset = int(last) + 1, True, not over[last]


def _closed(steps: Transition) -> np.ndarray:
    """The truncations of an episode, the last of which is set where it has no end of its own."""
    truncations = np.asarray(steps.truncated) > 0
    truncations[-1] |= not steps.terminated[-1] > 0
    return truncations


def unpack_rows(rows: np.ndarray, spec: EnvSpec) -> Transition:
    """`unpack` in NumPy, so that nothing goes through the device."""
    n, a = spec.obs_size, spec.action_size
    obs, action, flags, next_obs = np.split(rows, [n, n + a, n + a + 3], axis=-1)
    return Transition(obs, action, flags[..., 0], flags[..., 1], flags[..., 2], next_obs)  # type: ignore[arg-type]


def _facts(run: Run, member: int) -> dict[str, Any]:
    config = run.config
    facts = {"version": __version__, "algorithm": config.algorithm, "task": config.task, "member": member}
    return facts | {"seed": run.members[member].seed, "hyper": dict(run.members[member].hyper)}


def _gymnasium_spec(task: str) -> Any:
    """The environment as Gymnasium's specification, for `dataset.recover_environment()`; None for one of the user's."""
    import gymnasium

    from dac.envs import registration

    registration.register()
    prefix, _, rest = task.partition(":")
    name = {"maze": "dac/FourRoomMaze-v0"}.get(task, rest if prefix == "gym" else f"dac/{task}-v0")
    try:
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError, ValueError):
        return None
