"""What the documentation shows is run, and what it names exists."""

import importlib.util
import re
import sys
from pathlib import Path

import dacdocs
import equinox as eqx
import pytest
from dacdocs.notebooks import to_markdown

import dac
from dac.algorithms import ALGORITHMS, METRICS, Entry, make_algorithm
from dac.core.population import each_member, grid, stack_algorithms, stack_keys
from dac.core.types import EnvSpec
from dac.training.step import metric_names

SPEC = EnvSpec(obs_size=2, action_size=1)
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")),
    *PAGES,
    *NOTEBOOKS,
]
TO_BE_WRITTEN = {
    "dac/core/architectures/NAME.py",
    "dac/algorithms/metrics/NAME.py",
    "dac/algorithms/ddpg.py",
    "dac/algorithms/NAME.py",
    "dac/algorithms/bonuses/NAME.py",
    "dac/training/loggers/NAME.py",
}
"""Files that a page tells its reader to write."""


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
    navigation = [page for pages in dacdocs.parts().values() for page in pages]
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


def name_of(path):
    return str(path.relative_to(ROOT))


def prose(path):
    """A page without its code blocks; of a notebook the text."""
    text = to_markdown(path.read_text()) if path.suffix == ".ipynb" else path.read_text()
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.*)$", dacdocs.expand(prose(path)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_navigation():
    navigation = ["index.md", *(page for pages in dacdocs.parts().values() for page in pages)]
    notebooks = (DOCS / "notebooks").glob("*.ipynb")
    assert sorted(navigation) == sorted(str(page.relative_to(DOCS)) for page in [*PAGES, *notebooks])


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_every_link_leads_somewhere(path):
    """A relative link names a file that exists and, behind a #, one of its headings."""
    for shown, link in re.findall(r"(!?)\[[^]]*\]\(([^)\s]+)\)", prose(path)):
        if link.startswith(("https://", "http://", "data:")):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if not shown:  # a picture is copied into the web site
            assert not (path in PAGES and DOCS not in target.parents), f"{link} leads out of the web site"
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=name_of)
def test_every_file_that_is_named_exists(path):
    """Modules, tests, benchmarks and results are named by their paths from the root; a star stands for any name."""
    named = re.findall(r"(?<![\w/.-])(?:(?:dac|tests)/[\w/]+\.py|(?:bench|results)/[\w./*-]*[\w*])", path.read_text())
    for name in set(named) - TO_BE_WRITTEN:
        assert list(ROOT.glob(name)), name


def test_the_table_of_what_moved_leads_to_modules():
    """Every new place can be imported; an old place that is no new one is gone."""
    section = (DOCS / "migration.md").read_text().split("## Modules")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `dac")]
    modules = [[re.findall(r"`(dac[\w.]*)`", cell) for cell in row.strip("|").split("|")] for row in rows]
    new = {name for _, places in modules for name in places}
    assert len(rows) > 20
    for (old,), places in modules:
        assert places
        assert all(importlib.util.find_spec(name) for name in places), places
        assert old in new or not exists(old), old


def exists(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is gone, too
        return False


def test_the_version_is_the_same_everywhere():
    assert f"version: {dac.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"Version {dac.__version__} " in (ROOT / "README.md").read_text()
    assert re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == dac.__version__


def test_every_metric_that_can_be_asked_for_is_explained():
    page = (DOCS / "metrics.md").read_text()
    for name in METRICS:
        assert f"| `{name}` |" in page
