"""What the report says, recomputed from the raw files it was built from."""

import base64
import csv
import dataclasses
import io
import json
import re
import shlex
import shutil
import signal
import zlib
from html import escape, unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import dac
from dac.api import Run
from dac.cli import main
from dac.cli.plan_bar import PlanBar
from dac.cli.reproduce import reproduce
from dac.core.lines import COLOURS, moments
from dac.core.types import UsageError
from dac.experiments import parts, report
from dac.experiments.collect import Curves, Shelf
from dac.experiments.figures import Line, draw_curves
from dac.experiments.heat import pack
from dac.experiments.overview import thumbnail
from dac.experiments.page import table
from dac.experiments.paper import EXPERIMENTS, Experiment, Method, published
from dac.experiments.plan import Job, cells_of, find_runs
from dac.experiments.report import _heat, result_table, verdicts, write_artefacts, write_report
from dac.rundir.writing import Recorder
from dac.training.signals import Interrupted
from dac.training.watchers import Message, Position, Start
from tests.common import interrupt_at, shrink_maze

ROOT = Path(__file__).parents[2]
SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 60, "update_after": 20, "random_steps": 20, "eval_every": 20}
METHODS = (Method("DAC 0.5", "dac", SMALL | {"alpha": 0.5}), Method("SAC", "dac", SMALL | {"alpha": 1.0}))
TARGET = Experiment("small", "Small", "nothing", (("target", METHODS),), seeds=3)


