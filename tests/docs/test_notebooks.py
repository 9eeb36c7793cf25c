"""The notebooks run from the top, and what they show is what they would show now."""

import os
import re

import nbformat
import pytest
from dacdocs.notebooks import to_markdown
from nbclient import NotebookClient

from tests.docs.blocks import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    """Every cell runs, and gives the kinds of output that are saved."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # pictures go into the notebook
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax-cache"))
    notebook = nbformat.read(path, as_version=4)
    saved = [kinds(cell) for cell in notebook.cells]
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [kinds(cell) for cell in notebook.cells] == saved


def kinds(cell):
    """The kinds of output of a cell: printed text, values, pictures."""
    return {frozenset(output.get("data", {"text": 0})) for output in outputs(cell)}


def outputs(cell):
    return [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_saved_with_its_output(path):
    """No cell has failed, there are pictures, and nothing of the machine is in it."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    everything = [output for cell in notebook.cells for output in outputs(cell)]
    assert not [output for output in everything if output.output_type == "error"]
    assert "data:image/png" in to_markdown(path.read_text())
    assert not re.search(r"/(?:home|tmp|root)/", path.read_text())
