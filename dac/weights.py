"""Trees of arrays in safetensors files: nothing in them can execute, and each array has a name a person can read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from dac.types import UsageError

Tree = TypeVar("Tree", bound=PyTree)


def save_tree(path: Path, tree: PyTree) -> None:
    """Write every array of a tree under its path; the file appears whole or not at all."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    arrays = {_name(where): np.ascontiguousarray(leaf) for where, leaf in leaves}
    write_atomically(path, save(arrays))


def load_tree(path: Path, template: Tree) -> Tree:
    """Read a tree of the template's structure, or say what does not fit."""
    try:
        arrays = load_file(path)
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged or not a safetensors file: {str(error).splitlines()[0]}") from None
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    missing = sorted({_name(where) for where, _ in leaves} ^ set(arrays))
    if missing:
        raise UsageError(f"{path} does not fit this run: {missing[0]!r} is missing or not expected")
    found = []
    for where, leaf in leaves:
        array = arrays[_name(where)]
        if array.shape != leaf.shape or array.dtype != leaf.dtype:
            raise UsageError(
                f"{path} does not fit this run: {_name(where)!r} is {array.dtype}{list(array.shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}"
            )
        found.append(jnp.asarray(array))
    return jax.tree_util.tree_unflatten(structure, found)


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a new name, sync, rename: a crash leaves the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _name(where: tuple) -> str:
    return jax.tree_util.keystr(where).lstrip(".")