def data_of(page):
    """The numbers the page draws."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def raw(directory):
    """metrics.csv without the package: (column -> (member, time))."""
    with open(directory / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    members = sorted({int(row["member"]) for row in rows})
    names = rows[0]
    return {n: np.array([[float(r[n]) for r in rows if int(r["member"]) == m] for m in members]) for n in names}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    reports = reproduce([TARGET], folder, quiet=True, command="dac reproduce small")
    assert reports == [folder / "small" / "report.html"]
    return folder


def test_every_artefact_is_there(store):
    names = {path.name for path in (store / "small").iterdir()}
    assert names == {"report.html", "return.png", "return.pdf", "table.csv", "table.md"}
    assert (store / "small" / "return.pdf").read_bytes().startswith(b"%PDF")


def test_drawn_again_every_file_is_the_same(store):
    """A figure in a repository changes when its data do."""
    before = {path: path.read_bytes() for path in (store / "small").iterdir()}
    reproduce([TARGET], store, quiet=True, command="dac reproduce small", draw=True)
    assert {path: path.read_bytes() for path in (store / "small").iterdir()} == before


def test_the_numbers_of_the_table_are_those_of_the_raw_data(store):
    (run,) = (Run(path.parent) for path in store.rglob("config.toml"))
    metrics = raw(run.directory)
    with open(store / "small" / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["DAC 0.5", "SAC"]
    scores = []
    for row, alpha in zip(rows, (0.5, 1.0), strict=True):
        returns = metrics["return"][metrics["alpha"][:, 0] == alpha]
        best = returns.mean(axis=0).argmax()
        scores.append(returns[:, best])
        expected = f"{returns[:, best].mean():.2f} ± {returns[:, best].std():.2f}"
        assert row["max average return"] == expected
        last = returns[:, -1]  # a tenth of three evaluations is one
        assert row["last tenth"] == f"{last.mean():.2f} ± {last.std():.2f}"
        assert row["seeds"] == "3"
    wins = np.mean([(x > y) + (x == y) / 2 for x in scores[0] for y in scores[1]])
    assert rows[1]["P(first is better)"].startswith(f"{wins:.2f} [")


def test_the_curves_of_the_page_are_those_of_the_raw_data(store):
    (run,) = (Run(path.parent) for path in store.rglob("config.toml"))
    metrics = raw(run.directory)
    chart = data_of((store / "small" / "report.html").read_text())["charts"]["small-target-return"]
    assert [series["name"] for series in chart["series"]] == ["DAC 0.5", "SAC"]
    for series, alpha in zip(chart["series"], (0.5, 1.0), strict=True):
        returns = metrics["return"][metrics["alpha"][:, 0] == alpha]
        assert series["x"] == [20, 40, 60]
        np.testing.assert_allclose(series["mean"], returns.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(series["std"], returns.std(axis=0), rtol=1e-4)
        assert list(series["seeds"]) == ["0", "1", "2"]
        np.testing.assert_allclose(list(series["seeds"].values()), returns, rtol=1e-4)


def test_a_second_time_nothing_is_trained(store, monkeypatch):
    monkeypatch.setattr("dac.cluster.engines.here.run", lambda *a, **k: pytest.fail("trained again"))
    reproduce([TARGET], store, quiet=True)


def test_ctrl_c_at_the_end_of_a_population_begins_no_other(tmp_path, monkeypatch):
    real = Recorder.finish

    def late(*arguments):
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    two = Experiment("two", "Two", "nothing", (("target", (METHODS[0], Method("D", "sac-div", SMALL))),), seeds=2)
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "finish", late)
        with pytest.raises(Interrupted, match="stopped in population 1 of 2; continue with: again") as caught:
            reproduce([two], tmp_path, quiet=True, command="again")
    assert caught.value.exit_code == 130
    assert [Run(path.parent).finished for path in tmp_path.rglob("config.toml")] == [True]


def test_names_with_brackets_are_shown_as_they_are(monkeypatch, tmp_path):
    """Rich would read [/b] as markup that ends, and fail."""
    screen = io.StringIO()
    job = Job(cells_of(TARGET)[0].config, tmp_path / "a[/b]", ("DAC",))
    bar = PlanBar([job], [1.0], quiet=False)
    bar._console = Console(file=screen, force_terminal=True, width=300)
    with bar:
        part = bar.part(0)
        part.on_start(Start(job.config, job.directory, job.config.members()))
        part.on_message(Message("in [red]"))
        part.on_progress(Position(60, None, {}))
        part.on_end(None)
    assert "a[/b]" in screen.getvalue()
    assert "in [red]" in screen.getvalue()


def test_seeds_from_several_runs_make_one_curve(tmp_path):
    """Two runs with different evaluation grids: the steps both have. Seed 7 was not asked for."""
    settings = dict(METHODS[0].settings)
    dac.train("dac", "target", seeds=[0, 2], out=tmp_path / "a", **settings)
    dac.train("dac", "target", seeds=[1, 7], out=tmp_path / "b", **settings | {"eval_every": 10})
    runs, _ = find_runs([tmp_path])
    found = Shelf(runs).gather(cells_of(TARGET)[:1])[0]
    assert found.seeds == (0, 1, 2)
    assert found.steps.tolist() == [20, 40, 60]
    a, b = raw(tmp_path / "a")["return"], raw(tmp_path / "b")["return"]
    np.testing.assert_array_equal(found.values["return"], np.stack([a[0], b[0, 1::2], a[1]], axis=1))
    assert found.missing() is None


def test_more_environments_are_the_same_line_and_are_named(tmp_path):
    """What was run with two environments stands for one, unless that was run as well."""
    settings = dict(METHODS[0].settings)
    dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "two", envs=2, **settings)
    runs, _ = find_runs([tmp_path])
    cell = cells_of(TARGET)[0]
    assert Shelf(runs).gather([cell])[0].seeds == (0, 1)
    page = write_artefacts(TARGET, cells_of(TARGET), runs, tmp_path / "out", "").read_text()
    assert "2 environments per member" in page
    dac.train("dac", "target", seeds=[0, 2], out=tmp_path / "one", **settings)
    runs, _ = find_runs([tmp_path])
    found = Shelf(runs).gather([cell])[0]
    one, two = raw(tmp_path / "one")["return"], raw(tmp_path / "two")["return"]
    np.testing.assert_array_equal(found.values["return"].T, [one[0], two[1], one[1]])
    found = Shelf(runs).gather(cells_of(TARGET, envs=2)[:1])[0]
    np.testing.assert_array_equal(found.values["return"].T, [two[0], two[1], one[1]])


@pytest.mark.slow
def test_methods_are_compared_with_as_many_environments(tmp_path):
    """The first was run with one and with two environments, the second with two: two for both, and the page says so."""
    for index, (name, envs) in enumerate((("one", 1), ("two", 2), ("two", 2))):
        method = METHODS[index // 2]
        dac.train("dac", "target", seeds=3, out=tmp_path / f"{name}{index}", envs=envs, **method.settings)
    runs, _ = find_runs([tmp_path])
    experiment = dataclasses.replace(TARGET, seeds=4)
    ours, theirs = Shelf(runs).gather(cells_of(experiment))
    assert (ours.envs, theirs.envs) == ((2,), (2,))
    page = write_artefacts(experiment, cells_of(experiment), runs, tmp_path / "out", "").read_text()
    assert "target: DAC 0.5, SAC with 2 environments per member, not 1" in page
    (alone,) = Shelf(runs).gather(cells_of(experiment)[:1])  # on its own: as it was asked for
    assert alone.envs == (1,)
    with_one = [run for run in runs if run.directory.name != "two1"]
    page = write_artefacts(experiment, cells_of(experiment), with_one, tmp_path / "out", "").read_text()
    assert "target: SAC with 2 environments per member, not 1" in page


@pytest.mark.slow
def test_a_method_that_asks_for_another_number_of_environments_has_no_say(tmp_path):
    """Nor has what was hardly begun: a finished run with any number is better than that."""
    wide = Method("wide", "dac", SMALL | {"alpha": 1.0, "envs": 2})
    experiment = dataclasses.replace(TARGET, panels=(("target", (METHODS[0], wide)),), seeds=4)
    for name, method, envs in (("a", METHODS[0], 1), ("b", METHODS[0], 2), ("c", wide, 2), ("d", wide, 1)):
        dac.train("dac", "target", seeds=range(4), out=tmp_path / name, **dict(method.settings) | {"envs": envs})
    for name in ("b", "d"):  # one evaluation each
        path = tmp_path / name / "metrics.csv"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    ours, theirs = Shelf(find_runs([tmp_path])[0]).gather(cells_of(experiment))
    assert [run.directory.name for run in (*ours.runs, *theirs.runs)] == ["a", "c"]
    shutil.rmtree(tmp_path / "c")
    ours, theirs = Shelf(find_runs([tmp_path])[0]).gather(cells_of(experiment))
    assert theirs.so_far() is not None
    assert report._other_envs("target", [ours, theirs]) == "target: wide with 1 environment per member, not 2"


@pytest.mark.slow
def test_of_two_equal_runs_the_one_with_more_evaluations_counts(tmp_path):
    """Its maximum is over as many as were asked for. That another one is longer is of no use."""
    for name, every, steps in (("a", 20, 60), ("b", 10, 60), ("c", 30, 60), ("d", 30, 120)):
        settings = dict(METHODS[0].settings) | {"eval_every": every, "steps": steps}
        dac.train("dac", "target", seeds=[0, 1], out=tmp_path / name, **settings)
    (found,) = Shelf(find_runs([tmp_path])[0]).gather(cells_of(TARGET)[:1])
    assert [run.directory.name for run in found.runs] == ["b"]


def test_the_one_that_is_evaluated_more_often_has_no_more_chances():
    """Of five evaluations of the first the two count that are nearest to those of the second: 1 at 40, 2 at 80."""
    often = curves_of([[9] * 4, [1] * 4, [9] * 4, [2] * 4, [9] * 4])
    rarely = dataclasses.replace(curves_of([[3] * 4, [4] * 4], "SAC"), steps=np.array([45, 85]))
    ((kind, text),) = verdicts([often, rarely], "return")
    assert (kind, text.partition(":")[0]) == ("bad", "SAC beats DAC 0.5")
    assert often.near(rarely.steps).steps.tolist() == [40, 80]
    # uneven: nearest to both 45 and 85 is 80, so one evaluation of each is left; what is not finite is none
    early = dataclasses.replace(often, steps=np.array([1, 2, 3, 80, 85]))
    early.values["return"][4] = np.nan
    ours, theirs = report._scores_of_both(early, rarely, "return")
    assert (ours.tolist(), theirs.tolist()) == ([2] * 4, [4] * 4)
    assert report._scores_of_both(early.until(2), rarely, "return") is None


def test_what_is_half_done_is_shown_and_named(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 60)
        with pytest.raises(KeyboardInterrupt):
            dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "runs" / "a", **METHODS[0].settings)
    runs, _ = find_runs([tmp_path])
    path = write_artefacts(TARGET, cells_of(TARGET), runs, tmp_path / "out", "")
    page = path.read_text()
    # the evaluation at 40 of 60 steps is the last but one
    assert "DAC 0.5 on target: 2 of 3 seeds" in page
    assert "SAC on target: nothing yet" in page
    assert "not finished" in page
    (series,) = data_of(page)["charts"]["small-target-return"]["series"]
    assert series["x"] == [20, 40]


def test_an_empty_directory_gives_a_page_that_says_so(tmp_path, capsys):
    out = tmp_path / "report.html"
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty"), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"no runs below {tmp_path / 'empty'}\n{out}\n"
    assert f"No runs below {tmp_path / 'empty'}." in out.read_text()
    assert main(["report", str(tmp_path / "empty"), "--paper", "-o", str(out)]) == 0
    assert "no runs found" in capsys.readouterr().out
    page = out.read_text()
    assert "Nothing here of: " + ", ".join(EXPERIMENTS) in page
    assert main(["report", str(tmp_path / "absent"), "-o", str(out)]) == 2
    assert capsys.readouterr().err == f"dac: no such folder: {tmp_path / 'absent'}\n"


def test_what_cannot_be_written_is_said_in_one_line(store, tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "small" / "return.png").mkdir(parents=True)
    assert main(["report", str(store), "-o", str(file / "report.html")]) == 2
    assert capsys.readouterr().err.startswith(f"dac: cannot create {file}: ")
    with pytest.raises(UsageError, match=f"cannot create {file / 'small'}: "):
        reproduce([TARGET], file, [store], quiet=True)
    with pytest.raises(UsageError, match=r"cannot write .*return.png: Is a directory"):
        reproduce([TARGET], tmp_path, [store], quiet=True)


def test_damaged_runs_are_named_not_fatal(tmp_path, capsys):
    dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "a", **METHODS[0].settings)
    (tmp_path / "a" / "metrics.csv").write_text("member,step\n0,x\n1,x\n")
    dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "c", **METHODS[0].settings)
    (tmp_path / "c" / "metrics.csv").write_text("member,step\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.toml").write_text("algorithm = <b>")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("metrics.csv is damaged: its first line does not name the columns") == 2
    assert "config.toml cannot be read: " in page
    assert capsys.readouterr().out.startswith("3 runs: 3 broken.\n")


def test_runs_outside_the_paper_are_shown(tmp_path):
    dac.train("dac", "target", seeds=[4], out=tmp_path / "mine", **SMALL | {"alpha": [0.3, 0.7]})
    lines = write_report([tmp_path], tmp_path / "report.html", "dac report")
    assert lines == ["1 own run"]
    chart = data_of((tmp_path / "report.html").read_text())["charts"]["task-0-return"]
    assert [series["name"] for series in chart["series"]] == ["dac, alpha 0.3", "dac, alpha 0.7"]
    returns = raw(tmp_path / "mine")["return"]
    np.testing.assert_allclose(chart["series"][1]["mean"], returns[1], rtol=1e-4)


def rows_of_overview(page):
    """The cells of the table at the top of a page, as text, and what each row links to."""
    text = re.search(r'<table class="overview">.*?<tbody>(.*?)</tbody>', page, re.S)[1]
    rows = [re.findall(r"<td>(.*?)</td>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    links = [sorted(set(re.findall(r'href="#([^"]*)"', "".join(row)))) for row in rows]
    return [[unescape(re.sub("<[^>]*>", "", cell)) for cell in row[:3]] for row in rows], links


def test_the_page_opens_with_a_table_and_own_runs_come_first(store, tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "small", TARGET)
    dac.train("dac", "target", seeds=[4], out=tmp_path / "mine", **SMALL | {"alpha": [0.3, 0.7]})
    lines = write_report([store, tmp_path], tmp_path / "report.html", "dac report")
    assert lines[0] == "1 own run"
    assert lines[1].startswith("small: complete; too few seeds to tell DAC 0.5 and SAC apart: probability of ")
    page = (tmp_path / "report.html").read_text()
    body = page.partition("<body>")[2]
    assert body.index('<table class="overview">') < body.index("<h2") < body.index('id="small"')
    assert body.index('id="others"') < body.index('id="small"') < body.index('id="absent"')
    assert "<br>" not in body
    (own, small, absent), links = rows_of_overview(page)
    assert own == ["Own runs", "1 run", "dac on target"]
    probability = re.search(r"improvement (\S+ \[\S+ \S+\])", lines[1])[1]
    assert small == ["Small", "complete", f"too few seeds to tell DAC 0.5 and SAC apart: P {probability}"]
    assert absent == ["15 more experiments", "not run", ", ".join(n for n in EXPERIMENTS if n != "small")]
    assert links == [["others"], ["small"], ["absent"]]
    assert page.count("<svg") == 2  # a picture of the own run, one of the experiment
    assert 'class="badge partial"' not in body


def test_what_is_not_complete_is_marked_at_the_top(tmp_path):
    dac.train("dac", "target", seeds=range(2), out=tmp_path / "a", **METHODS[0].settings)
    runs, _ = find_runs([tmp_path])
    page = write_artefacts(TARGET, cells_of(TARGET), runs, tmp_path / "out", "").read_text()
    assert rows_of_overview(page)[0] == [["Small", "0 of 2 complete", ""]]
    assert '<span class="badge partial">' in page
    page = write_artefacts(TARGET, cells_of(TARGET), [], tmp_path / "out", "").read_text()
    assert '<span class="badge missing">' in page


def test_the_small_picture_is_of_the_means():
    steps = np.arange(100) * 10.0
    values = np.stack([steps, steps + 20, np.full(100, np.nan)], axis=1)
    values[50:] = np.nan  # it ends early
    drawn = thumbnail([Line("a", 0, steps, values), Line("b", 1, steps, -values)])
    paths = re.findall(r'--c:(#\w+)" d="M([^"]*)"', drawn)
    assert [colour for colour, _ in paths] == list(COLOURS[:2])
    for sign, (_, path) in zip((1, -1), paths, strict=True):
        points = np.array([list(map(float, point.split())) for point in path.split("L")])
        assert len(points) == 40
        np.testing.assert_allclose(points[[0, -1], 0], [0, 72], atol=0.1)  # up to the last step that has a value
        heights = 42 - (sign * (points[:, 0] / 72 * 490 + 10) + 500) / 1000 * 40
        np.testing.assert_allclose(points[:, 1], heights, atol=0.2)
    assert thumbnail([Line("a", 0, steps[:1], np.full((1, 2), np.nan))]).count("<path") == 1


@pytest.mark.slow
def test_films_are_shown_once_and_long_ones_are_linked_from_the_page(tmp_path, monkeypatch):
    runs = tmp_path / "my runs"
    dac.train("sac", "target", out=runs / "short", **SMALL)
    shutil.copytree(runs / "short", runs / "long")
    for name, film in {"short": b"short film", "long": b"a film of many hours"}.items():
        (runs / name / "video.mp4").write_bytes(film)
    monkeypatch.setattr(parts, "VIDEO_LIMIT", 15)
    path = tmp_path / "pages" / "report.html"
    write_report([runs], path, "")
    page = path.read_text()
    assert page.count(base64.b64encode(b"short film").decode()) == 1
    assert page.count("<video") == 1
    (link,) = re.findall(r'href="([^"#]*mp4)"', page)
    assert link == "../my%20runs/long/video.mp4"  # holds as long as both are moved together
    # what they were made with is there as for the paper's experiments
    assert escape(f"dac train --config '{runs / 'long'}/config.toml'") in page
    assert f"dac {dac.__version__}, jax" in page


def curves_of(returns, name="DAC 0.5", **more):
    """Curves as they would be read from a run with these returns (time, seed)."""
    values = {"return": np.array(returns, float)} | {n: np.array(v, float) for n, v in more.items()}
    cell = next(cell for cell in cells_of(TARGET) if cell.method.name == name)
    seeds, steps = tuple(range(values["return"].shape[1])), np.arange(1, len(returns) + 1) * 20
    return Curves(cell, seeds, steps, values, None, {}, ())


def test_two_seeds_beat_nobody():
    """Four seeds each lie apart by chance in 2 of 70 orders, three in 2 of 20."""
    for seeds, kind, words in ((2, "unsure", "too few seeds"), (3, "unsure", "too few seeds"), (4, "good", "beats")):
        pair = [curves_of([range(5, 5 + seeds)]), curves_of([range(seeds)], "SAC")]
        ((shown, text),) = verdicts(pair, "return")
        assert shown == kind
        assert words in text
        assert "probability of improvement 1.00 [1.00, 1.00]" in text


def test_a_verdict_on_what_is_not_complete_says_so():
    whole, part = curves_of([[5, 6, 7]] * 3), curves_of([[1, 2, 3]], "SAC")
    ((_, text),) = verdicts([whole, part], "return")
    assert text.endswith("[1.00, 1.00]; SAC so far: 20 of 60 steps")
    ((_, text),) = verdicts([whole, curves_of([[1, 2]] * 3, "SAC")], "return")
    assert text.endswith("[1.00, 1.00]; SAC so far: 2 of 3 seeds")
    # what the other has not had the time for does not count
    ((_, text),) = verdicts([curves_of([[1, 1, 1], [2, 2, 2], [9, 9, 9]]), curves_of([[5, 5, 5]], "SAC")], "return")
    assert "improvement 0.00 [0.00, 0.00]; SAC so far: 20 of 60 steps" in text
    # nothing to compare yet: the first evaluation of one is before that of the other
    early = dataclasses.replace(part, steps=np.array([10]))
    assert verdicts([whole, early], "return") == []
    assert [row[-1] for row in result_table(TARGET, [whole, early])[1]] == ["-", "-"]


def test_different_numbers_of_seeds_are_named(tmp_path, monkeypatch):
    """In the legend of the figure, in that of the page's chart and in the table; never where all have as many."""
    few, many = curves_of([[1, 2], [2, 3]], "SAC"), curves_of([[1, 2, 3], [2, 3, 4]])
    assert report._labels([many, few]) == {"DAC 0.5": "DAC 0.5 (3 seeds)", "SAC": "SAC (2 seeds)"}
    assert report._labels([many, many]) == {"DAC 0.5": "DAC 0.5"}
    assert report._labels([many, few, curves_of([[1], [2]], "SAC")])["SAC"] == "SAC (1 to 2 seeds)"
    chart = report._chart(TARGET, "target", [many, few], "return")
    assert [series["label"] for series in chart["series"]] == ["DAC 0.5 (3 seeds)", "SAC (2 seeds)"]
    assert [series["name"] for series in chart["series"]] == ["DAC 0.5", "SAC"]
    assert [row[2] for row in result_table(TARGET, [many, few])[1]] == ["3", "2"]
    drawn = []
    monkeypatch.setattr(report, "save", lambda figure, path: drawn.append((path.name, figure.legends[0])))
    report._draw(TARGET, [many, few], tmp_path)
    ((name, legend),) = drawn
    assert name == "return.png"
    assert [text.get_text() for text in legend.get_texts()] == ["DAC 0.5 (3 seeds)", "SAC (2 seeds)"]


