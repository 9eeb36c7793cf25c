"""Which populations are trained when there is not time for all of them, and that the rest is saved or not begun."""

import itertools
import math
import re

import jax
import pytest

from dac.api import Run
from dac.cli import main
from dac.cli.reproduce import describe_end, reproduce
from dac.cluster.driver import train
from dac.core.types import UsageError
from dac.experiments import budget as budgets
from dac.experiments.budget import Budget, Queue, order_by_value, what_fits
from dac.experiments.paper import Experiment, Method
from dac.experiments.reproduce import Reproduction, steps_made
from dac.training.watchers import AbstractWatcher
from tests.common import shrink_maze

SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 200, "update_after": 20, "random_steps": 20, "eval_every": 20}
NARROW, SHORT = SMALL | {"hidden": (8,)}, SMALL | {"steps": 60}
WIDE, OTHER = Method("wide", "sac", SMALL), Method("narrow", "sac", NARROW)
TWO = Experiment("two", "Two", "nothing", (("target", (WIDE, OTHER)),), seeds=2)


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """Other processes find the tests' compilation cache."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self):
        return self.now


def plans_of(*needs):
    return [frozenset(need) for need in needs]


def test_what_fits_is_begun_in_order():
    assert what_fits(range(3), [10, 20, 30], 60) == [0, 1, 2]
    assert what_fits(range(3), [10, 20, 30], 45) == [0, 1]
    assert what_fits(range(3), [10, 60, 30], 45) == [0, 2]  # one that does not fit is passed over
    assert what_fits([2, 0, 1], [10, 20, 30], 45) == [2, 0]
    assert what_fits(range(3), [50, 50, 50], 45) == []
    # two at a time: the third begins when the shorter one ends
    assert what_fits(range(3), [10, 40, 30], 40, at_once=2) == [0, 1, 2]
    assert what_fits(range(3), [20, 40, 30], 40, at_once=2) == [0, 1]


def test_panels_that_cost_least_come_first():
    """A panel is complete with all its populations: 0 and 1 for the first, 2 for the second."""
    assert order_by_value(plans_of({0, 1}, {2}), [10, 10, 15], math.inf) == [2, 0, 1]
    assert order_by_value(plans_of({0, 1}, {2}), [5, 6, 15], math.inf) == [0, 1, 2]
    # within a panel the shortest first
    assert order_by_value(plans_of({0, 1, 2}), [30, 10, 20], math.inf) == [1, 2, 0]


def test_what_completes_several_panels_is_worth_more():
    """Two panels for 30 s are better than one for 20 s; what a panel shares with a chosen one is paid for already."""
    assert order_by_value(plans_of({0}, {1}, {1}), [20, 30], math.inf) == [1, 0]
    assert order_by_value(plans_of({0, 1}, {0}, {2}), [10, 11, 12], math.inf) == [0, 1, 2]


def test_panels_that_fit_come_before_those_of_greater_value():
    """Two panels for 100 s do not fit into 60 s, one for 55 s does."""
    needs, seconds = plans_of({0, 1}, {0, 1}, {2}), [50, 50, 55]
    assert order_by_value(needs, seconds, 1000) == [0, 1, 2]
    assert order_by_value(needs, seconds, 60) == [2, 0, 1]
    assert order_by_value(needs, seconds, 60, at_once=2) == [0, 1, 2]  # side by side both fit


def test_every_population_is_in_the_order_once():
    for limit in (0, 25, 1000):
        for needs in itertools.combinations(plans_of({0}, {0, 1}, {2, 3}, {1, 3}), 2):
            assert sorted(order_by_value(needs, [10, 20, 30, 40, 50], limit)) == [0, 1, 2, 3, 4]


def test_the_queue_gives_what_fits_into_what_is_left():
    clock = Clock()
    queue = Queue(3, [50, 20, 10], Budget(1, clock))
    assert queue.take() == 0
    clock.now = 30
    assert (queue.take(), queue.time_left(), queue.used_up()) == (1, 30, False)
    clock.now = 51
    assert queue.take() is None
    clock.now = 61
    assert (queue.take(), queue.time_left(), queue.used_up()) == (None, None, True)
    endless = Queue(2)
    assert [endless.take() for _ in range(3)] == [0, 1, None]
    assert (endless.time_left(), endless.used_up()) == (None, False)


class Ticking(AbstractWatcher):
    """Lets the time pass with the steps of a population."""

    def __init__(self, clock, seconds_per_step):
        self._clock, self._seconds, self._steps = clock, seconds_per_step, 0

    def on_progress(self, position):
        self._clock.now += self._seconds * (position.step - self._steps)
        self._steps = position.step


@pytest.mark.parametrize("scale", ["slower", "as long"])
def test_a_budget_that_ends_in_the_middle(tmp_path, scale):
    """The second population takes longer than was estimated: it stops when the budget is up, saved, and goes on later.

    One that takes as long as it was estimated is done in time.
    """
    work, clock = Reproduction([TWO], tmp_path), Clock()
    plan = work.plan()
    speed = {0: 0.5, 1: 1.0 if scale == "slower" else 0.5}
    budget = Budget(200 / 60, clock)
    train(plan.jobs, lambda number: Ticking(clock, speed[number]), queue=Queue(2, [100, 100], budget))
    first, second = (Run(job.directory) for job in plan.jobs)
    assert first.finished
    assert steps_made(plan.jobs[0]) == 200
    if scale == "as long":
        assert second.finished
        return
    assert not second.finished
    assert 100 <= second.last_checkpoint() < 200
    assert steps_made(plan.jobs[1]) == second.last_checkpoint()
    said = describe_end(plan, [100, 100], budget, "again")
    made = second.last_checkpoint()
    assert said == (
        f"budget of 3 min: 1 of 2 populations are done, narrow on target is saved at {made} of 200 steps; "
        f"go on with: again --budget {200 / 60:g}"
    )
    # the rest, from where it was saved, is the same as in one go
    later = Reproduction([TWO], tmp_path).plan()
    assert [(job.resume, job.done) for job in later.jobs] == [(True, made)]
    train(later.jobs, lambda number: AbstractWatcher())
    reproduce([TWO], tmp_path / "once", quiet=True)
    (once,) = (tmp_path / "once" / "runs").glob(second.directory.name)
    assert (once / "metrics.csv").read_bytes() == (second.directory / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_side_by_side_they_stop_together(tmp_path, monkeypatch):
    """At the end of the budget each of two processes is asked to save and end; nothing more is begun."""
    long = SMALL | {"steps": 100_000, "checkpoint_every": 1000, "eval_every": 1000}
    methods = tuple(Method(f"{n} units", "sac", long | {"hidden": (n,)}) for n in (8, 9, 10))
    three = Experiment("three", "Three", "nothing", (("target", methods),), seeds=2)
    plan = Reproduction([three], tmp_path).plan()
    started, updates = [], {}

    class Listening(AbstractWatcher):
        def __init__(self, number):
            self._number = number
            started.append(number)

        def on_progress(self, position):
            updates[self._number] = position.step

    # it is up when both have said how far they are
    monkeypatch.setattr(Budget, "left", lambda budget: 0.0 if len(updates) == 2 else 1.0)
    train(plan.jobs, Listening, at_once=2, queue=Queue(3, [0, 0, 0], Budget(1)))
    assert started == [0, 1]
    for job in plan.jobs[:2]:
        assert 0 < steps_made(job) < 100_000
    assert not plan.jobs[2].directory.exists()


def test_nothing_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "dac.cli.reproduce.estimate", lambda jobs, runs: ([600.0 + 60 * i for i in range(5)], "as said")
    )
    arguments = ["reproduce", "fig1-maze", "--scale", "0.01", "--out", str(tmp_path), "--budget", "2"]
    assert main(arguments) == 0
    out, error = capsys.readouterr()
    assert "0 of 5 populations fit into the budget of 2 min" in out
    assert (
        "budget of 2 min: no population fits, the shortest takes about 10 min, 5 not begun; "
        f"go on with: dac reproduce fig1-maze --out {tmp_path} --scale 0.01 --budget 10\n"
    ) in out
    assert not (tmp_path / "runs").exists()
    assert error == ""


@pytest.mark.slow
def test_the_command_does_what_fits(tmp_path, monkeypatch, capsys):
    """Five populations of a hundredth of the maze; the estimates say that the two of RND and MaxEnt(State) fit."""

    shrink_maze(monkeypatch)

    def estimate(jobs, runs):
        return [20.0 if {"RND", "MaxEnt(State)"} & set(job.methods) else 3600.0 for job in jobs], "as said"

    monkeypatch.setattr("dac.cli.reproduce.estimate", estimate)
    arguments = ["reproduce", "fig1-maze", "--scale", "0.01", "--out", str(tmp_path), "--budget", "30"]
    assert main([*arguments, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^RND on maze .* yes *$", shown, re.M)
    assert re.search(r"^DAC 0.5, SAC on maze .* no *$", shown, re.M)
    assert shown.endswith("2 of 5 populations fit into the budget of 30 min\n")
    assert not any(tmp_path.iterdir())
    assert main(arguments) == 0
    out, error = capsys.readouterr()
    assert "2 of 5: MaxEnt(State) on maze" in error
    assert "of the budget" in error
    assert "3 of 5" not in error
    assert f"2 of 5 populations are done, 3 not begun; go on with: {' '.join(['dac', *arguments[:2]])}" in out
    assert sorted(Run(p.parent).config.algorithm for p in tmp_path.rglob("summary.json")) == ["maxent-state", "rnd"]
    page = (tmp_path / "fig1-maze" / "report.html").read_text()
    assert "SAC on maze: nothing yet" in page


def test_a_wrong_budget(tmp_path, capsys):
    start = ["reproduce", "fig1-maze", "--out", str(tmp_path / "x")]
    for value, message in {
        "0": "budget must be above 0 minutes, not 0",
        "-3": "budget must be above 0 minutes, not -3",
        "nan": "budget must be above 0 minutes, not nan",
        "inf": "budget must be above 0 minutes, not inf",
        "soon": "argument --budget: invalid float value: 'soon'",
    }.items():
        assert main([*start, f"--budget={value}"]) == 2
        assert capsys.readouterr().err == f"dac: {message}\n"
    for other in ("--draw", "--status"):
        assert main([*start, other, "--budget", "5"]) == 2
        assert capsys.readouterr().err == "dac: --budget is for training: it does not go with --draw or --status\n"
    assert not (tmp_path / "x").exists()
    with pytest.raises(UsageError):
        budgets.Budget(0)
