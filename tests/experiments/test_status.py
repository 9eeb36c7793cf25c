"""How far experiments are, against runs that are finished, begun, missing, or have other environments."""

import dataclasses
import re
from pathlib import Path

import pytest

import dac
from dac.cli import main
from dac.experiments.paper import EXPERIMENTS, Experiment, Method
from dac.experiments.reproduce import Reproduction
from dac.experiments.status import find_status
from tests.common import interrupt_at

RESULTS = Path(__file__).parents[2] / "results"
SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 60, "update_after": 20, "random_steps": 20, "eval_every": 20}
HALF, SAC = Method("half", "dac", SMALL | {"alpha": 0.5}), Method("SAC", "dac", SMALL | {"alpha": 1.0})
DIV = Method("div", "sac-div", SMALL)
THREE = Experiment("three", "Three", "nothing", (("target", (HALF, SAC, DIV)),), seeds=3)


def rows_of(*experiments, store, sources=(), **changes):
    return find_status(Reproduction(experiments, store, sources, **changes)).rows


def test_nothing_there(tmp_path):
    status = find_status(Reproduction([THREE], tmp_path / "none"))
    (row,) = status.rows
    assert (row.methods, row.among, row.state) == (("half", "SAC", "div"), 3, "missing")
    assert (row.seeds, row.complete, row.partial, row.missing) == (3, 0, (), 3)
    assert row.agent_steps == status.agent_steps == 3 * 3 * 60
    assert row.seconds > 0


def test_complete_partial_and_missing(tmp_path, monkeypatch):
    """One method is finished elsewhere, one has two of three members at 40 of 60 steps, of one there is nothing."""
    dac.train("dac", "target", seeds=range(3), out=tmp_path / "other" / "a", **HALF.settings)
    half_done = dict(SAC.settings) | {"checkpoint_every": 20}
    with monkeypatch.context() as patch:
        interrupt_at(patch, 60)
        with pytest.raises(KeyboardInterrupt):
            dac.train("dac", "target", seeds=[0, 2], out=tmp_path / "store" / "runs" / "b", **half_done)
    half, sac, div = rows_of(THREE, store=tmp_path / "store", sources=[tmp_path / "other"])
    assert [row.methods for row in (half, sac, div)] == [("half",), ("SAC",), ("div",)]
    assert [row.state for row in (half, sac, div)] == ["complete", "partial", "missing"]
    assert (half.complete, half.missing, half.agent_steps, half.seconds) == (3, 0, 0, 0)
    assert (sac.complete, sac.partial, sac.missing, sac.steps) == (0, (40, 40), 1, 60)
    assert sac.agent_steps == 2 * 20 + 60  # from the checkpoint on
    assert (div.complete, div.partial, div.missing, div.agent_steps) == (0, (), 3, 3 * 60)
    # without the folder of the first, and read as a source, from which nothing is continued
    both, sac = rows_of(THREE, store=tmp_path / "new", sources=[tmp_path / "store"])
    assert (both.methods, both.state) == (("half", "div"), "missing")
    assert (sac.partial, sac.agent_steps) == ((40, 40), 3 * 60)


def test_other_environments_count_as_in_reports(tmp_path):
    dac.train("dac", "target", seeds=range(3), out=tmp_path / "two", envs=2, **HALF.settings)
    half, _ = rows_of(THREE, store=tmp_path / "none", sources=[tmp_path])
    assert (half.methods, half.state, half.envs, half.agent_steps) == (("half",), "complete", (2,), 0)
    asked, _ = rows_of(THREE, store=tmp_path / "none", sources=[tmp_path], envs=2)
    assert (asked.state, asked.envs) == ("complete", ())


def test_a_run_for_a_short_experiment_is_not_enough_for_a_long_one(tmp_path):
    """The members are the same; what is left of both together is the long one."""
    dac.train("dac", "target", seeds=range(3), out=tmp_path / "a", **HALF.settings)
    short = dataclasses.replace(THREE, name="short", panels=(("target", (HALF,)),))
    long = dataclasses.replace(short, name="long", steps=100)
    status = find_status(Reproduction([short, long], tmp_path / "none", [tmp_path]))
    assert [row.state for row in status.rows] == ["complete", "missing"]
    assert status.agent_steps == 3 * 100
    # what two experiments share counts once
    status = find_status(Reproduction([long, dataclasses.replace(long, name="again")], tmp_path / "none"))
    assert [row.agent_steps for row in status.rows] == [300, 300]
    assert status.agent_steps == 300


