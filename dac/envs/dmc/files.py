"""The models of the installed `dm_control`: its files are read, and its Python is not imported."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dac.core.errors import UsageError, missing_extra
from dac.envs.batch import quiet_compiler

_SHARED = ("./common/materials.xml", "./common/skybox.xml", "./common/visual.xml")


def suite_folder() -> Path:
    """Return the folder of the suite, or say what has to be installed."""
    found = importlib.util.find_spec("dm_control")  # looks for the package and does not import it
    if found is None or not found.submodule_search_locations:
        raise missing_extra("dmc", "a task dmc:DOMAIN-TASK")
    folder = Path(next(iter(found.submodule_search_locations))) / "suite"
    if not (folder / "cartpole.xml").is_file():
        raise UsageError(
            f"dm_control in {folder.parent} has no suite/cartpole.xml; reinstall it: pip install -U dm_control"
        )
    return folder


@functools.cache
def read(name: str) -> bytes:
    """Return a file of the suite."""
    path = suite_folder() / name
    try:
        return path.read_bytes()
    except OSError:
        raise UsageError(f"dm_control has no {path}; this package knows dm_control 1.0.50") from None


def parse(name: str) -> ElementTree.Element:
    """Return a model of the suite as a tree, to be changed before it is compiled."""
    return ElementTree.fromstring(read(name))


def find(tree: ElementTree.Element, tag: str, name: str) -> ElementTree.Element:
    """Return the element with that tag and name."""
    found = tree.find(f".//{tag}[@name='{name}']")
    if found is None:
        raise UsageError(f"dm_control's model has no {tag} {name!r}; this package knows dm_control 1.0.50")
    return found


def remove(tree: ElementTree.Element, tag: str, names: Iterable[str]) -> None:
    """Take elements out of a tree."""
    parents = {child: parent for parent in tree.iter() for child in parent}
    for name in names:
        element = find(tree, tag, name)
        parents[element].remove(element)


def compile_model(tree: ElementTree.Element, assets: Mapping[str, bytes] | None = None) -> Any:
    """Compile a model with the files that every model of the suite includes, and its own."""
    import mujoco

    files = {name: read(name) for name in _SHARED} | dict(assets or {})
    with quiet_compiler():
        return mujoco.MjModel.from_xml_string(ElementTree.tostring(tree, encoding="unicode"), files)
