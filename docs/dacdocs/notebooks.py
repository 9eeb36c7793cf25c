"""Notebooks as pages: their text, code and saved output, as Markdown. Nothing is run when the site is built."""

from __future__ import annotations

import json
from typing import Any


def joined(text: str | list[str]) -> str:
    """Return a text of a notebook, which may be stored as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def to_markdown(text: str) -> str:
    """Return a notebook as a Markdown page; pictures are inside it."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [shown for output in cell["outputs"] if (shown := show(output))]
    return "\n\n".join(parts)


def show(output: dict[str, Any]) -> str:
    """Return one output: a picture, or text that a reader can tell from the code."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![Output of the cell above](data:image/png;base64,{''.join(joined(data['image/png']).split())})"
    text = joined(output.get("text") or data.get("text/plain", ""))
    return f"```text\n{text.rstrip()}\n```" if text.strip() and output.get("name") != "stderr" else ""
