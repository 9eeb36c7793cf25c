"""The command line as a user meets it: one run from start to finish, and one line for every mistake."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dac
from dac.api import Run
from dac.cli import main
from dac.cli.summary import find_frozen, print_summary
from dac.cli.text import with_options
from dac.config import resolve
from dac.core.types import UsageError
from dac.export.video import best_member
from dac.tasks import TASKS
from dac.training.watchers import Start
from dac.training.watchers.progress import ProgressBar

TINY = ["--hidden", "8,8", "--batch-size", "16", "--steps", "300", "--eval-every", "100"]
TINY += ["--random-steps", "50", "--update-after", "100", "--quiet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    assert main(["train", "dac", "maze", "--seeds", "3:5", "--alpha", "0.5,1.0", "--out", str(out), *TINY]) == 0
    return out


def test_a_run_directory_is_complete(finished):
    run = Run(finished)
    metrics = run.metrics
    assert metrics["step"].shape == (3, 4)
    np.testing.assert_array_equal(metrics["step"][:, 0], [100, 200, 300])
    np.testing.assert_array_equal(metrics["updates"][:, 0], [0, 100, 200])
    np.testing.assert_array_equal(metrics["seed"][0], [3, 4, 3, 4])
    np.testing.assert_array_equal(metrics["alpha"][0], [0.5, 0.5, 1.0, 1.0])
    assert np.isnan(metrics["q_mean"][0]).all()
    assert np.isfinite(metrics["q_mean"][1:]).all()
    with open(finished / "metrics.csv", newline="") as file:  # every digit that a float32 has, and no more
        assert all(str(np.float32(row["q_mean"])) == row["q_mean"] for row in csv.DictReader(file))
    summary = run.summary
    assert [m["seed"] for m in summary["members"]] == [3, 4, 3, 4]
    for index, member in enumerate(summary["members"]):
        assert member["steps"] == 300
        assert member["updates"] == 200
        assert member["hyper"]["alpha"] == [0.5, 0.5, 1.0, 1.0][index]
        assert member["visited_cells"] == metrics["visited"][-1, index]
        assert {"final_return", "max_return"} <= set(member)
    assert summary["agent_steps_per_second"] > 0
    assert {"python", "jax", "mujoco", "dac", "commit"} <= set(summary["versions"])
    visits = run.visits
    assert visits["visits_300"].sum(axis=1).tolist() == [300] * 4
    assert ((visits["first_visit"] > 0).sum(axis=1) == metrics["visited"][-1]).all()
    assert visits["first_visit"].max() <= 300


def test_the_written_configuration_runs_again_to_the_same_numbers(finished, tmp_path):
    again = tmp_path / "again"
    assert main(["train", "--config", str(finished / "config.toml"), "--out", str(again), "--quiet"]) == 0
    assert (again / "metrics.csv").read_text() == (finished / "metrics.csv").read_text()
    assert (again / "policy.safetensors").read_bytes() == (finished / "policy.safetensors").read_bytes()


def test_evaluate_uses_the_saved_policies(finished, capsys):
    assert main(["evaluate", str(finished), "--episodes", "2"]) == 0
    assert "mean return" in capsys.readouterr().out
    result = Run(finished).evaluate(2)
    assert result.returns.shape == (4, 2)
    assert (result.lengths == 1000).all()


def test_python_and_command_line_are_the_same_run(finished, tmp_path):
    run = dac.train(
        "dac", "maze", seeds=[3, 4], alpha=[0.5, 1.0], out=tmp_path / "py", hidden=(8, 8), batch_size=16, steps=300,
        eval_every=100, random_steps=50, update_after=100,
    )  # fmt: skip
    assert (run.directory / "metrics.csv").read_text() == (finished / "metrics.csv").read_text()


def test_lists(capsys):
    assert main(["list", "tasks"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in (*TASKS, "gym:ID", "python:MODULE:FACTORY"))
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "dac list tasks" in out
    assert "dac list algorithms" in out
    assert main(["list", "algorithms"]) == 0
    out = capsys.readouterr().out
    assert "dac" in out
    assert "sac" in out
    assert main([]) == 0
    assert "train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train dac maze --alpha 2", "alpha must be a number from 0 to 1"),
        ("train dac maze --alpha 0.5,high", "alpha"),
        ("train dac nowhere", "unknown task 'nowhere'"),
        ("train dac mase", "did you mean maze"),
        ("train dca maze", "did you mean dac"),
        ("train dac maze --seeds 5:2", "bad seeds"),
        ("train dac maze --seeds x", "bad seeds"),
        ("train dac maze --alhpa 1", "did you mean --alpha"),
        ("train dac maze --seed 3", "did you mean --seeds?"),
        ("train dac maze --steps 1e3 --config nowhere.toml", "no such file"),
        ("train --bonus rnd dac maze --alpha 2", "alpha must be a number from 0 to 1"),
        ("train sac maze --clip 1", "unknown argument '--clip'"),
        ("train sac maze --alpha 0.5", "--alpha is a setting of dac, not of sac (accepted: --help, --seeds"),
        ("train sac maze --alpha=0.5", "--alpha is a setting of dac, not of sac"),
        ("train dac Pendulum-v1", "did you mean gym:Pendulum-v1?"),
        ("train dac my_envs:Walk-v3", "did you mean gym:my_envs:Walk-v3?"),
        ("train dac my_envs:make", "did you mean python:my_envs:make?"),
        ("train dac maze --steps 1.5e0", "steps must be a whole number, not '1.5e0'"),
        ("train dac maze --workers 2", "workers must be 0 for maze"),
        ("resume nowhere --steps 1e4", "no such run directory"),
        ("resume nowhere --steps 0.5", "argument --steps: invalid whole_number value: '0.5'"),
        ("train dac maze --steps many", "steps must be a whole number"),
        ("train dac maze --config nowhere.toml", "no such file"),
        ("train dac maze --seeds", "expected one argument"),
        ("train", "needed"),
        ("train dac", "needed"),
        ("evaluate nowhere", "no such run directory"),
        ("evaluate . --episodes x", "episodes"),
        ("list everything", "invalid choice"),
        ("dance", "unknown command 'dance' (accepted: train, "),
        ("trian dac maze", "unknown command 'trian'; did you mean train?"),
        ("--versoin", "did you mean --version?"),
        ("--bogus", "unknown argument"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert list(tmp_path.iterdir()) == []  # nothing was written


@pytest.mark.parametrize(("algorithm", "option"), [("sac", "--alpha"), ("ppo", "--hlep"), ("dac", "--halp")])
def test_help_is_never_what_was_meant(algorithm, option, capsys):
    assert main(["train", algorithm, "maze", option, "1"]) == 2
    assert "did you mean --help" not in capsys.readouterr().err


def test_an_error_speaks_the_language_of_who_asked(tmp_path, capsys):
    """Python writes `out=`, the command line --out; the words around it are the same."""
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(UsageError, match=r"exists already; give another `out=`, or remove it first$"):
        dac.train("dac", "maze", out=tmp_path)
    assert main(["train", "dac", "maze", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("exists already; give another --out, or remove it first\n")
    assert with_options("`on_nan=freeze` or `eval_every=`, not `dac train`") == (
        "--on-nan freeze or --eval-every, not `dac train`"
    )


@pytest.mark.parametrize(("given", "meant"), [("seed", "seeds"), ("output", "out"), ("alhpa", "alpha")])
def test_a_misspelt_argument_is_recognised(given, meant):
    with pytest.raises(UsageError, match=rf"unknown setting '{given}' for dac; did you mean {meant}\?"):
        dac.train("dac", "maze", **{given: 3})


@pytest.mark.parametrize(("seeds", "said"), [(2, "1 member (seed 2)"), (range(2), "2 members")])
def test_one_seed_is_named_so_that_nobody_takes_it_for_a_number_of_seeds(seeds, said):
    screen, config = io.StringIO(), resolve("dac", "maze", seeds)
    ProgressBar(Console(file=screen)).on_start(Start(config, Path("runs/x"), config.members()))
    assert screen.getvalue() == f"dac on maze, {said}: 300,000 steps each\n"


def test_an_option_before_the_algorithm_may_be_the_name_of_another(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--out", "sac", "dac", "maze", "--alpha", "0.5,1.0", "--seeds", "3:5"]
    assert main(["train", *given, *TINY]) == 0
    assert (tmp_path / "sac/metrics.csv").read_text() == (finished / "metrics.csv").read_text()


MODULE = """
import gymnasium