def test_the_published_runs(tmp_path):
    """results/ has these experiments whole, of SparseHopper ten of thirty seeds, of DelayedHopper two methods."""
    rows = rows_of(*EXPERIMENTS.values(), store=tmp_path / "none", sources=[RESULTS])
    there = {(r.experiment, r.task, r.methods): (r.state, r.complete, r.seeds, r.envs) for r in rows if r.complete}
    four = "complete", 10, 10, (4,)
    expected = {
        ("fig1-maze", "maze"): [(6, ("complete", 30, 30, ()))],
        ("table-state-exploration", "SparseHalfCheetah"): [(2, four)],
        ("table-state-exploration", "SparseHopper"): [(2, four)],
        ("table-state-exploration", "SparseWalker2d"): [(2, four)],
        ("ablation-clip", "maze"): [(5, ("complete", 10, 10, ()))],
        ("ablation-clip", "SparseHalfCheetah"): [(5, four)],
        ("ablation-clip", "SparseHopper"): [(5, four)],
        ("ablation-clip", "SparseWalker2d"): [(5, four)],
        ("fast-start", "SparseHalfCheetah"): [(4, ("complete", 10, 10, ()))],
        ("table-other-algorithms", "DelayedHopper"): [(1, ("partial", 5, 10, ()))] * 2,
    }
    for name in ("fig2-sparse", "fig3-divergence", "table-sparse"):
        expected[name, "SparseHalfCheetah"] = [(2, ("complete", 30, 30, (4,))), (1, four)]
        expected[name, "SparseHopper"] = [(2, ("partial", 10, 30, (4,))), (1, four)]
        expected[name, "SparseWalker2d"] = [(3, four)]
    found: dict = {}
    for (name, task, methods), standing in there.items():
        found.setdefault((name, task), []).append((len(methods), standing))
    assert found == expected
    assert not any(row.partial for row in rows)
    assert {task for task, _ in EXPERIMENTS["fig2-sparse"].panels} == {
        row.task for row in rows if row.experiment == "fig2-sparse"
    }
    assert all(row.agent_steps == (row.missing * len(row.methods) * row.steps) for row in rows)


def test_the_table(tmp_path, capsys):
    start = ["reproduce", "--status", "--out", str(tmp_path / "none"), "--from", str(RESULTS)]
    start += ["--from", str(tmp_path)]  # another folder, not instead of the first
    assert main([*start[:2], "fig1-maze", "fig2-sparse/SparseHopper", *start[2:]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"fig1-maze +maze +all 6 +complete +30 of 30 +- +- +- +- +- *", lines[1])
    assert re.fullmatch(
        r"fig2-sparse +SparseHopper +DAC 0.5, SAC +partial +10 of 30 +- +20 +4 +40M +\S+ \S+ *", lines[2]
    )
    assert re.fullmatch(r" +SAC-Div +complete +10 of 10 +- +- +4 +- +- *", lines[3])
    assert lines[4].startswith("40M agent-steps to go in all, about ")
    assert lines[5].startswith("envs: environments per member, where that is not the number asked for.")
    assert len(lines) == 6
    assert main(start) == 0  # of all of them
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXPERIMENTS)
    assert not (tmp_path / "none").exists()


def test_a_partial_row_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "three", THREE)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 60)
        with pytest.raises(KeyboardInterrupt):
            dac.train("dac", "target", seeds=[0, 2], out=tmp_path / "runs" / "b", **SAC.settings)
    assert main(["reproduce", "three", "--status", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +SAC +partial +0 of 3 +2 at 40 of 60 +1 +- +180 +", out, re.M)
    assert "envs:" not in out
    # of other seeds, and to more steps
    assert main(["reproduce", "three", "--status", "--out", str(tmp_path), "--seeds", "0,2", "--steps", "40"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +SAC +complete +2 of 2 +", out, re.M)


def test_damaged_runs_are_named(tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.toml").write_text("algorithm = 3")
    assert main(["reproduce", "fig1-maze", "--status", "--out", str(tmp_path)]) == 0
    out, error = capsys.readouterr()
    assert error.startswith("not counted: ")
    assert "missing" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], "unknown experiment 'fig9'"),
        (["fig1-maze", "--from", "nowhere"], "no such folder: nowhere"),
        (["fig1-maze", "--seeds", "5:5"], "bad seeds '5:5' (accepted: 7, 0:30 or 1,5,9; "),
        (["fig1-maze", "--steps", "0"], "steps must be from 1 to "),
        (["fig1-maze", "--steps", "few"], "argument --steps: invalid int value: 'few'"),
        (["fig1-maze", "--steps", "5", "--scale", "0.5"], "--steps and --scale both say how many steps there are"),
        (["fig1-maze", "--draw"], "argument --draw: not allowed with argument --status"),
    ],
)
def test_bad_input_is_answered_in_one_line(arguments, message, tmp_path, capsys):
    for mode in ("--status", "--dry-run"):
        if mode == "--dry-run" and "--draw" in arguments:
            continue
        assert main(["reproduce", mode, *arguments, "--out", str(tmp_path / "x")]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"dac: {message}")
        assert error.count("\n") == 1
