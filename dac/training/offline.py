"""An offline dataset, laid out as the replay buffer is: what `--init-replay minari:ID` learns from beside the run.

A dataset is named in the configuration with a checksum of what was read from it, `minari:ID@CHECKSUM`. So a run that is
resumed learns from the same transitions or is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32

from dac.core.errors import needs_extra
from dac.core.types import EnvSpec, UsageError, row_size
from dac.envs.bounds import ActionBounds
from dac.envs.spaces import count_entries

PREFIX = "minari:"


@dataclasses.dataclass(frozen=True)
class OfflineData:
    """The transitions of a dataset."""

    name: str
    """As a setting: `minari:ID@CHECKSUM`."""
    rows: Float32[np.ndarray, "transition row"]
    """Packed as in the replay buffer, actions in [-1, 1], rewards as they are."""
    episodes: int

    def line(self, share: float) -> str:
        return (
            f"dataset: {len(self.rows):,} transitions of {self.episodes:,} episodes from {self.name}, "
            f"{share:.0%} of every batch"
        )


def load_offline(name: str, spec: EnvSpec, bounds: ActionBounds) -> OfflineData:
    """Read the Minari dataset that is named `minari:ID`, with or without its checksum, for environments of this kind.

    It has to be in Minari's local folder: a run never waits for a network.
    """
    id, _, checksum = name.removeprefix(PREFIX).partition("@")
    with needs_extra("minari", "init_replay"):
        import minari
    with _reading(id):
        dataset = minari.load_dataset(id)
        spaces_of = dataset.observation_space, dataset.action_space
    _check_spaces(id, *spaces_of, spec, bounds)
    with _reading(id):
        parts = [_rows(episode, dataset.observation_space, bounds) for episode in dataset.iterate_episodes()]
    if not sum(map(len, parts)):
        raise UsageError(f"the dataset {id} is empty")
    rows = np.concatenate(parts)
    assert rows.shape[1] == row_size(spec)
    if not np.isfinite(rows).all():
        bad = next(i for i, part in enumerate(parts) if not np.isfinite(part).all())
        raise UsageError(f"the dataset {id} has numbers that are not finite, the first in episode {bad}")
    found = hashlib.blake2b(np.ascontiguousarray(rows, "<f4").tobytes(), digest_size=8).hexdigest()
    if checksum and checksum != found:
        raise UsageError(f"the dataset {id} was changed: its checksum is {found}, that of this run {checksum}")
    return OfflineData(f"{PREFIX}{id}@{found}", rows, len(parts))


@contextlib.contextmanager
def _reading(id: str) -> Iterator[None]:
    """Turn what goes wrong in Minari, or in a damaged file, into one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old datasets, whose environment is not needed here
            yield
    except FileNotFoundError:
        raise UsageError(
            f"no dataset {id} in Minari's local folder (MINARI_DATASETS_PATH); get it with: minari download {id}"
        ) from None
    except Exception as error:  # h5py, pyarrow and Minari raise errors of many types
        what = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"cannot read the dataset {id}: {what[:300]}") from None


def _check_spaces(id: str, observations: Any, actions: Any, spec: EnvSpec, bounds: ActionBounds) -> None:
    """Refuse a dataset of other observations or actions than the task's."""
    try:
        size = count_entries(observations)
    except UsageError as error:
        raise UsageError(f"the dataset {id} does not fit: {error}") from None
    if size != spec.obs_size:
        raise UsageError(
            f"the dataset {id} does not fit: its observations have {size} entries, the task's {spec.obs_size}"
        )
    if not isinstance(actions, spaces.Box):
        raise UsageError(f"the dataset {id} does not fit: its actions are {actions}, not a Box")
    theirs = ActionBounds.of(actions)
    if theirs.low.size != spec.action_size:
        raise UsageError(
            f"the dataset {id} does not fit: its actions have {theirs.low.size} entries, the task's {spec.action_size}"
        )
    close = np.allclose(theirs.low, bounds.low, rtol=1e-5) and np.allclose(theirs.high, bounds.high, rtol=1e-5)
    if not close:
        raise UsageError(
            f"the dataset {id} does not fit: its actions are from {theirs.low.tolist()} to {theirs.high.tolist()}, "
            f"the task's from {bounds.low.tolist()} to {bounds.high.tolist()}"
        )


def _rows(episode: Any, space: Any, bounds: ActionBounds) -> Float32[np.ndarray, "step row"]:
    """The transitions of one episode."""
    steps = len(episode.rewards)
    obs = _flat(space, episode.observations, steps + 1)
    actions = bounds.shrink(np.asarray(episode.actions).reshape(steps, -1).astype(np.float64))
    # as in training: where both fall together it is a termination
    terminated = np.asarray(episode.terminations, bool)
    flags = [episode.rewards, terminated, np.asarray(episode.truncations, bool) & ~terminated]
    columns = [obs[:-1], actions, *(np.reshape(flag, (steps, 1)) for flag in flags), obs[1:]]
    return np.concatenate(columns, axis=1, dtype=np.float32, casting="unsafe")


def _flat(space: Any, values: Any, count: int) -> np.ndarray:
    """Observations of an episode laid out flat, in the order in which those of an environment are."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([_flat(inner, values[key], count) for key, inner in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        return np.concatenate([_flat(inner, values[i], count) for i, inner in enumerate(space.spaces)], axis=1)
    return np.asarray(values).reshape(count, -1)