def test_returns_that_are_not_finite_are_left_out():
    found = curves_of([[1, 2, np.nan], [np.inf, 4, np.nan], [np.nan] * 3])
    assert (found.best().mean, found.best().index) == (4, 1)
    assert found.scores("return").tolist() == [4]
    assert curves_of([[np.nan, np.nan]]).has("return") is False
    single = curves_of([[1.0], [3.0]])
    assert (single.best().mean, single.best().std, verdicts([single, single], "return")) == (3, 0, [])


def test_frozen_members_are_named(tmp_path):
    found = curves_of([[1, 2]] * 3, frozen=[[0, 0], [0, 1], [0, 1]])
    assert found.frozen() == "DAC 0.5 on target: no longer finite and frozen, seed 1 from step 40"
    assert curves_of([[1, 2]], frozen=[[0, 0]]).frozen() is None
    run = dac.train("dac", "target", seeds=[0, 1], out=tmp_path / "a", **METHODS[0].settings)
    path = run.directory / "metrics.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()))
    rows[-1] |= {"frozen": "1", "return": "nan"}
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    page = write_artefacts(TARGET, cells_of(TARGET), [Run(run.directory)], tmp_path / "out", "").read_text()
    assert "no longer finite and frozen, seed 1 from step 60" in page


@pytest.mark.slow
def test_visits_after_the_steps_that_were_asked_for_do_not_count(tmp_path):
    settings = dict(METHODS[0].settings) | {"steps": 400, "eval_every": 200}
    run = dac.train("dac", "maze", seeds=[0, 1], out=tmp_path, **settings)
    short = Experiment("s", "S", "-", (("maze", (Method("DAC 0.5", "dac", settings | {"steps": 200}),)),), seeds=2)
    (cell,) = cells_of(short)
    found, whole = Shelf([run]).gather([cell])[0], run.visits["first_visit"]
    assert whole.max() > 200
    np.testing.assert_array_equal((found.first_visit >= 0).sum(axis=1), ((whole >= 0) & (whole <= 200)).sum(axis=1))
    assert found.values["visited"][-1].tolist() == (found.first_visit >= 0).sum(axis=1).tolist()
    assert not found.snapshots
    (tmp_path / "summary.json").unlink()  # it is getting longer: the file is from before
    assert Shelf([run]).gather([cell])[0].first_visit is None


