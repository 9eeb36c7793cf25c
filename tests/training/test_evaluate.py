"""Success rates: what an environment says in `info` is measured at evaluations, and shown wherever the return is."""

import csv
import json

import numpy as np
import pytest

import dac
from dac.callbacks import EvaluateOn
from dac.cli import main
from dac.core.keys import EVALUATE, env_seed
from dac.training.watchers import AbstractWatcher
from tests.envs import strange

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 20, "steps": 100, "eval_every": 50}
TINY |= {"capacity": 80, "seeds": [0, 1], "eval_episodes": 4, "checkpoint_every": 50}


class Notebook(AbstractWatcher):
    def __init__(self):
        self.lines, self.shown = [], []

    def on_message(self, message):
        self.lines.append(message.text)

    def on_progress(self, position):
        self.shown.append(position.shown)


def rates(step):
    """What the seeds of an evaluation's episodes make of the two members."""
    seeds = [[env_seed(member, EVALUATE, step, episode) for episode in range(4)] for member in (0, 1)]
    return [np.mean([seed % 3 == 0 for seed in row]) for row in seeds]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on an environment whose successes follow from its seeds."""
    elsewhere, notes = EvaluateOn(strange.Succeeds, episodes=4), Notebook()
    directory = tmp_path_factory.mktemp("success") / "run"
    found = dac.train("sac", strange.Succeeds, out=directory, watchers=[elsewhere, notes], **TINY)
    found.elsewhere, found.notes = elsewhere, notes
    return found


def test_the_rate_is_that_of_the_episodes(run):
    """An episode counts if the task was done at any of its steps, not at its last."""
    measured = run.metrics["success"]
    np.testing.assert_array_equal(measured, [rates(50), rates(100)])
    assert 0 < measured.mean() < 1
    assert run.notes.shown[-1]["success"] == pytest.approx(measured[-1].mean())
    assert [member["final_success"] for member in run.summary["members"]] == measured[-1].tolist()


def test_other_evaluations_have_it(run, capsys):
    with open(run.directory / "evaluations-python-tests.envs.strange-Succeeds.csv", newline="") as file:
        read = [float(row["success"]) for row in csv.DictReader(file)]
    assert read == [row["success"] for row in run.elsewhere.rows] == run.metrics["success"].ravel().tolist()
    episodes = run.model(1).evaluate(episodes=8)
    assert episodes.successes.dtype == bool
    assert f"success {episodes.success_rate:.0%}>" in repr(episodes)
    whole = run.population().evaluate(episodes=8)
    np.testing.assert_array_equal(whole[1].successes, episodes.successes)
    assert main(["evaluate", str(run.directory), "--episodes", "8"]) == 0
    last = capsys.readouterr().out.splitlines()[-2]
    assert f"{episodes.success_rate:.0%} │" in last


def test_an_environment_that_says_nothing_has_no_rate(tmp_path):
    run = dac.train("sac", strange.Plain, out=tmp_path / "run", **TINY)
    assert "success" not in run.metrics
    assert "final_success" not in run.summary["members"][0]
    episodes = run.model(0).evaluate(episodes=1)
    assert episodes.successes is None
    assert episodes.success_rate is None


def test_a_first_success_after_the_first_evaluation_is_told(tmp_path):
    """metrics.csv then has no such column, as that of an older version that is resumed, and stays readable."""
    notes = Notebook()
    settings = TINY | {"seeds": [0], "eval_episodes": 1}
    run = dac.train("sac", strange.SucceedsAtLast, out=tmp_path / "run", watchers=[notes], **settings, eval_limit=20)
    assert "success" not in run.metrics
    run = dac.resume(run.directory, 250, watchers=[notes])
    assert "success" not in run.metrics
    assert len(run.metrics["return"]) == 5
    said = [line for line in notes.lines if "goes on without" in line]
    assert said == ["metrics.csv of this run was begun without success, and goes on without"]
    assert json.loads((run.directory / "summary.json").read_text())["members"][0]["final_success"] == 1.0
