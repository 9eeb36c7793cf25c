"""Many agents in one program: the only file that adds the member axis.

A population is a list of members, each a seed and a set of hyperparameters. Their states are stacked along a leading
axis and mapped. Every random number of a member comes from its seed and the step number, never from its place in
the population: member k is the same agent alone and among a hundred.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from dac.core.keys import member_key
from dac.core.types import float_dtype

Algorithm = TypeVar("Algorithm", bound="AbstractVariable")


class AbstractVariable(eqx.Module):
    """A module whose float fields are hyperparameters, which may differ between the members of a population."""

    def replace(self: Algorithm, **values: Any) -> Algorithm:
        """Return the same module with other values for some of its fields."""
        return dataclasses.replace(self, **values)


@dataclasses.dataclass(frozen=True)
class Member:
    """One agent: its seed and its hyperparameters, the numbers that may differ within the population."""

    seed: int
    """The number from which every random number of the member follows."""
    hyper: Mapping[str, float]
    """Every hyperparameter that may differ within a population, with this member's value."""
    varied: tuple[str, ...] | None = dataclasses.field(default=None, compare=False, repr=False)
    """Names of the hyperparameters that do differ within its population; None where that is not known."""

    def label(self) -> str:
        """Name the seed and the hyperparameters that differ, or all of them where it is not known which do."""
        names = self.hyper if self.varied is None else self.varied
        return ", ".join([f"seed {self.seed}", *(f"{name} {self.hyper[name]:g}" for name in names)])


def grid(seeds: Sequence[int], hyper: Mapping[str, Sequence[float]]) -> list[Member]:
    """Every seed with every combination of hyperparameters; the seed varies fastest."""
    varied = tuple(name for name, values in hyper.items() if len(values) > 1)
    combinations = itertools.product(*hyper.values())
    return [Member(seed, dict(zip(hyper, values, strict=True)), varied) for values in combinations for seed in seeds]


def paired(seeds: Sequence[int], hyper: Mapping[str, Sequence[float]]) -> list[Member]:
    """The first seed with the first value of every hyperparameter, the second with the second; one stands for all."""
    count = max(len(seeds), *map(len, hyper.values()))
    varied = tuple(name for name, values in hyper.items() if len(set(values)) > 1)
    chosen = [{name: values[k % len(values)] for name, values in hyper.items()} for k in range(count)]
    return [Member(seeds[k % len(seeds)], own, varied) for k, own in enumerate(chosen)]


def stack_keys(members: Sequence[Member]) -> Key[Array, " member"]:
    return jax.vmap(member_key)(jnp.array([m.seed for m in members], jnp.uint32))


def stack_algorithms(algorithm: Algorithm, members: Sequence[Member]) -> Algorithm:
    """The algorithm with every float field an array over members, also those that are equal for all.

    Equal ones too, so that a member can be given other values without compiling anew.
    """
    variants = [algorithm.replace(**m.hyper) for m in members]
    return jax.tree.map(lambda *leaves: jnp.array(leaves, float_dtype()), *variants)


def each_member(function: Callable, shared: Sequence[int] = ()) -> Callable:
    """Map a function written for one member over the leading axis of its arguments, except the `shared` ones.

    What is shared (step counters) stays a scalar, so branches on it stay branches.
    """

    def mapped(*arguments: PyTree) -> PyTree:
        axes = tuple(None if i in shared else eqx.if_array(0) for i in range(len(arguments)))
        return eqx.filter_vmap(function, in_axes=axes)(*arguments)

    return mapped


def pick(tree: PyTree, index: int) -> PyTree:
    """One member's part of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, tree)
