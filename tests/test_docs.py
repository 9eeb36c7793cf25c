"""What the documentation shows is run."""

import importlib.util
import re
import sys
from pathlib import Path

import equinox as eqx
import pytest

import dac
from dac.algorithms import ALGORITHMS, Entry, make_algorithm
from dac.population import each_member, grid, stack_algorithms, stack_keys
from dac.training.member import metric_names
from dac.types import EnvSpec

SPEC = EnvSpec(obs_size=2, action_size=1)
DOCS = Path(__file__).parents[1] / "docs"


def test_the_tenth_algorithm_of_the_docs_learns(tmp_path, monkeypatch):
    """The page's own code, registered by the page's own line, reaches the probe's known answer with five seeds."""
    page = (DOCS / "adding.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "ddpg.py").write_text(code)
    spec = importlib.util.spec_from_file_location("ddpg", tmp_path / "ddpg.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ddpg", module)
    spec.loader.exec_module(module)
    assert '"ddpg": Entry(DDPG),' in page
    monkeypatch.setitem(ALGORITHMS, "ddpg", Entry(module.DDPG))
    run = dac.train("ddpg", "target", seeds=range(5), out=tmp_path / "run", noise=[0.3], hidden=(32, 32))
    assert (run.metrics["return"][-1] > -0.01).all()
    assert "q_mean" in run.metrics


def test_every_algorithm_has_a_page_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    for name in ALGORITHMS:
        page = "dac.md" if name == "sac" else f"{name}.md"
        assert (DOCS / page).exists(), name
        assert page in navigation, name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_logged_metric_is_explained(name):
    """Every column an algorithm measures stands in its page, or in dac.md where it is common."""
    members = grid([0], {})
    algorithms, keys = stack_algorithms(make_algorithm(name, ALGORITHMS[name].bonus), members), stack_keys(members)
    states = eqx.filter_eval_shape(each_member(lambda a, k: a.init(k, SPEC)), algorithms, keys)
    page = (DOCS / ("dac.md" if name == "sac" else f"{name}.md")).read_text() + (DOCS / "dac.md").read_text()
    for column in metric_names(algorithms, states, keys, SPEC):
        assert f"`{column}`" in page, column


def test_every_common_column_is_explained(tmp_path):
    run = dac.train("sac", "maze", steps=20, eval_every=20, hidden=(8,), batch_size=8, out=tmp_path / "run")
    page = (DOCS / "dac.md").read_text()
    assert all(f"`{column}`" in page for column in run.metrics if column not in ("member", "seed"))
