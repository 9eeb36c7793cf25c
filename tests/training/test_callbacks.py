"""Callbacks stop a run, keep policies and evaluate elsewhere, and cannot change what is learnt."""

import csv
import json
import time

import equinox as eqx
import gymnasium
import jax
import numpy as np
import pytest

import dac
from dac.callbacks import (
    AbstractWatcher,
    CallbackError,
    EvaluateOn,
    Evaluation,
    Position,
    SaveBest,
    SavePolicies,
    Start,
    StopAfter,
    StopOnReturn,
    StopWithoutImprovement,
)
from dac.config import resolve
from tests.training.test_watchers import TINY

RETURNS = ("metrics.csv", "policy.safetensors")


def train(out, *watchers, task="target", **changes):
    return dac.train("dac", task, out=out, watchers=watchers, **(TINY | changes))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(tmp_path_factory.mktemp("plain") / "run")


def assert_same(run, other, names=RETURNS):
    for name in names:
        assert (run.directory / name).read_bytes() == (other.directory / name).read_bytes()


def evaluation(step, returns, frozen=()):
    rows = [{"step": step, "return": value, "frozen": int(i in frozen)} for i, value in enumerate(returns)]
    return Evaluation(step, rows)


def start(tmp_path, members=2):
    config = resolve("dac", "target", range(members), {"eval_every": 50})
    return Start(config, tmp_path, config.members())


class Vandal(AbstractWatcher):
    """Changes all that it is handed."""

    def on_start(self, start):
        start.config.hyper["alpha"] = 0.9
        start.members.clear()

    def on_progress(self, position):
        position.shown["return"] = 0.0

    def on_evaluation(self, evaluation):
        np.random.default_rng(0).random()
        for row in evaluation.rows:
            row.clear()
        evaluation.rows.clear()
        leaf = np.asarray(jax.tree.leaves(evaluation.moment.policies)[0])
        with pytest.raises(ValueError, match="read-only"):
            leaf[:] = 0


