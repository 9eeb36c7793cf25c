"""Trees of arrays by name, so that a file of them can be read by a person and checked by a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from dac.core.types import UsageError

Tree = TypeVar("Tree", bound=PyTree)


def name_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves of a tree by names a person can read."""
    return {_name(where): leaf for where, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def fill(template: Tree, arrays: Mapping[str, np.ndarray], source: str) -> Tree:
    """The template with the arrays of these names as its leaves, NumPy's where the template has NumPy's."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    missing = sorted({_name(where) for where, _ in leaves} ^ set(arrays))
    if missing:
        raise UsageError(f"{source} does not fit this run: {missing[0]!r} is missing or not expected")
    found = []
    for where, leaf in leaves:
        array = arrays[_name(where)]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UsageError(
                f"{source} does not fit this run: {_name(where)!r} is {array.dtype}{list(array.shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}"
            )
        found.append(np.array(array) if isinstance(leaf, np.ndarray) else jnp.asarray(array))
    return jax.tree_util.tree_unflatten(structure, found)


def _name(where: tuple) -> str:
    return jax.tree_util.keystr(where, simple=True, separator=".")
