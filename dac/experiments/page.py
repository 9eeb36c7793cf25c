"""HTML that opens anywhere: one file with its style, its script and its data inside."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any


def document(title: str, body: Sequence[str], data: Mapping[str, Any], style: str, script: str, head: str = "") -> str:
    """A whole document with a script and the data that it draws; numbers that are not finite arrive as null."""
    text = json.dumps(_finite(data), allow_nan=False, separators=(",", ":"))
    # "<" is written as an escape, so that no name in the data can end the element or open a comment in it
    block = f'<script type="application/json" id="data">{text.replace("<", chr(92) + "u003c")}</script>'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n{head}<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join([*body, block, f"<script>{script}</script>"])
        + "\n</body>\n</html>\n"
    )


def asset(name: str) -> str:
    """The text of a file that lies beside this module, such as `report.css`."""
    return resources.files("dac.experiments").joinpath(name).read_text("utf-8")


def _finite(value: Any) -> Any:
    """The same value with None for each NaN or infinity, which JSON has no word for."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, sortable: bool = False) -> str:
    """A table, columns of words to the left; one that is sortable is so by its cells' leading number or their text."""
    words = [all(_leading_number(row[column]) is None for row in rows) for column in range(len(header))]
    sides = [' class="text"' if left else "" for left in words]
    head = "".join(f"<th{side}>{html.escape(cell)}</th>" for cell, side in zip(header, sides, strict=True))
    lines = "".join("<tr>" + "".join(map(_cell, row, sides)) + "</tr>" for row in rows)
    kind = ' class="sortable"' if sortable else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cell(text: str, side: str) -> str:
    number = _leading_number(text)
    value = "" if number is None else f' data-value="{number}"'
    return f"<td{side}{value}>{html.escape(text)}</td>"


def _leading_number(text: str) -> str | None:
    """2699 of `2699 ± 691`, 2450 of `[2450, 2941]`, 1200 of `1,200 s`; none of `DAC 0.5`."""
    found = re.match(r"\[?(-?\d[\d,]*(?:\.\d+)?)(?= ±|, |\]| \[| s$|$)", text)
    return None if found is None else found[1].replace(",", "")
