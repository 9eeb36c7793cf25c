"""What is built for others to install: the package, whole and alone, with every extra that it asks for."""

import ast
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from dac._version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME = f"diversity_actor_critic-{__version__}"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel that is built from it."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_wheel_is_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        scripts = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    sources = {path for path in (ROOT / "dac").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    expected = {path.relative_to(ROOT).as_posix() for path in sources}
    assert "dac/py.typed" in expected
    assert {name for name in names if not name.startswith(f"{NAME}.dist-info/")} == expected
    assert f"{NAME}.dist-info/licenses/LICENSE" in names
    assert "dac = dac.cli:main" in scripts


def test_the_source_distribution_holds_what_is_needed(built):
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "Makefile", "dac/cli/main.py"} <= names
    assert {"tests/conftest.py", "docs/index.md", "requirements.lock"} <= names
    assert not any(name.startswith(("results/", ".ci/", ".github/")) for name in names)
    assert (built / f"{NAME}.tar.gz").stat().st_size < 4 * 2**20


def test_an_index_would_take_both(built):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, built.iterdir())],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_every_extra_that_is_asked_for_exists():
    """`needs_extra("video", ...)` and `missing_extra("video", ...)` tell a user to install something."""
    asked = {
        node.args[0].value
        for path in (ROOT / "dac").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("needs_extra", "missing_extra")
        if isinstance(node.args[0], ast.Constant)
    }
    assert "video" in asked
    assert asked <= set(PROJECT["optional-dependencies"])


def test_the_extra_all_holds_every_other_that_goes_with_any_machine():
    extras = dict(PROJECT["optional-dependencies"])
    (everything,) = extras.pop("all")
    named = set(everything.removeprefix("diversity-actor-critic[").removesuffix("]").split(","))
    assert named == set(extras) - {"cuda12", "cuda13", "docs"}
