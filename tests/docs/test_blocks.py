"""Every code block of README.md and docs/ is run."""

import re

import pytest

from dac.cli.main import _Parser
from dac.cli.train import _algorithm_in, add_arguments
from dac.config import parse_text, resolve
from tests.docs.blocks import BLOCK, PAGES, ROOT, blocks, commands, few, import_commands, run_page

QUICK = {"docs/quickstart.md", "docs/tasks.md", "docs/troubleshooting.md"}
"""Pages that `make test` runs. Those of the others compile several programs each: `make test-slow` runs them."""
ELSEWHERE = {"docs/adding.md": "tests/test_docs.py learns with it"}
"""Pages whose blocks another test runs."""

import_commands()


def name_of(path):
    return str(path.relative_to(ROOT))


def marked(path):
    name = name_of(path)
    return pytest.param(path, id=name, marks=[] if name in QUICK else [pytest.mark.slow])


RUN = [path for path in PAGES if any(block.language != "text" and block.reason is None for block in blocks(path))]


@pytest.mark.parametrize("path", [marked(path) for path in RUN if name_of(path) not in ELSEWHERE])
def test_the_blocks_of_a_page_run(path, tmp_path, monkeypatch):
    run_page(path, tmp_path, monkeypatch)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_no_code_escapes(path):
    """A block says what it is, and a command does not hide in an indented block."""
    text = path.read_text()
    assert {block.language for block in blocks(path)} <= {"sh", "python", "text", "toml"}
    outside = BLOCK.sub("", text)
    assert not re.findall(r"^(?: {4}|\t)\s*(?:dac|make|pip|python|import|from) .*$", outside, re.M)
    assert outside.count("<!-- not run:") == 0, "a comment that belongs to no block"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_training_command_names_settings_that_exist(path):
    """Also those that take hours are read and completed as they are printed; nothing is trained."""
    for block in blocks(path):
        for words in commands(block) if block.language == "sh" else []:
            if words[:2] != ["dac", "train"] or any(re.search(":room:|:gymnax:", word) for word in words):
                continue
            parser = _Parser()
            add_arguments(parser, words[1:])
            options = parser.parse_args(words[2:])
            given = {n[4:]: v for n, v in vars(options).items() if n.startswith("set_") and v is not None}
            algorithm = _algorithm_in(words[1:])
            settings = {name: parse_text(name, value, algorithm) for name, value in given.items()}
            assert resolve(algorithm, options.task, options.seeds, settings).members()


def test_every_message_of_the_troubleshooting_is_a_message():
    """What a page tells a reader to look for is written somewhere in the package."""
    table = (ROOT / "docs" / "troubleshooting.md").read_text().split("## Messages")[1].split("\n\n")[1]
    messages = [text for row in table.splitlines()[2:] for text in re.findall(r"`(.+?)`", row.split(" | ")[0])]
    source = " ".join(path.read_text() for path in (ROOT / "dac").rglob("*.py"))
    assert len(messages) > 8
    assert [text for text in messages if text not in source] == []


def test_fewer_steps_keep_their_order():
    """A run that is continued further in a page is continued in the test too, and reading a run changes nothing."""
    assert few(300_000) < few(600_000) < few(2_000_000)
    assert all(few(few(steps)) == few(steps) for steps in (40, 1000, 1001, 20_000, 1_000_000, 10_000_000))
