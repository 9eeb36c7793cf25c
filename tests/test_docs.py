"""What the documentation shows is run."""

import importlib.util
import re
import sys
from pathlib import Path

import dac
from dac.algorithms import ALGORITHMS, Entry

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


def test_every_logged_metric_is_explained(tmp_path):
    """Every column that a short run of an algorithm writes stands in its page, or in dac.md where it is common."""
    common = (DOCS / "dac.md").read_text()
    sizes = {"rollout": 20, "minibatches": 2, "batch_size": 8}
    from dac.config import settings_of

    for name, entry in ALGORITHMS.items():
        known = settings_of(name, entry.bonus)
        settings = {n: v for n, v in sizes.items() if n in known} | {n: (8,) for n in known if n.endswith("hidden")}
        settings |= {"envs": 1, "random_steps": 0}
        run = dac.train(name, "target", steps=40, eval_every=40, update_after=10, out=tmp_path / name, **settings)
        page = DOCS / ("dac.md" if name == "sac" else f"{name}.md")
        for column in run.metrics:
            assert f"`{column}`" in page.read_text() + common, (name, column)
