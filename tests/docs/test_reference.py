"""The pages that are read from the code: complete, and as the author wrote it."""

import re

import dacdocs
import jax
import jax.numpy as jnp
import pytest
from dacdocs import commands, reference, settings, tasks

import dac
from dac.algorithms import ALGORITHMS, BONUSES, owners
from dac.cli.main import COMMANDS
from dac.config import Training
from dac.config.schema import fields_of
from dac.tasks import TASKS
from dac.tasks.presets import PRESETS
from docs.pictures import five_minutes


def test_every_public_name_has_a_text():
    """Functions, classes, methods, fields and constants of the reference, by their full names."""
    assert reference.undocumented() == []


def test_every_name_of_the_package_is_in_the_reference():
    page = reference.reference("dac")
    for name in dac.__all__:
        assert re.search(rf"\{{py:\w+\}} dac\.{name}\b|^## `dac\.{name}`", page, re.M), name


def test_a_name_without_a_text_is_found():
    """The check can fail: a class with one field that nobody has explained, and a method likewise."""
    item = reference.describe_class("there.Undocumented", Undocumented)
    assert list(item.undocumented()) == ["there.Undocumented.field", "there.Undocumented.method"]


class Undocumented:
    """Explained, unlike its parts."""

    field: int
    other: int = 3
    """Explained."""

    def method(self):
        return self.field


def test_signatures_and_fields_stand_as_they_are_written():
    """Annotations of jaxtyping, texts under fields of Equinox modules, defaults, and what is inherited."""
    algorithms, entropy, package = (reference.reference(page) for page in ("algorithms", "entropy", "dac"))

    assert '{py:function} dac.core.types.pack(transition: Transition) -> Float[Array, "*axes row"]' in entropy
    assert (
        "{py:attribute} obs\n:type: 'Float[Array, \"*axes obs\"]'\n\nObservation in which the agent acted." in entropy
    )
    assert "{py:attribute} alpha\n:type: 'float'\n:value: '0.5'\n\nWeight of the policy" in algorithms
    assert "{py:attribute} gamma\n:type: 'float'\n:value: '0.99'\n\nDiscount factor." in algorithms
    assert "{py:function} dac.train(algorithm: str | None=None" in package
    assert 'run = dac.train("dac", "maze", seeds=range(5)' in package


def test_every_setting_has_its_row():
    page = settings.settings()
    for owner in [Training, *(owner for name in ALGORITHMS for owner in owners(name)), *BONUSES.values()]:
        for name in fields_of(owner):
            assert f"| `{name}` |" in page
    assert "| `alpha` | number * | `0.5` | 0 to 1 | Weight of the policy" in page
    assert "| `steps` | whole number | `1000000` | 1 to 2,147,483,647 | Environment steps per member. |" in page
    assert "| `total_steps` | number * | that of `steps` |" in page
    assert not re.search(r"\|\s+\|\n", page), "a setting that nobody has explained"


def test_every_preset_and_every_task_names_its_source():
    assert all(preset.source for preset in PRESETS.values())
    assert settings.presets().count("\n") == len(PRESETS) + 1
    page = tasks.tasks()
    for name, task in TASKS.items():
        assert task.source
        assert f"| `{name}` | {task.summary} |" in page
    assert "| 17 / 6 |" in page


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_its_table(name):
    page, parser = commands.command(name, COMMANDS[name]), commands.parser_of(name)
    for action in parser._actions:
        assert action.dest.startswith("set_") or commands.label(action) in page
    assert "%(" not in page


def test_a_comment_is_replaced_and_nothing_else():
    page = "# A\n\n<!-- generate: navigation -->\n\n`<!-- generate: navigation -->`\n"
    assert dacdocs.expand(page).count("{toctree}") == len(dacdocs.parts())
    assert dacdocs.expand("<!-- not run: a reason -->\n") == "<!-- not run: a reason -->\n"


def test_the_picture_shows_what_its_page_says():
    """SAC's policy has the most entropy at 0; DAC's mixture away from what the buffer holds, at 0.38."""
    best = {}
    for alpha in (1.0, five_minutes.ALPHA):
        heights = jax.vmap(lambda mean, alpha=alpha: five_minutes.entropy_of_mixture(mean, alpha))(five_minutes.MEANS)
        best[alpha] = float(jnp.tanh(five_minutes.MEANS[jnp.argmax(heights)]))
    assert best == pytest.approx({1.0: 0.0, 0.5: 0.38}, abs=0.005)
    assert "has it at 0.38" in (dacdocs.DOCS / "five-minutes.md").read_text()