def test_callbacks_do_not_change_training(plain, tmp_path):
    """Not even one that changes all that it is handed, or one that evaluates on the run's own task."""
    elsewhere, seen = EvaluateOn("target", every=100, episodes=2), []
    watchers = [Vandal(), SaveBest(), SavePolicies(100), elsewhere, StopAfter(hours=1), lambda e: seen.append(e)]
    run = train(tmp_path / "run", *watchers)
    assert_same(run, plain, [*RETURNS, "config.toml"])
    assert [evaluation.step for evaluation in seen] == [50, 100, 150, 200]
    assert [row["return"] for row in seen[-1].rows] == list(plain.metrics["return"][-1].astype(np.float32))
    check_kept(run)
    assert [(row["step"], row["member"]) for row in elsewhere.rows] == [(s, m) for s in (100, 200) for m in range(3)]
    with open(run.directory / "evaluations-target.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [float(row["return"]) for row in read] == [row["return"] for row in elsewhere.rows]
    again = plain.evaluate(episodes=1)  # of the same policies, in other episodes
    assert np.isclose([row["return"] for row in elsewhere.rows[3:]], again.returns[:, 0], atol=1.0).all()


def check_kept(run):
    """The best policies are those of the steps at which metrics.csv has its maxima."""
    best = json.loads((run.directory / "best.json").read_text())
    returns = run.metrics["return"]
    assert best["returns"] == pytest.approx(list(returns.max(axis=0)))
    assert best["steps"] == [int(run.metrics["step"][k, m]) for m, k in enumerate(returns.argmax(axis=0))]
    kept = [path.name for path in sorted((run.directory / "policies").iterdir())]
    assert kept == ["step-000000000100.safetensors", "step-000000000200.safetensors"]
    last, final = run.policies("policies/step-000000000200.safetensors"), run.policies()
    assert eqx.tree_equal(last, final)
    best_of, weights = run.policies("best.safetensors"), np.asarray(final.mlp.weights[0])
    for member, step in enumerate(best["steps"]):
        if step in (100, 200):
            file = run.policies(f"policies/step-{step:012d}.safetensors")
            same = np.asarray(best_of.mlp.weights[0])[member] == np.asarray(file.mlp.weights[0])[member]
            assert same.all()
    assert np.asarray(best_of.mlp.weights[0]).shape == weights.shape


class Failing(AbstractWatcher):
    """Raises an exception at one event, and notes the end."""

    def __init__(self, event, step=0):
        self.ended = []
        setattr(self, event, self.fail)
        self.step = step

    def fail(self, told):
        if getattr(told, "step", told) != self.step:
            return
        raise RuntimeError("no more ink")

    def on_end(self, error):
        self.ended.append(error)


@pytest.mark.parametrize(("event", "step"), [("on_evaluation", 50), ("on_checkpoint", 100)])
def test_an_exception_ends_the_run_with_a_checkpoint_from_which_it_goes_on_to_the_bit(plain, event, step, tmp_path):
    failing, after = Failing(event, step), []
    with pytest.raises(CallbackError) as caught:
        train(tmp_path / "run", failing, lambda evaluation: after.append(evaluation.step))
    line = str(caught.value)
    assert line.startswith(
        f"the callback Failing failed in {event} (RuntimeError: no more ink); the last checkpoint is "
    )
    assert line.endswith(f"continue with: dac resume {tmp_path / 'run'}")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert failing.ended == [caught.value]
    stopped = dac.load(tmp_path / "run")
    assert not stopped.finished
    assert after[-1] == stopped.metrics["step"][-1, 0]  # the others were told all there was
    assert stopped.last_checkpoint() >= step
    assert_same(dac.resume(stopped.directory), plain)


def test_an_exception_at_the_end_or_the_start(plain, tmp_path):
    with pytest.raises(CallbackError, match=r"Failing failed in on_evaluation .*; the run itself is saved in"):
        train(tmp_path / "end", Failing("on_evaluation", 200))
    whole = dac.load(tmp_path / "end")
    assert whole.finished
    assert_same(whole, plain)
    with pytest.raises(
        CallbackError, match=r"EvaluateOn failed in on_start .maze has observations and actions of sizes"
    ):
        train(tmp_path / "start", EvaluateOn("maze"))
    assert not (tmp_path / "start").exists()


@pytest.mark.parametrize(
    ("watcher", "words"),
    [
        (StopAfter, "watchers takes objects, not classes: StopAfter(...), not StopAfter"),
        (3, "watchers must be callbacks or functions of an evaluation, not 3"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_made(watcher, words, tmp_path):
    with pytest.raises(dac.UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        train(tmp_path / "run", watcher)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StopOnReturn("much"), "threshold must be a number, not 'much'"),
        (lambda: StopOnReturn(1, members="some"), "members must be one of all, any, mean, not 'some'"),
        (lambda: StopWithoutImprovement(0), "patience must be a whole number of at least 1 evaluation, not 0"),
        (lambda: StopWithoutImprovement(3, min_delta=-1.0), "min_delta must be at least 0, not -1.0"),
        (lambda: StopAfter(), "a time budget must be above 0 seconds, not 0"),
        (lambda: SavePolicies(0), "every must be a whole number of at least 1 environment step, not 0"),
        (lambda: EvaluateOn("mase"), "unknown task 'mase'"),
        (lambda: EvaluateOn("maze", episodes=0), "episodes must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_answered_in_one_line(make, words):
    with pytest.raises(dac.UsageError) as caught:
        make()
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("members", "returns", "frozen", "stops"),
    [
        ("all", [5, 4], (), False),
        ("all", [5, 5], (), True),
        ("all", [5, 4], (1,), True),
        ("any", [4, 5], (), True),
        ("any", [4, 5], (1,), False),
        ("mean", [4, 6], (), True),
        ("mean", [4, 5.9], (), False),
        ("all", [5, float("nan")], (), False),
    ],
)
def test_stop_on_return(members, returns, frozen, stops):
    reason = StopOnReturn(5, members=members).on_evaluation(evaluation(50, returns, frozen))
    assert (reason is not None) == stops
    assert reason is None or reason.endswith("reached a return of 5")


@pytest.mark.parametrize(
    ("members", "stops_at"), [("all", 300), ("any", 250), ("mean", 250)]
)  # member 0 is best at 100, member 1 at 150, their mean at 100
def test_stop_without_improvement(members, stops_at, tmp_path):
    watcher = StopWithoutImprovement(3, min_delta=0.5, members=members)
    watcher.on_start(start(tmp_path))
    curve = [(1, 1), (5, 2), (4, 2.6), (5.5, 2), (5, 3), (2, 2), (2, 2)]
    told = [(50 * (k + 1), watcher.on_evaluation(evaluation(50 * (k + 1), both))) for k, both in enumerate(curve)]
    first = next((step for step, reason in told if reason), None)
    assert first == stops_at


def test_a_resumed_run_remembers_its_evaluations(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "member,seed,step,return,frozen\n"
        + "".join(f"{m},{m},{s},{10 - s / 50},0\n" for s in (50, 100) for m in (0, 1))
    )
    watcher = StopWithoutImprovement(2)
    watcher.on_start(start(tmp_path))
    watcher.on_restore(100)
    assert (
        watcher.on_evaluation(evaluation(150, [0, 0]))
        == "no member is getting better: 2 evaluations without improvement"
    )


def test_stop_after(tmp_path):
    watcher = StopAfter(0.05)
    watcher.on_start(start(tmp_path))
    assert watcher.on_progress(Position(10, None, {})) is None
    time.sleep(0.06)
    assert watcher.on_progress(Position(20, None, {})) == "its 0.05 seconds are over"


def test_the_best_policies_are_kept_when_a_run_goes_on(plain, tmp_path):
    best = SaveBest()
    run = train(
        tmp_path / "run", best, lambda evaluation: "enough" if evaluation.step == 100 else None, SavePolicies(100)
    )
    dac.resume(run.directory, watchers=[SaveBest(), SavePolicies(100)])
    assert_same(run, plain)
    check_kept(run)


@pytest.mark.slow
def test_evaluations_on_a_gymnasium_task_go_on_in_their_file(tmp_path):
    """The task of the run itself, made by a function; a run that was stopped writes no row twice."""
    settings = TINY | {"seeds": [0, 1], "steps": 100, "eval_every": 50, "checkpoint_every": 50}

    def pendulum():
        return gymnasium.make("Pendulum-v1")

    def stop(evaluation):
        return "enough" if evaluation.step == 50 else None

    run = dac.train(
        "dac", "gym:Pendulum-v1", out=tmp_path / "run", **settings, watchers=[EvaluateOn(pendulum, 1, 1), stop]
    )
    other = EvaluateOn(pendulum, 1, 1)
    dac.resume(run.directory, watchers=[other])
    (path,) = run.directory.glob("evaluations-*.csv")
    lines = path.read_text().splitlines()
    assert [line.split(",")[:3] for line in lines[1:]] == [[str(m), str(m), str(s)] for s in (50, 100) for m in (0, 1)]
    assert len(other.rows) == 4
    # the same task, policies and episodes as the run's own evaluation
    own = [row["return"] for row in other.rows]
    np.testing.assert_allclose(own, run.metrics["return"].reshape(-1), rtol=1e-5)


def test_a_function_that_returns_true_is_told_what_is_expected(tmp_path):
    """In other libraries True means go on."""
    with pytest.raises(
        CallbackError, match=r"keep_going failed in on_evaluation .*the reason to stop as text, or None, not"
    ):
        train(tmp_path / "run", keep_going)


def keep_going(evaluation):
    return True
