"""Trees of arrays in safetensors files: nothing in them can execute, and each array has a name a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from dac.core.trees import fill, name_leaves
from dac.core.types import UsageError
from dac.rundir.files import write_atomically

Tree = TypeVar("Tree", bound=PyTree)


def save_tree(path: Path, tree: PyTree) -> None:
    """Write every array of a tree under its path; the file appears whole or not at all."""
    save_arrays(path, {name: np.asarray(leaf) for name, leaf in name_leaves(tree).items()})


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name; the file appears whole or not at all."""
    write_atomically(path, save({name: np.asarray(array, order="C") for name, array in arrays.items()}))


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
