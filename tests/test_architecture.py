"""Imports go one way: each room of the package knows the rooms before it, and none of those after it.

Every import in every file counts, also those inside functions and those for type checkers alone.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dac"
ORDER = [
    {"kernels"},
    {"core"},
    {"algorithms", "envs", "theory"},
    {"tasks"},
    {"config"},
    {"rundir"},
    {"training"},
    {"api"},
    {"export"},
    {"experiments"},
    {"cluster"},
    {"cli"},
]
"""The rooms, the lowest first; rooms of one line do not know each other."""
PLACE = {room: place for place, rooms in enumerate(ORDER) for room in rooms}
ROOT = {"__init__.py", "__main__.py", "_version.py", "callbacks.py", "py.typed"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """The modules of this package that a file imports, in full."""
    package = ["dac", *path.relative_to(PACKAGE).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from dac import api` names a room, `from dac.api import Run` is in one
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "dac" else {module}
    return {name for name in found if name == "dac" or name.startswith("dac.")}


def room_of(name):
    """The room of a file's path or of a module's name within the package."""
    return name.removesuffix(".py").replace("/", ".").removeprefix("dac.").split(".")[0]


def against_the_order(path):
    """What a file imports although it may not."""
    name = path.relative_to(PACKAGE).as_posix()
    room = room_of(name)
    if path.parent == PACKAGE and room not in PLACE:  # the door of the package opens on all rooms but the command line
        own = {"__main__": "cli"}.get(room)
        return {(name, found) for found in imports(path) if room_of(found) == "cli" != own}
    return {
        (name, found)
        for found in imports(path)
        if room_of(found) not in (room, "_version") and not PLACE.get(room_of(found), len(ORDER)) < PLACE[room]
    }


def test_every_room_has_a_place():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(PLACE)


def test_the_root_holds_what_a_user_imports():
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} == ROOT


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(path):
    assert against_the_order(path) == set()


def test_only_the_command_line_imports_the_command_line():
    users = {path.relative_to(PACKAGE) for path in FILES if any(room_of(name) == "cli" for name in imports(path))}
    assert {path for path in users if path.parts[0] != "cli"} == {Path("__main__.py")}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import dac.cli.main", {"dac.cli.main"}),
        ("from dac import api", {"dac.api"}),
        ("from dac.api import Run", {"dac.api"}),
        ("def f():\n    from dac.cli import main", {"dac.cli"}),
        ("if TYPE_CHECKING:\n    from dac.training.loop import AbstractLoop", {"dac.training.loop"}),
        ("from . import names", {"dac.rundir"}),
        ("from ..cli import main", {"dac.cli"}),
        ("from .. import cli", {"dac.cli"}),
        ("import numpy, dacapo", set()),
    ],
)
def test_no_way_to_import_is_overlooked(text, found, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (tmp_path / "rundir").mkdir()
    (tmp_path / "rundir/file.py").write_text(text)
    assert imports(tmp_path / "rundir/file.py") == found
