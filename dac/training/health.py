"""Members that went wrong: found, put back to their last good state, and left there while the others go on.

A state is looked at between chunks of training, not in every update: a look reads every parameter once, a copy of the
last good state is kept, and a member that broke since loses at most one chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from dac.population import Member
from dac.types import UsageError
from dac.weights import name_leaves

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
        """`frozen`, for a program; None while nobody is, since the program that need not look is faster."""
        self.news: list[str] = []
        """Lines nobody has shown yet."""

    @property
    def frozen(self) -> Bool[np.ndarray, " member"]:
        return np.isin(np.arange(len(self.members)), list(self.failures))

    def freeze(self, index: int, step: int, cause: str) -> None:
        """Take note of a failure; an error if the run is to stop at the first, or if no member is left."""
        line = f"member {index} ({self.members[index].label()}): {cause}, found at step {step}"
        if self.on_nan == "stop":
            raise UsageError(f"{line}; --on-nan freeze would go on without it")
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
    """By member, the name of the first array in its state that is not finite."""
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
    """A copy that stays when the original is given away to an update."""
    return jax.tree.map(jnp.copy, tree)


@jax.jit
def keep(frozen: Bool[Array, " member"], old: PyTree, new: PyTree) -> PyTree:
    """The new state of all members but the frozen ones."""
    return jax.tree.map(lambda o, n: jnp.where(frozen.reshape(-1, *[1] * (n.ndim - 1)), o, n), old, new)


def unless_frozen(frozen: Bool[Array, ""] | None, old: PyTree, new: PyTree) -> PyTree:
    """`keep`, for one member and inside a program; None where nobody is frozen."""
    return new if frozen is None else jax.tree.map(lambda o, n: jnp.where(frozen, o, n), old, new)


WARNINGS = {
    "ratio_saturation": (0.9, "the ratio network is saturated: it tells policy and ring apart too well to guide"),
    "sigma_saturation": (0.9, "the policy is dead: its log sigma stands at its bound"),
    "q_mean": (1e6, "Q explodes"),
}
"""By metric: the absolute value beyond which a user should know, and what it means."""


def find_warnings(metrics: Mapping[str, np.ndarray], members: Sequence[Member]) -> dict[tuple[int, str], str]:
    """By member and metric, a line about what looks wrong without being broken."""
    found = {}
    for name, (limit, meaning) in WARNINGS.items():
        for index, value in enumerate(metrics.get(name, ())):
            if abs(value) > limit:
                found[index, name] = f"member {index} ({members[index].label()}): {meaning} ({name} {value:.3g})"
    return found
