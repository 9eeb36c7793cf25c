"""A page that is being written, and the parts that every page has: films, commands, versions."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from dac.experiments.overview import Entry, overview
from dac.experiments.page import asset, document, table
from dac.rundir.files import make_directory, write_atomically

LEGEND = (
    "The first method of each experiment against the second. P: the probability that a random seed of the first is "
    "better, with its 95% interval. Other methods, the paper's numbers and what is missing are in the sections."
)
"""The line below the table at the top."""
VIDEO_LIMIT = 3_000_000
"""Bytes of a film that is put into the page; a longer one is linked."""


class Page:
    """A report that is being written: its HTML, and the data that its script draws."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.films: set[Path] = set()
        self.body: list[str] = []
        self.contents: list[tuple[str, str]] = []
        self.entries: list[Entry] = []
        self.charts: dict[str, Any] = {}
        self.heats: dict[str, Any] = {}

    def add(self, *parts: str) -> None:
        self.body += parts

    def heading(self, anchor: str, title: str) -> None:
        self.contents.append((anchor, title))
        self.add(f'<h2 id="{escape(anchor)}">{escape(title)}</h2>')

    def chart(self, name: str, chart: Mapping[str, Any]) -> None:
        self.charts[name] = chart
        self.add(
            f'<figure class="chart" data-chart="{escape(name)}">'
            f"<noscript>{escape(chart['title'])}: drawn by the page's script.</noscript></figure>"
        )

    def heat(self, name: str, heat: Mapping[str, Any]) -> None:
        self.heats[name] = heat
        self.add(f'<figure class="heat" data-heat="{escape(name)}"></figure>')

    def write(self, title: str, lead: Sequence[str] = (), live: float | None = None) -> Path:
        """Put the table of what there is in front, and write the file; one that is `live` reloads itself so often."""
        links = "".join(f'<a href="#{escape(a)}">{escape(t)}</a>' for a, t in self.contents)
        head = [f"<h1>{escape(title)}</h1>", *lead]
        if self.entries:
            head.append(overview(self.entries))
            if any(kind for entry in self.entries for kind, _ in entry.lines):
                head.append(f'<p class="soft">{LEGEND}</p>')
        head += [f'<nav class="contents">{links}</nav>'] if links else []
        data = {"charts": self.charts, "heats": self.heats}
        script, more = asset("report.js"), ""
        if live is not None:
            script += asset("live.js")
            more = f'<noscript><meta http-equiv="refresh" content="{max(1, round(live))}"></noscript>\n'
            head.append(f'<span id="live" data-every="{live:g}" hidden></span>')
        text = document(title, [*head, *self.body], data, asset("report.css"), script, more)
        make_directory(self.path.parent)
        write_atomically(self.path, text.encode())
        return self.path


class Made(NamedTuple):
    """What a page says of how a run was made."""

    directory: Path
    caption: str
    """Its algorithm and task."""
    envs: int
    """Environments per member."""
    summary: Mapping[str, Any] | None
    """What it has come to, if it is finished."""


def add_films(page: Page, runs: Sequence[Made], *, embed: bool = True) -> None:
    """Add the film that `dac video` made of a run, once per page: inside it if it is short, else as a link."""
    for run in runs:
        path = run.directory / "video.mp4"
        if path in page.films or not path.is_file():
            continue
        page.films.add(path)
        caption = escape(run.caption)
        if embed and path.stat().st_size <= VIDEO_LIMIT:
            source = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()
            page.add(f'<figure><video controls src="{source}"></video><figcaption>{caption}</figcaption></figure>')
        else:
            # from where the page is, so that both can be moved together
            link = quote(Path(os.path.relpath(path, page.path.parent)).as_posix())
            page.add(f'<p><a href="{link}">Film: {caption}</a></p>')


def add_provenance(page: Page, runs: Sequence[Made], again: Sequence[str], command: str) -> None:
    """Add the commands that make the runs again, and the versions they were made with."""
    rows = []
    for run in runs:
        if run.summary is None:
            rows.append([str(run.directory), "not finished", "-", "-", "-", "-"])
            continue
        versions, rate = run.summary["versions"], run.summary["agent_steps_per_second"]
        made = ", ".join(f"{n} {versions[n]}" for n in ("dac", "jax", "mujoco", "python") if versions.get(n))
        made += f", {run.envs} environments per member" if run.envs > 1 else ""
        cells = [str(run.directory), made, (versions.get("commit") or "-")[:9], versions.get("device") or "-"]
        rows.append([*cells, f"{run.summary['seconds']:,.0f} s", "-" if rate is None else f"{rate:,.0f}"])
    lines = [*again, *(f"dac train --config {shlex.quote(f'{row[0]}/config.toml')}" for row in rows)]
    page.add('<details class="raw"><summary>Commands, versions, raw data</summary>')
    page.add(f'<pre class="command">{escape(chr(10).join(lines))}</pre>')
    page.add(table(["run", "versions", "commit", "device", "time", "agent-steps/s"], rows))
    if command:
        page.add(f'<p class="soft">This page: <code>{escape(command)}</code></p>')
    page.add("</details>")
