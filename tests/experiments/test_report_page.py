"""The page of a report in a real browser: what it draws and answers to, and how it looks on a phone and at night."""

import base64
import html
import json
import math
import re
import zlib
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from dac.experiments.page import asset, document
from tests.chromium import NAMES, Browser, find

ODD = 'SAC <b>&"</script><!--'
"""A name that must arrive as it is: neither HTML nor JSON may take it for more than a name."""

BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"
STEPS = [1000, 2000, 3000, 4000, 5000]
DAC = {"0": [90, 280, None, 640, 810], "1": [110, 320, None, 760, 990], "2": [100, 300, 520, 700, 900]}
CURVES = [
    {"name": "DAC 0.5", "colour": BLUE, "x": STEPS, "mean": [100, 300, None, 700, 900.25], "seeds": DAC},
    {
        "name": ODD,
        "colour": RED,
        "x": STEPS,
        "mean": [50, 100, 150, 200, 250],
        "seeds": {"7": [50, 100, 150, 200, 250]},
    },
    {"name": "one point", "colour": GREEN, "x": [3000], "mean": [500], "std": [40], "seeds": {"0": [500]}},
]
CURVES[0]["std"], CURVES[1]["std"] = [10, 20, None, 60, 90.5], [0, 0, 0, 0, None]
REFERENCE = [{"label": "paper: DAC 0.5 915.90", "value": 915.9, "series": "DAC 0.5"}]
AXES = {"x": "environment steps", "y": "return"}

WIDTH, HEIGHT, HEAT_STEPS, SEEDS = 7, 5, [10_000, 20_000, 150_000], (3, 2)
RANDOM = np.random.default_rng(0)
WALLS = RANDOM.random((WIDTH, HEIGHT)) < 0.2
FIRST = [np.where(WALLS, 99, RANDOM.integers(0, 5, (seeds, WIDTH, HEIGHT))) for seeds in SEEDS]
"""Which frame each seed enters each cell in; 3 and later is never."""

ROWS = [
    ("DAC 10", "1,000.5", 9.5, "a"),
    ("DAC 2", "\u2212200", 100, "b"),
    ("SAC", "\u2013", None, "c"),
    ("A3C", "7", 20, "d"),
]


def pack(array: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(array.astype(np.uint8).tobytes())).decode()


def seeds_per_cell(panel: int, frame: int) -> np.ndarray:
    return (FIRST[panel] <= frame).sum(axis=0)


def heat() -> dict:
    panels = []
    for panel, name in enumerate(("DAC", ODD)):
        frames = [seeds_per_cell(panel, frame) for frame in range(3 - panel)]  # the second ends one frame early
        added = np.diff(frames, axis=0, prepend=np.zeros((1, WIDTH, HEIGHT)))
        panels.append({"name": name, "max": SEEDS[panel], "frames": pack(added)})
    size = {"width": WIDTH, "height": HEIGHT, "steps": HEAT_STEPS, "walls": pack(WALLS)}
    return {"title": "Where they have been", "panels": panels, **size}


def write(folder, charts, heats, name="report.html"):
    def figure(kind, key):
        return f'<figure class="{kind}" data-{kind}="{key}"><noscript><p>Needs JavaScript.</p></noscript></figure>'

    rows = "".join(
        f"<tr><td>{label}</td><td>{text}</td><td{f' data-value={value}' if value else ''}>{letter}</td></tr>"
        for label, text, value, letter in ROWS
    )
    header = "".join(f"<th>{title}</th>" for title in ("method", "return", "a very long heading of a column " * 3))
    body = [
        '<h1>A report</h1><p class="lead">What came out.</p><p class="soft">Softly. <span class="badge">new</span></p>',
        '<nav class="contents"><a href="#one">One</a><a href="#two">Two</a></nav><h2 id="one">One</h2>',
        *(f'<p class="verdict {kind}">A verdict, <a href="#two">linked</a>.</p>' for kind in ("good", "bad", "unsure")),
        '<p class="missing">Two seeds are missing.</p>',
        *(figure("chart", key) for key in [*charts, "absent"]),
        '<h2 id="two">Two</h2>',
        *(figure("heat", key) for key in heats),
        f'<div class="scroll"><table class="sortable"><thead><tr>{header}</tr></thead>',
        f"<tbody>{rows}</tbody></table></div>",
        f'<pre class="command">dac train {html.escape(ODD)} {"--long-option " * 12}\n</pre>',
        '<details class="raw" open><summary>Versions</summary><p class="soft">jax</p></details>',
    ]
    path = folder / name
    data = {"charts": charts, "heats": heats}
    path.write_text(document(f"Report {ODD}", body, data, asset("report.css"), asset("report.js")), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find() is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is installed")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    charts = {
        "main": {"title": f"Return of {ODD}", **AXES, "series": CURVES, "reference": REFERENCE},
        "empty": {"title": "Nothing yet", **AXES, "series": [], "reference": []},
        "gaps": {"title": "Gaps only", **AXES, "series": [CURVES[0] | {"mean": [None] * 5}], "reference": []},
    }
    return write(tmp_path_factory.mktemp("report"), charts, {"maze": heat()})


