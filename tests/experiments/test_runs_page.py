"""The page of one's own runs: by task, from their directories alone, and anew while they go on."""

import base64
import json
import os
import re
import threading
import time
import zlib

import numpy as np
import pytest

import dac
from dac.cli import main
from dac.experiments.runs_page import CURVES, Reader, _read_points, find_methods, watch, write_runs
from dac.rundir.glance import glance
from dac.rundir.lock import Lock
from tests.chromium import NAMES, Browser, find
from tests.cli.test_status import write_run
from tests.experiments.test_report import data_of, raw

SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 60, "update_after": 20, "random_steps": 20, "eval_every": 20}


def charts_of(path):
    return data_of(path.read_text())["charts"]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """DAC and SAC on an environment that is not installed on this machine."""
    folder = tmp_path_factory.mktemp("own")
    dac.train("dac", "target", seeds=[0, 1], out=folder / "runs/dac", alpha=[0.5, 1.0], **SMALL)
    dac.train("sac", "target", seeds=[0, 1], out=folder / "runs/sac", **SMALL)
    for name in ("dac", "sac"):
        path = folder / f"runs/{name}/config.toml"
        path.write_text(re.sub(r'task = ".*"', 'task = "python:my_robot:make"', path.read_text()))
    return folder


def test_custom_environments_are_shown_and_laid_over_each_other(own, capsys):
    with pytest.raises(dac.UsageError, match="my_robot"):
        dac.load(own / "runs/dac")
    assert main(["report", str(own / "runs"), "-o", str(own / "report.html")]) == 0
    assert capsys.readouterr().out == f"2 runs: 2 finished.\n{own / 'report.html'}\n"
    charts = charts_of(own / "report.html")
    assert list(charts) == ["task-0-return"]
    series = charts["task-0-return"]["series"]
    assert [each["name"] for each in series] == ["dac, alpha 0.5", "dac, alpha 1", "sac"]
    returns = raw(own / "runs/dac")["return"]
    np.testing.assert_allclose(series[1]["mean"], returns[2:].mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(series[1]["seeds"]["1"], returns[3], rtol=1e-4)
    assert series[0]["x"] == [20, 40, 60]
    page = (own / "report.html").read_text()
    body = page[page.index("<body>") :].partition("<script")[0]
    assert "paper" not in body.replace("report.html", "")
    assert "Not run yet" not in body
    assert "dac train --config" in body  # how it was made


def test_where_members_have_been_is_drawn(tmp_path):
    """Of finished runs with a grid of two sides, frame by frame; the last frame holds all that was entered."""
    first = {"dac": np.array([[-1, 20, 60, -1, 7, -1], [-1, -1, 1, -1, -1, 1000]]), "sac": np.full((1, 6), 300)}
    walls = np.array([[True, False, False], [True, False, False]])
    known = {"grid": np.array([2, 3]), "walls": walls}
    left_out = {
        "goes on": ("rnd", False, known),
        "old": ("td3", True, {}),
        "line": ("ppo", True, {"grid": np.array([6])}),
    }
    written = {name: (name, True, known) for name in first} | left_out
    for name, (algorithm, finished, more) in written.items():
        entered = first.get(algorithm, first["sac"])
        run = write_run(tmp_path / name, members=len(entered), summary=finished)
        config = run / "config.toml"
        config.write_text(config.read_text().replace('"dac"', f'"{algorithm}"'))
        np.savez_compressed(run / "visits.npz", first_visit=entered, **more)
    write_runs([tmp_path], tmp_path / "report.html", "")
    (heat,) = data_of((tmp_path / "report.html").read_text())["heats"].values()
    assert (heat["width"], heat["height"]) == (2, 3)
    assert unpack(heat["walls"]) == walls.ravel().tolist()
    assert [(panel["name"], panel["max"]) for panel in heat["panels"]] == [("dac", 2), ("sac", 1)]
    for panel, entered in zip(heat["panels"], first.values(), strict=True):
        frames = np.array(unpack(panel["frames"])).reshape(len(heat["steps"]), 6).cumsum(axis=0)
        for step, frame in zip(heat["steps"], frames, strict=True):
            assert frame.tolist() == ((entered >= 0) & (entered <= step)).sum(axis=0).tolist()


def unpack(text):
    return list(zlib.decompress(base64.b64decode(text)))


def test_the_paper_is_shown_where_asked(own, tmp_path, capsys):
    assert main(["report", str(own / "runs"), "--paper", "-o", str(tmp_path / "report.html")]) == 0
    assert capsys.readouterr().out.startswith("2 own runs\n")
    page = (tmp_path / "report.html").read_text()
    assert page.index('id="others"') < page.index('id="absent"')
    assert [s["name"] for s in charts_of(tmp_path / "report.html")["task-0-return"]["series"]][-1] == "sac"


def test_members_that_differ_in_seeds_alone_share_a_curve(tmp_path):
    """Also where one run is not as far, or was evaluated at other steps; a seed trained twice is two curves."""
    for name, seeds, evaluations in [("a", [0, 1], 4), ("b", [2, 3], 2), ("again", [0, 1], 3)]:
        write_run(tmp_path / name, evaluations=evaluations)
        config = (tmp_path / name / "config.toml").read_text().replace("seeds = [0, 1]", f"seeds = {seeds}")
        (tmp_path / name / "config.toml").write_text(config)
    write_run(tmp_path / "other", task="target")
    write_runs([tmp_path], tmp_path / "report.html", "")
    charts = charts_of(tmp_path / "report.html")
    assert sorted(chart["title"].partition(":")[0] for chart in charts.values()) == ["maze", "target"]
    (series,) = [chart["series"] for chart in charts.values() if chart["title"].startswith("maze")]
    first, second = series
    assert list(first["seeds"]) == ["0", "1", "2", "3"]
    assert first["x"] == [100, 200, 300, 400]
    assert first["seeds"]["2"] == [100.5, 200.5, None, None]
    assert first["mean"] == [101.0, 201.0, 301.0, 401.0]
    assert list(second["seeds"]) == ["0", "1"]
    assert "again" in second["name"]
    assert first["label"].endswith("(4 seeds)")


def test_lists_that_go_together_are_methods_too(tmp_path):
    """`combine=zip`: two seeds at alpha 0.5 beside three at 1, in one run; a grid's curve takes its seeds up."""
    write_run(tmp_path / "zip", members=5)
    write_run(tmp_path / "grid", members=7, evaluations=2)
    path = tmp_path / "zip/config.toml"
    text = path.read_text().replace("[0, 1, 2, 3, 4]", "[0, 1, 0, 1, 2]")
    text = text.replace("alpha = 0.5", "alpha = [0.5, 0.5, 1.0, 1.0, 1.0]")
    path.write_text(text.replace("[hyper]", 'combine = "zip"\n[hyper]'))
    path = tmp_path / "grid/config.toml"
    path.write_text(path.read_text().replace("[0, 1, 2, 3, 4, 5, 6]", "[2, 3, 4, 5, 6, 7, 8]"))
    assert glance(tmp_path / "zip").members == 5
    write_runs([tmp_path], tmp_path / "report.html", "")
    (chart,) = charts_of(tmp_path / "report.html").values()
    found = {series["name"]: series["seeds"] for series in chart["series"]}
    assert list(found) == ["dac, alpha 0.5", "dac, alpha 1"]
    assert sorted(found["dac, alpha 0.5"]) == [str(seed) for seed in range(9)]
    assert {seed: values[0] for seed, values in found["dac, alpha 1"].items()} == {"0": 102.5, "1": 103.5, "2": 104.5}


def test_curves_are_thinned_on_a_grid_that_stays(tmp_path):
    """A run that grows has the points it had, or every second of them, and its numbers are those of its rows."""
    run = write_run(tmp_path / "run", evaluations=1003)
    points = _read_points(run / "metrics.csv", 2)
    assert list(points.steps[:3]) == [800, 1600, 2400]
    assert 100 <= len(points.steps) <= 200
    np.testing.assert_array_equal(points.values["return"][:, 1], points.steps + 1.5)


def test_what_has_not_changed_is_not_read_again(tmp_path, monkeypatch):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    reader, read = Reader(), []
    monkeypatch.setattr(
        "dac.experiments.runs_page._read_points",
        lambda path, members: read.append(path.parent.name) or _read_points(path, members),
    )
    for _ in range(2):
        write_runs([tmp_path], tmp_path / "report.html", "", reader)
    assert read == ["a", "b"]
    with open(tmp_path / "b/metrics.csv", "a") as file:
        file.write("0,0,400,0,4.0,0.0,1.0,0\n1,1,400,0,4.0,0.0,1.0,0\n0,0,500,")
    write_runs([tmp_path], tmp_path / "report.html", "", reader)
    assert read == ["a", "b", "b"]
    runs = reader.look([tmp_path])
    ((method,),) = [find_methods(runs[1:], reader)["maze"]]
    assert list(reader.points(method.parts[0].run).steps) == [100, 200, 300, 400]


def test_too_many_curves_are_cut_and_said(tmp_path):
    for number in range(CURVES + 3):
        run = write_run(tmp_path / f"run-{number:02d}", members=1, evaluations=number + 1)
        config = (run / "config.toml").read_text().replace("alpha = 0.5", f"alpha = 0.{number + 1:02d}")
        (run / "config.toml").write_text(config)
    write_runs([tmp_path], tmp_path / "report.html", "")
    (chart,) = charts_of(tmp_path / "report.html").values()
    names = [series["name"] for series in chart["series"]]
    assert len(names) == CURVES
    assert names[0] == f"dac, alpha 0.{CURVES + 3}"  # the longest is the highest here
    assert f"The {CURVES} with the highest end of {CURVES + 3} are drawn." in (tmp_path / "report.html").read_text()


def test_names_are_shown_as_they_are(tmp_path):
    write_run(tmp_path / "<b>run", task="python:<script>:make", frozen=(1,))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.toml").write_text("<i>")
    write_runs([tmp_path], tmp_path / "report.html", "dac report <x>")
    page = (tmp_path / "report.html").read_text()
    assert "<b>run" not in page
    assert "&lt;b&gt;run: frozen, member 1" in page
    assert '<span class="badge broken">1 frozen</span>' in page
    assert "python:<script>" not in page
    assert "<i>" not in page


def test_live_ends_when_the_last_run_does(tmp_path, capsys):
    """The page loads itself anew until then, shows what a run says of itself, and stays as it is at the end."""
    run, page = write_run(tmp_path / "runs/one"), tmp_path / "report.html"
    (run / "progress.json").write_text(
        json.dumps(
            {
                "step": 350,
                "agent_steps_per_second": 50.0,
                "seconds_left": 120.0,
                "time": time.time(),
                "warnings": ["Q explodes"],
            }
        )
    )
    seen = []

    def train():
        with Lock(run):
            deadline = time.monotonic() + 30
            while len(seen) < 2 and time.monotonic() < deadline:
                text = page.read_text() if page.exists() else ""
                if text and text not in seen:
                    seen.append(text)
                    with open(run / "metrics.csv", "a") as file:
                        step = 300 + 100 * len(seen)
                        file.write(f"0,0,{step},0,4.0,0.0,1.0,0\n1,1,{step},0,4.0,0.0,1.0,0\n")
                time.sleep(0.02)

    with Lock(run):
        assert Reader().look([tmp_path / "runs"])[0].state == "running"
    thread = threading.Thread(target=train)
    thread.start()
    while not (run / "lock").exists():
        time.sleep(0.01)
    command = ["report", str(tmp_path / "runs"), "--live", "--every", "0.5", "-o", str(page)]
    assert main(command) == 0
    thread.join()
    assert len(seen) == 2
    assert f"process {os.getpid()} on" in seen[0]
    assert "1 run: 1 running; about 2 min left." in seen[0]
    assert "<li>one: Q explodes</li>" in seen[0]
    assert 'http-equiv="refresh" content="1"' in seen[0]
    assert 'id="live" data-every="0.5"' in seen[0]
    last = page.read_text()
    assert "location.reload" in seen[1]
    assert "location.reload" not in last
    assert 'id="live"' not in last
    assert len(charts_of(page)["task-0-return"]["series"][0]["x"]) == 5
    assert capsys.readouterr().out == f"{page}\n1 run: 1 stopped.\n"


def test_ctrl_c_leaves_a_page_that_stays(tmp_path, monkeypatch):
    run, page = write_run(tmp_path / "runs/one"), tmp_path / "report.html"

    def interrupt(seconds):
        assert "location.reload" in page.read_text()
        raise KeyboardInterrupt

    monkeypatch.setattr("dac.experiments.runs_page.time.sleep", interrupt)
    with Lock(run):
        (seen,) = watch([tmp_path / "runs"], page, "", 5.0)
    assert seen.state == "running"
    assert "location.reload" not in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("absent --live", "no such folder: absent"),
        (". --every 5", "--every goes with --live"),
        (". --live --every 0", "argument --every: takes seconds from 0.5 to 86400, not '0'"),
        (". --live --paper", "argument --paper: not allowed with argument --live"),
    ],
)
def test_bad_input_is_answered_in_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments.split()]) == 2
    assert capsys.readouterr().err == f"dac: {message}\n"


