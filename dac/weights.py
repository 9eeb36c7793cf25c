"""Trees of arrays in safetensors files: nothing in them can execute, and each array has a name a person can read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

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
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in name_leaves(tree).items()}
    write_atomically(path, save(arrays))


def load_tree(path: Path, template: Tree) -> Tree:
    """Read a tree of the template's structure, or say what does not fit."""
    return fill(template, read_arrays(path), str(path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file by name."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged or not a safetensors file: {str(error).splitlines()[0]}") from None


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


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a new name, sync, rename: a crash leaves the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _name(where: tuple) -> str:
    return jax.tree_util.keystr(where, simple=True, separator=".")