@pytest.fixture(scope="module")
def tab(browser):
    return browser.page()


@pytest.fixture
def page(tab, path):
    """The report, opened from its file; whatever a test does with it, it neither complains nor asks for anything."""
    tab.size(1000, 800)
    tab.media(prefers_color_scheme="light")
    tab.move(0, 0)
    load(tab, path)
    yield tab
    assert tab.problems() == []
    assert set(tab.requests()) == {path.as_uri()}


def load(tab, path):
    tab.open(path)
    tab.until("document.documentElement.dataset.ready === 'yes'")
    tab.settle()


def texts(page, selector: str) -> list[str]:
    return page.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(node => node.textContent)")


def count(page, selector: str) -> int:
    return page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")


def scales(page):
    """Where a value lies in the first chart, in pixels of the window, told by the labels of its axes alone."""
    page.middle(".plot")
    labels = page.evaluate(
        "[...document.querySelectorAll('.plot')[0].querySelectorAll('svg text')].map(node => { const b = "
        "node.getBoundingClientRect(); return [node.textContent, node.getAttribute('class'), b.x + b.width / 2, "
        "b.y + b.height / 2] })"
    )
    ticks = [(float(text.replace(",", "")), kind, x, y) for text, kind, x, y in labels if re.fullmatch(r"[\d,]+", text)]
    x_slope, x_start = np.polyfit(*zip(*[(v, x) for v, kind, x, _ in ticks if kind == "middle"], strict=True), 1)
    y_slope, y_start = np.polyfit(*zip(*[(v, y) for v, kind, _, y in ticks if kind == "end"], strict=True), 1)
    return (lambda step: x_start + x_slope * step), (lambda value: y_start + y_slope * value)


def hover(page, step: float, value: float) -> None:
    x, y = scales(page)
    page.move(x(step), y(value))
    page.settle()


def tip(page) -> list[str] | None:
    """Lines of the tooltip, if there is one to be seen."""
    return page.evaluate(
        "(() => { const tip = document.querySelector('.tip'); if (!tip.checkVisibility()) return null;"
        "const cells = row => [...row.childNodes].map(node => node.textContent).filter(Boolean);"
        "return [...tip.children].map(row => cells(row).join(' | ')) })()"
    )


# The document, without a browser


def test_data_survive_their_element():
    data = {"name": ODD, "values": [1.5, math.nan, (math.inf, None)], "text": "</ScRiPt> \u2028"}
    text = document("t", ["<p>body</p>"], data, "s{}", "let x = 1")
    block = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert json.loads(block) == {"name": ODD, "values": [1.5, None, [None, None]], "text": data["text"]}
    assert text.lower().count("</script") == 2
    assert "<!--" not in text


def test_assets_do_not_end_their_elements_or_name_other_hosts():
    style, script = asset("report.css"), asset("report.js")
    assert "</style" not in style.lower()
    assert "</script" not in script.lower()
    assert re.findall(r"https?://[^\s\"']+", style + script) == ["http://www.w3.org/2000/svg"]  # a name, never fetched
    assert "url(" not in style
    assert "@import" not in style


# In the browser


def test_names_are_shown_as_they_are(page):
    assert page.evaluate("document.title") == f"Report {ODD}"
    assert texts(page, ".legend button") == ["DAC 0.5", ODD, "one point"]
    assert ODD in page.evaluate("document.querySelector('.plot > svg').getAttribute('aria-label')")
    assert texts(page, ".panels strong") == ["DAC", ODD]


