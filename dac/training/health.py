"""Members whose numbers are no longer finite are frozen at their last good state, while the others go on.

The states are checked between chunks of training, not in every update: a check reads every parameter once. A copy of
the last good states is kept, so a member that breaks loses at most one chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from dac.core.population import Member
from dac.core.trees import name_leaves
from dac.core.types import UsageError

OnNaN = Literal["freeze", "stop"]


@dataclasses.dataclass(frozen=True)
class Failure:
    """What stopped a member, and at which environment step it was found."""

    step: int
    cause: str


class Health:
    """Which members are frozen, since when, and why."""

    def __init__(self, members: Sequence[Member], on_nan: OnNaN):
        self.members, self.on_nan = members, on_nan
        self.failures: dict[int, Failure] = {}
        self.mask: Bool[Array, " member"] | None = None
        """Mask of frozen members for the compiled update, or None while every member is healthy.

        The program without a mask has no select over the parameters and is faster."""
        self.news: list[str] = []
        """Messages that have not been shown yet."""

    @property
    def frozen(self) -> Bool[np.ndarray, " member"]:
        return np.isin(np.arange(len(self.members)), list(self.failures))

    def freeze(self, index: int, step: int, cause: str) -> None:
        """Freeze a member, or raise an error if the run is to stop at the first failure or no member is left."""
        line = f"member {index} ({self.members[index].label()}): {cause}, found at step {step}"
        if self.on_nan == "stop":
            raise UsageError(f"{line}; `on_nan=freeze` would go on without it")
        self.failures[index] = Failure(step, cause)
        self.mask = jnp.asarray(self.frozen)
        self.news.append(f"{line}; it is frozen at its last good state, the others go on")
        if len(self.failures) == len(self.members):
            raise UsageError(f"every member is frozen; the last one was {line}")

    def save(self) -> dict[str, Any]:
        return {str(index): dataclasses.asdict(failure) for index, failure in self.failures.items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.failures = {int(index): Failure(**failure) for index, failure in saved.items()}
        self.mask = jnp.asarray(self.frozen) if self.failures else None


def find_broken(states: PyTree) -> dict[int, str]:
    """Return, for every member whose state is not finite, the name of the first array that is not."""
    named = {name: leaf for name, leaf in name_leaves(states).items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    finite = np.asarray(_finite(list(named.values())))
    broken = {}
    for member in np.flatnonzero(~finite.all(axis=0)):
        broken[int(member)] = list(named)[int(np.flatnonzero(~finite[:, member])[0])]
    return broken


@jax.jit
def _finite(leaves: list[Array]) -> Bool[Array, "leaf member"]:
    return jnp.stack([jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in leaves])


@jax.jit
def copy(tree: PyTree) -> PyTree:
    """Copy a tree, so that it survives when the original is donated to an update."""
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def keep(frozen: Bool[Array, " member"], old: PyTree, new: PyTree) -> PyTree:
    """Return the new states, and the old ones of frozen members."""
    return jax.tree.map(lambda o, n: jnp.where(frozen.reshape(-1, *[1] * (n.ndim - 1)), o, n), old, new)


def unless_frozen(frozen: Bool[Array, ""] | None, old: PyTree, new: PyTree) -> PyTree:
    """Do the same as `keep` for one member inside a program; `frozen` is None while every member is healthy."""
    return new if frozen is None else jax.tree.map(lambda o, n: jnp.where(frozen, o, n), old, new)


WARNINGS = {
    "ratio_saturation": (
        0.9,
        "the ratio network is saturated: it tells policy and replay buffer apart too well to guide",
    ),
    "sigma_saturation": (0.9, "the policy is dead: its log sigma stands at its bound"),
    "q_mean": (1e6, "Q explodes"),
}
"""By metric: the absolute value beyond which a user should know, and what it means."""


def find_warnings(metrics: Mapping[str, np.ndarray], members: Sequence[Member]) -> dict[tuple[int, str], str]:
    """Return a line, by member and metric, about everything that looks wrong without being broken."""
    found = {}
    for name, (limit, meaning) in WARNINGS.items():
        for index, value in enumerate(metrics.get(name, ())):
            if abs(value) > limit:
                found[index, name] = f"member {index} ({members[index].label()}): {meaning} ({name} {value:.3g})"
    return found
