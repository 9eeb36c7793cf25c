"""What the documentation takes from the code: settings, presets, commands, tasks, the API, the navigation.

A page asks for a part by a comment, which a reader of the plain file does not see:

    <!-- generate: settings -->

`expand` puts the text in its place. Nothing here needs Sphinx, so that the tests of these parts are quick.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from dacdocs import commands, reference, settings, tasks

DOCS = Path(__file__).parents[1]

GENERATORS: dict[str, Callable[..., str]] = {
    "settings": settings.settings,
    "presets": settings.presets,
    "commands": commands.commands,
    "tasks": tasks.tasks,
    "reference": reference.reference,
    "navigation": lambda: navigation(),
}
"""What can be asked for, by name; the rest of the comment is the function's arguments."""


def expand(text: str) -> str:
    """Replace every comment `<!-- generate: NAME ARGUMENTS -->` by what it asks for."""

    def generate(match: re.Match) -> str:
        name, *arguments = match[1].split()
        return GENERATORS[name](*arguments)

    return re.sub(r"^<!-- generate: (.*?) -->$", generate, text, flags=re.MULTILINE)


def parts() -> dict[str, list[str]]:
    """Every page of the site by the title of its part, in order."""
    return tomllib.loads((DOCS / "navigation.toml").read_text(encoding="utf-8"))


def navigation() -> str:
    """Return the tables of contents that order the site's pages; they belong to the home page, which hides them."""
    trees = []
    for title, pages in parts().items():
        lines = [f"```{{toctree}}\n:caption: {title}\n:hidden:\n", *pages, "```"]
        trees.append("\n".join(lines))
    return "\n\n".join(trees)