def test_draws_each_curve_where_the_axes_say(page):
    assert count(page, ".plot .series > .mean") == 3
    assert page.evaluate("[...document.querySelectorAll('.series')].map(node => node.dataset.name)") == [
        curve["name"] for curve in CURVES
    ]
    dashes = page.evaluate(
        "[...document.querySelectorAll('.legend .mean')].map(n => n.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 3
    x, y = scales(page)
    left, top = page.evaluate(
        "(() => { const box = document.querySelector('.plot > svg').getBoundingClientRect(); return [box.x, box.y] })()"
    )
    for kind, values in (("mean", [100, 300, 700, 900.25]), ("band", [110, 320, 280, 90, 760, 990.75, 809.75, 640])):
        path = page.evaluate(f"document.querySelector('.series .{kind}').getAttribute('d')")
        pieces = [[tuple(map(float, p.split())) for p in run.strip("Z").split("L")] for run in path.split("M")[1:]]
        steps = [1000, 2000, 4000, 5000] if kind == "mean" else [1000, 2000, 2000, 1000, 4000, 5000, 5000, 4000]
        wanted = [(x(step) - left, y(value) - top) for step, value in zip(steps, values, strict=True)]
        assert len(pieces) == 2, "the gap at 3,000 steps splits the curve"
        np.testing.assert_allclose([point for run in pieces for point in run], wanted, atol=1.5)
    # The single point is a dot with its deviation, and the reference a line at its value
    dot = page.evaluate(
        "(d => [+d.getAttribute('cx'), +d.getAttribute('cy')])(document.querySelector('.series circle'))"
    )
    np.testing.assert_allclose(dot, (x(3000) - left, y(500) - top), atol=1.5)
    assert texts(page, ".reference text") == ["paper: DAC 0.5 915.90"]
    line = page.evaluate("+document.querySelector('.reference line').getAttribute('y1')")
    assert line == pytest.approx(y(915.9) - top, abs=1.5)


def test_says_when_there_is_nothing_to_draw(page):
    notices = page.evaluate(
        "[...document.querySelectorAll('figure.chart')].map(f => f.querySelector('.missing')?.textContent)"
    )
    assert [bool(text) for text in notices] == [False, True, True, True]  # main, empty, gaps, absent
    assert count(page, ".plot") == 1


def test_pointing_reads_the_values_and_shows_the_seeds(page):
    assert tip(page) is None
    assert count(page, ".seed") == 0
    hover(page, 4090, 690)  # nearest: 4,000 steps, and DAC
    assert tip(page) == [
        "4,000 environment steps",
        "DAC 0.5 | 700.0 ± 60.0",
        f"{ODD} | 200.0 ± 0.0",
        "one point | no value",
    ]
    assert texts(page, ".tip .active span") == ["DAC 0.5"]
    assert count(page, ".series.active .seed") == 3
    assert page.evaluate("[...document.querySelectorAll('.seed')].every(node => node.checkVisibility())")
    faded = "getComputedStyle(document.querySelector('.series:not(.active)')).opacity < 0.5"
    page.until(faded)  # after a short transition
    hover(page, 5000, 260)
    assert tip(page)[1:3] == ["DAC 0.5 | 900.3 ± 90.5", f"{ODD} | 250.0"]  # a deviation that is not known
    visible = "[...document.querySelectorAll('.seed')].filter(node => node.checkVisibility()).length"
    assert page.evaluate(visible) == 1
    hover(page, 3000, 400)
    assert tip(page)[1:] == ["DAC 0.5 | no value", f"{ODD} | 150.0 ± 0.0", "one point | 500.0 ± 40.0"]
    page.move(1, 1)
    page.settle()
    assert tip(page) is None
    assert page.evaluate(visible) == 0


def test_legend_hides_a_curve_and_its_reference(page):
    _, before = scales(page)
    page.click(".legend button", 0)
    assert page.evaluate("[...document.querySelectorAll('.series')].map(node => node.dataset.name)") == [
        ODD,
        "one point",
    ]
    pressed = "[...document.querySelectorAll('.legend button')].map(node => node.getAttribute('aria-pressed'))"
    assert page.evaluate(pressed) == ["false", "true", "true"]
    assert count(page, ".reference") == 0
    _, after = scales(page)
    assert after(0) - after(100) > before(0) - before(100), "what is left is drawn larger"
    hover(page, 4000, 200)
    assert tip(page) == ["4,000 environment steps", f"{ODD} | 200.0 ± 0.0", "one point | no value"]
    page.move(*page.middle(".legend button", 1))
    assert page.evaluate("document.querySelector('.series.active').dataset.name") == ODD, "a name shows its curve"
    page.click(".legend button", 1)
    page.click(".legend button", 2)
    assert count(page, ".series") == 0
    page.evaluate("document.querySelectorAll('.legend button')[0].focus()")
    page.key("Enter")
    assert page.evaluate(pressed) == ["true", "false", "false"]
    assert count(page, ".series") == 1


def test_arrow_keys_move_the_cursor_and_choose_a_curve(page):
    page.evaluate("document.querySelector('.plot').focus()")
    page.key("ArrowLeft")
    assert tip(page)[0] == "5,000 environment steps"
    page.key("ArrowLeft")
    page.key("ArrowDown")
    assert tip(page)[0] == "4,000 environment steps"
    assert texts(page, ".tip .active span") == [ODD]
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert tip(page)[0] == "5,000 environment steps", "the last step is the end"
    page.key("Escape")
    assert tip(page) is None


def test_charts_follow_the_width_of_the_window(page):
    fits = (
        "(p => +p.firstChild.getAttribute('viewBox').split(' ')[2] === p.clientWidth)(document.querySelector('.plot'))"
    )
    for width in (1000, 500, 360):
        page.size(width, 800)
        page.until(fits)
    assert page.evaluate("document.querySelector('.plot').clientWidth") < 360


def colour(count: int, seeds: int) -> np.ndarray:
    shade = 0.25 + 0.75 * count / seeds if count else 0.0
    return np.array(matplotlib.colormaps["magma"](shade)[:3]) * 255


def pixels(page, panel: int) -> np.ndarray:
    """The canvas as (x, y upwards, RGB)."""
    values = page.evaluate(  # from a copy: Chromium warns of canvases that are often read
        f"(() => {{ const canvas = document.querySelectorAll('canvas')[{panel}];"
        "const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});"
        "context.drawImage(canvas, 0, 0);"
        "return [...context.getImageData(0, 0, canvas.width, canvas.height).data] })()"
    )
    return np.array(values).reshape(HEIGHT, WIDTH, 4)[::-1, :, :3].transpose(1, 0, 2)


def test_slider_shows_where_each_has_been(page):
    def check(frame: int, label: str) -> None:
        assert texts(page, ".controls output") == [label]
        for panel, seeds in enumerate(SEEDS):
            counts = seeds_per_cell(panel, min(frame, 2 - panel))
            numbers = re.findall(r"[\d.,]+", texts(page, ".panels .soft")[panel])
            assert float(numbers[0]) == pytest.approx(counts.sum() / seeds, abs=0.05)
            assert int(numbers[1]) == (counts > 0).sum()
            assert numbers[2:] == (["20,000"] if frame > 2 - panel else [])  # where data end early, it says so
            wanted = np.array([[colour(n, seeds) for n in row] for row in counts])
            wanted[WALLS] = (138, 141, 145)
            np.testing.assert_allclose(pixels(page, panel), wanted, atol=5)

    check(2, "150,000 steps")
    page.evaluate("document.querySelector('.controls input').focus()")
    page.key("ArrowLeft")
    check(1, "20,000 steps")
    page.key("ArrowLeft")
    check(0, "10,000 steps")


def test_play_runs_to_the_end_and_can_be_paused(page):
    page.evaluate(
        "window.seen = []; new MutationObserver(() => seen.push(document.querySelector('output').textContent))"
        ".observe(document.querySelector('output'), {childList: true})"
    )
    page.click(".controls button")
    assert texts(page, ".controls button") == ["Pause"]
    page.until("document.querySelector('.controls button').textContent === 'Play'")
    assert page.evaluate("seen") == ["10,000 steps", "20,000 steps", "150,000 steps"]
    page.click(".controls button")
    page.click(".controls button")
    assert texts(page, ".controls button") == ["Play"]


def test_tables_sort_by_number_and_by_text_both_ways(page):
    def order(column: int, press) -> str:
        press(column)
        return "".join(text[-1] for text in texts(page, "table tbody tr td:last-child"))

    def press_enter(column: int) -> None:
        page.evaluate(f"document.querySelectorAll('button.sort')[{column}].focus()")
        page.key("Enter")

    def click(column: int) -> None:
        page.click("button.sort", column)

    directions = "[...document.querySelectorAll('th')].map(node => node.getAttribute('aria-sort'))"
    assert order(0, click) == "dbac"  # A3C, DAC 2, DAC 10, SAC
    assert page.evaluate(directions) == ["ascending", None, None]
    assert order(0, press_enter) == "cabd"
    assert page.evaluate(directions) == ["descending", None, None]
    assert order(1, press_enter) == "bdac"  # -200, 7, 1,000.5, and none at the end
    assert order(1, click) == "adbc"
    assert page.evaluate(directions) == [None, "descending", None]
    assert order(2, click) == "adbc"  # 9.5, 20, 100 by data-value; the one without has only its text
    assert order(2, click) == "cbda"


def test_commands_are_copied(page, browser):
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.call("Page.bringToFront")
    page.click(".copy")
    page.until("document.querySelector('.copy').textContent === 'copied'")
    assert page.evaluate("navigator.clipboard.readText()") == f"dac train {ODD} {'--long-option ' * 12}".strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_the_page_sideways(page, path, scheme):
    page.media(prefers_color_scheme=scheme)
    page.size(360, 740, phone=True)
    load(page, path)
    overflow = "[document.documentElement.scrollWidth, innerWidth]"
    assert page.evaluate(overflow) == [360, 360]
    page.evaluate("document.querySelector('.scroll table').style.minWidth = '500px'")
    assert page.evaluate("(s => s.scrollWidth > s.clientWidth)(document.querySelector('.scroll'))"), "the table does"
    assert page.evaluate(overflow) == [360, 360]
    hover(page, 4000, 700)
    assert tip(page) is not None
    assert page.evaluate(overflow) == [360, 360]
    box = page.evaluate("(b => [b.left, b.right])(document.querySelector('.tip').getBoundingClientRect())")
    assert box[0] >= 0
    assert box[1] <= 360


CONTRASTS = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const over = (colour, below) => {  // what is seen of a colour, which may be written in any way and be transparent
    canvas.fillStyle = `rgb(${below})`; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const paint = node => getComputedStyle(node).backgroundColor;
  const behind = node => node ? over(paint(node), behind(node.parentElement)) : [255, 255, 255];
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, style = getComputedStyle(node);
    const text = walker.currentNode.textContent, background = behind(node);
    if (!text.trim() || !node.checkVisibility() || node.closest("script")) continue;
    found.push([text, over(node.closest("svg") ? style.fill : style.color, background), background]);
  }
  return found;
})()"""


def luminance(rgb) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = np.array(rgb) / 255
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))


def test_all_text_stands_out_by_day_and_by_night(page):
    backgrounds = {}
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        page.click(".legend button", 1)
        page.evaluate("document.querySelector('.plot').focus()")
        page.key("ArrowLeft")  # the tooltip too; that the legend moves away from under the mouse does not end it
        page.settle()
        found = page.evaluate(CONTRASTS)
        shown = {text for text, *_ in found}
        assert {"A report", "A verdict, ", "new", "One", "copy", "paper: DAC 0.5 915.90", "900.3 ± 90.5"} <= shown
        for text, ink, paper in found:
            high, low = sorted((luminance(ink), luminance(paper)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text!r} in {scheme}: {ink} on {paper}"
        backgrounds[scheme] = next(paper for text, _, paper in found if text == "A report")
    assert luminance(backgrounds["light"]) > 0.9
    assert luminance(backgrounds["dark"]) < 0.05


def test_paper_shows_every_curve_and_no_controls(page):
    page.click(".legend button", 0)
    assert count(page, ".series") == 2
    page.evaluate(
        "addEventListener('beforeprint', () => { window.printed = document.querySelectorAll('.series').length })"
    )
    page.call("Page.printToPDF")
    assert page.evaluate("printed") == 3
    assert count(page, ".series") == 2, "as it was before"
    page.media("print", prefers_color_scheme="dark")
    for selector in (".copy", ".controls button", ".controls input", "nav.contents"):
        assert not page.evaluate(f"document.querySelector('{selector}').checkVisibility()"), selector
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_figure_that_fails_leaves_the_others_standing(tab, tmp_path):
    chart = {"title": "Good", **AXES, "series": CURVES, "reference": []}
    load(tab, write(tmp_path, {"bad": chart | {"series": [{}]}, "good": chart}, {"bad": heat() | {"walls": "AAAA"}}))
    assert len(tab.problems()) >= 2
    assert count(tab, ".plot") == 1
    notices = texts(tab, "figure .missing")
    assert len([text for text in notices if text.startswith("This figure could not be drawn")]) == 2


def test_a_band_of_its_own(tab, tmp_path):
    """A performance profile has no deviation but an interval, which need not lie evenly about its line."""
    profile = {"name": "DAC", "colour": BLUE, "x": [0, 1], "mean": [1, 0.5], "low": [1, 0.25], "high": [1, 0.625]}
    chart = {"title": "Profile", "x": "score", "y": "share", "series": [profile], "reference": [], "note": "A band."}
    tab.media(prefers_color_scheme="light")
    load(tab, write(tmp_path, {"profile": chart}, {}))
    assert tab.problems() == []
    assert texts(tab, ".chart .note")[0].startswith("A band.")
    tab.evaluate("document.querySelector('.plot').focus()")
    for _ in range(2):
        tab.key("ArrowRight")
    assert tip(tab)[1] == "DAC | 0.5000 [0.25, 0.63]"


@pytest.mark.parametrize("width", [1000, 360])
def test_the_published_report(tab, width):
    """What README links to opens as it should: every figure drawn, the slider moves, the tables sort."""
    path = Path(__file__).parents[2] / "results" / "report.html"
    tab.size(width, 800)
    tab.media(prefers_color_scheme="light")
    load(tab, path)
    assert tab.problems() == []
    # films and the pictures of their controls are in the page: nothing else is asked for
    assert {request for request in tab.requests() if not request.startswith("data:")} == {path.as_uri()}
    assert tab.evaluate("[...document.querySelectorAll('video')].every(film => film.scrollWidth <= innerWidth)")
    assert count(tab, "figure.chart .plot") == count(tab, "figure.chart") > 5
    assert count(tab, "figure.heat canvas") >= 6
    # it opens with the table: a link in every row leads to a section, and its pictures are to be seen
    top = "document.querySelector('table.overview')"
    assert tab.evaluate(f"{top}.getBoundingClientRect().top") < 200
    links = tab.evaluate(f"[...{top}.querySelectorAll('tbody a')].map(link => link.hash.slice(1))")
    sections = tab.evaluate("[...document.querySelectorAll('h2')].map(node => node.id)")
    assert list(dict.fromkeys(links)) == sections
    assert count(tab, "table.overview tbody tr") == len(sections) >= 8
    assert tab.evaluate(f"[...{top}.querySelectorAll('svg')].every(node => node.getBoundingClientRect().width > 60)")
    assert count(tab, "table.overview svg path") > 30
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = texts(tab, ".panels .soft")
    tab.evaluate("document.querySelector('.controls input').focus()")
    for _ in range(20):
        tab.key("ArrowLeft")
    assert texts(tab, ".panels .soft")[:6] != before[:6]
    column = "table.sortable:not(.runs) tbody tr td:nth-child(4)"
    first = "document.querySelector('table.sortable:not(.runs)')"
    cells = f"[...{first}.querySelectorAll('tbody tr td:nth-child(4)')].map(cell => +cell.dataset.value)"
    assert count(tab, column) >= 6
    tab.evaluate(f"{first}.querySelectorAll('th')[3].querySelector('button')?.click()")
    once = tab.evaluate(cells)
    tab.evaluate(f"{first}.querySelectorAll('th')[3].querySelector('button')?.click()")
    assert once == tab.evaluate(cells)[::-1]
    assert once in (sorted(once), sorted(once)[::-1])
