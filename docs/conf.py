"""How Sphinx builds the site. Every warning is an error: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import dacdocs  # noqa: E402
from dacdocs.notebooks import to_markdown  # noqa: E402
from docutils import nodes  # noqa: E402
from myst_parser.parsers.sphinx_ import MystParser  # noqa: E402
from sphinx.addnodes import pending_xref  # noqa: E402
from sphinx.transforms.post_transforms import SphinxPostTransform  # noqa: E402
from sphinx.util.nodes import find_pending_xref_condition, make_refnode  # noqa: E402

import dac  # noqa: E402

project = "dac"
author = "The dac developers"
copyright = "the dac developers"
release = version = dac.__version__
html_title = f"dac {release}"

extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["dacdocs"]
nitpicky = True
highlight_language = "text"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

maximum_signature_line_length = 90
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def expand(app, name: str, source: list[str]) -> None:
    """Put what a page takes from the code in its place, before the page is read."""
    del app, name
    source[0] = dacdocs.expand(source[0])


class NotebookParser(MystParser):
    """Reads a notebook as the Markdown page that it stands for."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the notebook's Markdown."""
        super().parse(to_markdown(inputstring), document)


class TypeLinks(SphinxPostTransform):
    """Links a type in a signature by its last name, since a signature names it as its own module does.

    A type that has no place in the reference stays plain text. What a person wrote as a role is left to Sphinx.
    """

    default_priority = 5  # before Sphinx's own, which would report the same name at two places

    def run(self, **arguments) -> None:
        """Replace every reference that a signature holds."""
        objects = self.env.get_domain("py").objects
        for node in list(self.document.findall(pending_xref)):
            if node.get("refdomain") != "py" or "refwarn" in node:
                continue
            last = node["reftarget"].split(".")[-1]
            named = [n for n, o in objects.items() if n.split(".")[-1] == last and o.objtype in TYPES]
            shown = find_pending_xref_condition(node, "resolved") or node
            content = shown[0].deepcopy()
            if named:
                full = min(named, key=lambda name: (name.count("."), name))
                place = objects[full]
                content = make_refnode(self.app.builder, self.env.docname, place.docname, place.node_id, content, full)
            node.replace_self(content)


TYPES = ("class", "exception", "data")


def setup(app) -> None:
    """Add the parser of notebooks and the steps above."""
    app.add_source_parser(NotebookParser)
    app.connect("source-read", expand)
    app.add_post_transform(TypeLinks)