def test_a_reloaded_page_is_where_the_reader_was(tmp_path, tmp_path_factory):
    """Scrolled as far, with the same curve hidden and the same column sorted; the data are new."""
    if find() is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is installed")
    for number in range(30):
        write_run(tmp_path / f"runs/run-{number:02d}", task=f"task{number % 3}", evaluations=2 + number % 5)
    page = tmp_path / "report.html"
    write_runs([tmp_path / "runs"], page, "", live=1.0)
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        tab = browser.page()
        tab.size(900, 700)
        tab.open(page)
        tab.until("document.documentElement.dataset.ready === 'yes'")
        tab.evaluate("window.old = true; document.querySelectorAll('.legend button')[1].click()")
        tab.evaluate("document.querySelectorAll('table.runs th')[2].querySelector('button').click()")
        tab.evaluate("document.querySelector('.tall').scrollTop = 120; scrollTo(0, 640)")
        write_run(tmp_path / "runs/run-99", task="task9")
        write_runs([tmp_path / "runs"], page, "", live=600.0)
        tab.until("!window.old && document.documentElement?.dataset.ready === 'yes' && scrollY > 0")
        tab.settle()
        assert abs(tab.evaluate("scrollY") - 640) < 2
        assert tab.evaluate("document.querySelector('.tall').scrollTop") == 120
        assert tab.evaluate("document.querySelectorAll('table.runs th')[2].getAttribute('aria-sort')") == "ascending"
        pressed = "document.querySelectorAll('.legend button')[1].getAttribute('aria-pressed')"
        assert tab.evaluate(pressed) == "false"
        assert "31 runs" in tab.evaluate("document.querySelector('.lead').textContent")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert tab.problems() == []