def test_the_heat_map_counts_seeds():
    first = np.full((3, 100 * 100), -1)
    first[:, 5] = [0, 10, 11]
    first[1, 77] = 300
    cell = SimpleNamespace(config=SimpleNamespace(training=SimpleNamespace(steps=300)))
    heat = _heat([SimpleNamespace(name="x", first_visit=first, cell=cell)])
    assert heat["steps"][:2] == [10, 20]
    frames = np.frombuffer(zlib.decompress(base64.b64decode(heat["panels"][0]["frames"])), np.uint8).reshape(30, -1)
    total = frames.cumsum(axis=0)
    assert total[0, 5] == 2
    assert total[1, 5] == 3
    assert total[-2, 77] == 0
    assert total[-1, 77] == 1
    assert heat["panels"][0]["max"] == 3
    walls = np.frombuffer(zlib.decompress(base64.b64decode(heat["walls"])), np.uint8)
    assert walls.sum() == 10_000 - 9225
    assert pack(walls) == heat["walls"]


def test_moments_leave_out_what_is_missing():
    values = np.array([[1.0, 3.0], [np.nan, 5.0], [np.nan, np.nan]])
    mean, deviation = moments(values)
    np.testing.assert_array_equal(mean, [2, 5, np.nan])
    np.testing.assert_array_equal(deviation, [1, 0, np.nan])


