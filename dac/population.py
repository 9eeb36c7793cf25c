"""Many agents in one program: the only file that adds the member axis.

A population is a list of members, each a seed and a set of hyperparameters. Their states are stacked along a leading
axis and mapped. Every random number of a member comes from its seed and the step number, never from its place in
the population: member k is the same agent alone and among a hundred.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from dac.algorithms.base import AbstractAlgorithm
from dac.types import PRNGKey, float_dtype

ROOT = 20210718  # the first day of ICML 2021
TRAIN, EVALUATE, INIT, MEASURE, RESET = range(5)
"""Streams of keys of one member, so that evaluating more often changes nothing in training."""


@dataclasses.dataclass(frozen=True)
class Member:
    """One agent: its seed and the hyperparameters that differ within the population."""

    seed: int
    hyper: Mapping[str, float]

    def label(self) -> str:
        return ", ".join([f"seed {self.seed}", *(f"{name} {value:g}" for name, value in self.hyper.items())])


def grid(seeds: Sequence[int], hyper: Mapping[str, Sequence[float]]) -> list[Member]:
    """Every seed with every combination of hyperparameters; the seed varies fastest."""
    combinations = itertools.product(*hyper.values())
    return [Member(seed, dict(zip(hyper, values, strict=True))) for values in combinations for seed in seeds]


def member_key(seed: Any) -> PRNGKey:
    return jax.random.fold_in(jax.random.key(ROOT), seed)


def stream(key: PRNGKey, which: int, step: Any = 0) -> PRNGKey:
    """The key of one member for one purpose at one step."""
    return jax.random.fold_in(jax.random.fold_in(key, which), step)


def stack_keys(members: Sequence[Member]) -> Key[Array, " member"]:
    return jax.vmap(member_key)(jnp.array([m.seed for m in members], jnp.uint32))


def stack_algorithms(algorithm: AbstractAlgorithm, members: Sequence[Member]) -> AbstractAlgorithm:
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