class Discrete(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

gymnasium.register("Odd-v0", Discrete)
"""


SCRIPT = "import sys; sys.path = [path for path in sys.path if path]; from dac.cli import main; sys.exit(main())"
"""What the script `dac` does: the current folder is not in the path."""


@pytest.mark.parametrize(
    ("start", "task"),
    [
        (["-P", "-m", "dac"], "python:my_odd_envs:Discrete"),
        (["-P", "-c", SCRIPT], "gym:my_odd_envs:Odd-v0"),
        (["-P", "-c", SCRIPT], "python:my_odd_envs:Discrete --workers 1"),
    ],
)
def test_a_task_may_be_in_a_module_of_the_current_folder(start, task, tmp_path):
    (tmp_path / "my_odd_envs.py").write_text(MODULE)
    command = [sys.executable, *start, "train", "sac", *task.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "actions must be real numbers, a Box of floats; the action space is Discrete(2)" in done.stderr


def test_an_existing_directory_is_not_touched(tmp_path, capsys):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "notes.txt").write_text("precious")
    assert main(["train", "dac", "maze", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [p.name for p in out.iterdir()] == ["notes.txt"]
    assert main(["train", "dac", "maze", "--out", str(out / "notes.txt")]) == 2


def test_no_traceback_from_the_installed_program(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "dac", "train", "dac", "maze", "--alpha", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def damage(finished, tmp_path, name, content):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in filter(Path.is_file, finished.iterdir()):
        (copy / path.name).write_bytes(path.read_bytes())
    if content is None:
        (copy / name).unlink()
    else:
        (copy / name).write_bytes(content)
    return copy


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.toml", None, "not a run directory"),
        ("config.toml", b"algorithm = 3", "are needed"),
        ("policy.safetensors", None, "no such file"),
        ("policy.safetensors", b"garbage", "damaged"),
        ("policy.safetensors", b"", "damaged"),
    ],
)
def test_damaged_runs_are_named(finished, tmp_path, name, content, words):
    with pytest.raises(UsageError, match=words):
        Run(damage(finished, tmp_path, name, content)).evaluate(1)


def test_a_truncated_or_foreign_policy_is_refused(finished, tmp_path):
    whole = (finished / "policy.safetensors").read_bytes()
    with pytest.raises(UsageError, match="damaged"):
        Run(damage(finished, tmp_path, "policy.safetensors", whole[:-10])).policies()
    config = (finished / "config.toml").read_text().replace("hidden = [8, 8]", "hidden = [8, 16]")
    (tmp_path / "copy" / "policy.safetensors").write_bytes(whole)
    (tmp_path / "copy" / "config.toml").write_text(config)
    with pytest.raises(UsageError, match="does not fit"):
        Run(tmp_path / "copy").policies()


def test_unfinished_and_damaged_tables_are_named(finished, tmp_path):
    copy = damage(finished, tmp_path, "summary.json", None)
    with pytest.raises(UsageError, match="not finished"):
        _ = Run(copy).summary
    (copy / "metrics.csv").write_text("member,seed\n0,x\n1,1\n2,2\n3,3\n")
    with pytest.raises(UsageError, match="damaged"):
        _ = Run(copy).metrics
    (copy / "visits.npz").unlink()
    with pytest.raises(UsageError, match=r"no visits\.npz"):
        _ = Run(copy).visits


def test_summary_is_strict_json(finished):
    json.loads((finished / "summary.json").read_text(), parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


FAILURE = {"step": 100, "cause": "policy.mlp.weights.0 is not finite"}


@pytest.fixture
def broken(finished, tmp_path):
    """The run in which member 1, of seed 4 and alpha 0.5, was frozen with impossible returns."""
    copy = damage(finished, tmp_path, "config.toml", (finished / "config.toml").read_bytes())
    summary = json.loads((copy / "summary.json").read_text())
    for member, value in zip(summary["members"], (1.0, 1e9, 2.0, 3.0), strict=True):
        member |= {"final_return": value, "max_return": value + 1, "visited_cells": int(value)}
    summary["members"][1]["frozen"] = FAILURE
    (copy / "summary.json").write_text(json.dumps(summary))
    return copy


def test_a_frozen_member_is_marked_and_left_out_of_the_mean(finished, broken, capsys):
    print_summary(Run(broken))
    header, *lines = [line for line in capsys.readouterr().out.splitlines() if set(line) & set("┃│:;")]
    rows = [[cell.strip() for cell in line.strip("┃│").replace("┃", "│").split("│")] for line in (header, *lines[:2])]
    assert rows == [
        ["alpha", "members", "frozen", "final return", "max return", "visited cells"],
        ["0.5", "2", "1", "1.0 ± 0.0", "2.0 ± 0.0", "1.0 ± 0.0"],
        ["1", "2", "0", "2.5 ± 0.5", "3.5 ± 0.5", "2.5 ± 0.5"],
    ]
    cause = "policy.mlp.weights.0 is not finite, found at step 100; not in the means"
    assert lines[2] == f"frozen: member 1 (seed 4, alpha 0.5): {cause}"
    print_summary(Run(finished))
    assert "frozen" not in capsys.readouterr().out  # no column without need


def test_a_group_of_frozen_members_has_no_mean(broken, capsys):
    summary = json.loads((broken / "summary.json").read_text())
    summary["members"][0] |= {"frozen": FAILURE, "final_return": None, "max_return": "-inf"}
    summary["members"][3] |= {"final_return": None, "max_return": "-inf"}  # what JSON cannot say as a number
    (broken / "summary.json").write_text(json.dumps(summary))
    print_summary(Run(broken))
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert rows[0][1:-1] == ["0.5", "2", "2", "-", "-", "-"]
    assert rows[1][1:-1] == ["1", "2", "0", "2.0 ± 0.0", "3.0 ± 0.0", "2.5 ± 0.5"]
    assert best_member(Run(broken)) == 2


def test_evaluate_marks_frozen_members(broken, capsys):
    assert main(["evaluate", str(broken), "--episodes", "1"]) == 0
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in out.splitlines() if "│" in line]
    assert rows == [["3", "0.5", "no"], ["4", "0.5", "yes"], ["3", "1", "no"], ["4", "1", "no"]]
    assert "frozen: member 1 (seed 4, alpha 0.5): policy.mlp.weights.0 is not finite, found at step 100" in out
    assert best_member(Run(broken)) == 3


def test_frozen_members_are_known_without_a_summary(broken):
    """A run that is resumed has none until it ends."""
    (broken / "summary.json").unlink()
    assert find_frozen(Run(broken)) == {}
    rows = list(csv.DictReader((broken / "metrics.csv").read_text().splitlines()))
    rows[-2]["frozen"] = "1"
    with open(broken / "metrics.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert list(find_frozen(Run(broken))) == [2]