def test_the_figure_draws_the_mean_of_each_method():
    steps, rng = np.array([1e3, 2e3]), np.random.default_rng(0)
    lines = [Line("a", 0, steps, rng.normal(size=(2, 5))), Line("b", 1, steps, rng.normal(size=(2, 5)))]
    figure = draw_curves({"one": lines, "two": lines[:1]}, "return")
    axes = figure.axes
    assert [axis.get_title() for axis in axes] == ["one", "two"]
    assert [len(axis.lines) for axis in axes] == [2, 1]
    for drawn, line in zip(axes[0].lines, lines, strict=True):
        np.testing.assert_allclose(drawn.get_ydata(), line.values.mean(axis=1))
        np.testing.assert_allclose(drawn.get_xdata(), [1, 2])  # thousands


@pytest.mark.parametrize("label", ["b", "a method with a name that is rather long", "long " * 30])
def test_the_legend_is_as_wide_as_the_figure_at_most(label):
    """One column is the least there can be, however long a name is."""
    values = np.zeros((2, 5))
    lines = [Line(f"{label}{i}", i, np.array([1e3, 2e3]), values) for i in range(4)]
    figure = draw_curves({"one": lines}, "return")
    figure.canvas.draw()
    (legend,) = figure.legends
    inside = legend.get_window_extent().width <= figure.bbox.width
    assert inside == (len(label) < 100)
    assert len({t.get_window_extent().x0 for t in legend.get_texts()}) == (4 if label == "b" else 1)


