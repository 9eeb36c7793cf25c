"""Code blocks of the documentation, run as they are printed, but with fewer steps and small networks."""

import importlib
import re
import shlex
import shutil
import sys
import types
from dataclasses import dataclass
from pathlib import Path

from dac.cli.main import COMMANDS, main
from dac.config import resolution

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```(?P<language>\S*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block; `reason` says why it is not run."""

    language: str
    code: str
    line: int
    reason: str | None


def blocks(path: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(found["language"], found["code"], text[: found.start("code")].count("\n") + 1, found["reason"])
        for found in BLOCK.finditer(text)
    ]


def few(steps: int) -> int:
    """A number of steps that a test can wait for; more stays more, and what is small already stays as it is."""
    return steps if steps <= 1000 else min(1000, 40 * (1 + steps // 200_000))  # a multiple of 4 and 10 environments


SMALL = {
    "steps": few,
    "hidden": lambda sizes: (8,) * len(sizes),
    "batch_size": lambda size: min(size, 16),
    "eval_every": lambda steps: min(steps, 40),
    "eval_episodes": lambda count: 1,
    "random_steps": lambda steps: min(steps, 20),
    "update_after": lambda steps: min(steps, 20),
}
"""What becomes of a setting once it has been checked as it is printed."""


def make_small(patch) -> None:
    """Let every run be small, whoever starts it: settings are checked as they are given, then reduced."""
    real = resolution.check

    def check(name, value, *field, **options):
        return SMALL.get(name, lambda given: given)(real(name, value, *field, **options))

    patch.setattr(resolution, "check", check)


def run_page(path: Path, folder: Path, patch) -> None:
    """Run every block of a page in order, all Python in one namespace, in an empty folder."""
    make_small(patch)
    patch.chdir(folder)
    if "from results" in path.read_text(encoding="utf-8"):  # of the published runs a copy: nothing is written there
        shutil.copytree(ROOT / "results" / "sparse", folder / "results")
    module = types.ModuleType("a_page")
    patch.setitem(sys.modules, "a_page", module)
    for block in blocks(path):
        place = f"{path.name}:{block.line}"
        if block.reason is not None or block.language == "text":
            continue
        if block.language == "toml":  # a file, whose name is its first line
            name, _, text = block.code.partition("\n")
            (folder / name.removeprefix("# ")).write_text(text, encoding="utf-8")
        elif block.language == "python":
            code = re.sub(r"\.learn\([\d_]+", ".learn(60", block.code)  # `learn` counts from where a model is
            exec(compile(code, place, "exec"), module.__dict__)
        else:
            for words in commands(block):
                run_command(words, place)


def commands(block: Block) -> list[list[str]]:
    """The commands of a shell block, word by word, without comments."""
    joined = block.code.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def run_command(words: list[str], place: str) -> None:
    """Run `dac ...` in this process; of `make ...` look whether there is such a target."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert set(words[1:]) <= set(targets), f"{place}: {shlex.join(words)}"
        return
    assert words[0] == "dac", f"{place} cannot be run: {shlex.join(words)}"
    code = main(words[1:])
    assert code == 0, f"{place}: {shlex.join(words)} ended with {code}"


def import_commands() -> None:
    """Import every command beforehand: what is imported while something is replaced would keep the replacement."""
    for name in COMMANDS:
        importlib.import_module(f"dac.cli.{name.replace('-', '_')}")