def test_tables_sort_by_their_leading_number():
    text = table(["name", "value"], [["DAC 0.5", "2699 ± 691"], ["a<b", "[1.5, 2]"], ["-", "1,200 s"]], sortable=True)
    assert '<td class="text">DAC 0.5</td><td data-value="2699">2699 ± 691</td>' in text
    assert '<td data-value="1.5">[1.5, 2]</td>' in text
    assert '<td data-value="1200">1,200 s</td>' in text
    assert "a&lt;b" in text
    assert '<table class="sortable">' in text


def test_the_published_report_is_built_from_the_raw_data():
    """Every number of results/report.html that a reader sees in a table or verdict comes out again."""
    runs, problems = find_runs([ROOT / "results"])
    assert not problems
    page = (ROOT / "results" / "report.html").read_text()
    shelf, checked = Shelf(runs), 0
    for experiment in EXPERIMENTS.values():
        curves = shelf.gather(cells_of(experiment))
        if not any(found.seeds for found in curves):
            continue
        for row in result_table(experiment, curves)[1]:
            pattern = "".join(rf"<td[^>]*>{re.escape(cell)}</td>" for cell in row)
            assert re.search(pattern, page), row
            checked += 1
    assert checked >= 6
    # and once more without the package, for the maze
    with np.load(ROOT / "results" / "maze" / "visits.npz") as file:
        visited = (file["first_visit"] >= 0).sum(axis=1)
    half, sac = visited[:30], visited[30:]
    assert f"{half.mean():.0f} ± {half.std():.0f}" in page
    wins = (half[:, None] > sac).mean() + (half[:, None] == sac).mean() / 2
    assert f"DAC 0.5 beats SAC: probability of improvement {wins:.2f} [" in page
    # the paper's own numbers are not mixed up with ours
    assert published("maze", "SAC") is None


@pytest.mark.slow
def test_a_part_of_the_maze(tmp_path, capsys, monkeypatch):
    """`dac reproduce fig1-maze --scale 0.004`: every artefact, from nothing."""
    shrink_maze(monkeypatch)
    arguments = ["reproduce", "fig1-maze", "--scale", "0.004", "--out", str(tmp_path)]
    assert main([*arguments, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "0 of 12 members are finished; 24,000 agent-steps to go, about" in shown
    assert "DAC 0.5, SAC on maze" in shown
    assert not any(tmp_path.iterdir())
    assert main(arguments) == 0
    out, progress = capsys.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "fig1-maze" / "report.html")
    assert "5 of 5: MaxEnt(State) on maze" in progress
    assert "(100% of the plan, about 0 s left)" in progress
    names = {path.name for path in (tmp_path / "fig1-maze").iterdir()}
    assert names == {"report.html", "visited.png", "visited.pdf", "visits.png", "visits.pdf", "table.csv", "table.md"}
    page = (tmp_path / "fig1-maze" / "report.html").read_text()
    data = data_of(page)
    assert len(data["charts"]["fig1-maze-maze-visited"]["series"]) == 6
    assert len(data["heats"]["fig1-maze-maze"]["panels"]) == 6
    assert "Not complete" not in page
    assert main([*arguments, "--quiet"]) == 0  # nothing to do
    capsys.readouterr()
    # of a part of the runs: what is here is drawn, the rest stays missing and is not run
    shutil.copytree(next((tmp_path / "runs").glob("*-rnd-*")), tmp_path / "part" / "rnd")
    drawn = tmp_path / "c" / "fig1-maze"
    some = ["--from", str(tmp_path / "part"), "--out", str(drawn.parent), "--draw"]
    assert main([*arguments[:-2], *some]) == 0
    assert capsys.readouterr().out == f"{drawn / 'report.html'}\n"
    assert [path.name for path in drawn.parent.iterdir()] == ["fig1-maze"]
    assert (drawn / "visited.png").exists()
    page = (drawn / "report.html").read_text()
    assert "SAC on maze: nothing yet" in page
    assert escape(shlex.join(["dac", *arguments[:2], "--out", str(drawn.parent)])) in page
    assert "--draw</code>" in page  # who copies the command does not start to train
    assert main(["reproduce", "fig1-maze", "--scale", "0.004", "--out", str(tmp_path / "b"), "--from", "nowhere"]) == 2
    assert "no such folder: nowhere" in capsys.readouterr().err
