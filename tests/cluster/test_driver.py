"""Studies are taken to their end: on simulated devices that fail, and by a driver that trusts directories alone."""

import collections
import dataclasses
import math
import signal
import time

import pytest

from dac.cluster.driver import TRIES, drive
from dac.cluster.engines.base import Ended, Failed, Lost
from dac.cluster.simulation import START, Failures, SimulatedEngine, simulate
from dac.cluster.study import read_study
from dac.config import resolve
from dac.core.types import UsageError
from dac.experiments.budget import Budget, Queue
from dac.experiments.plan import Job, make_plan
from dac.training.signals import Interrupted

STUDY = """
tasks = ["maze", "target", "SparseHopper", "SparseHalfCheetah", "DelayedAnt"]
algorithms = ["dac", "sac", "td3", "sac-div"]
seeds = "0:10"
members = 2

[settings]
steps = 1_000_000
checkpoint_every = 20_000
learning_rate = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4]
batch_size = [32, 64, 128, 256]
gamma = [0.9, 0.95, 0.97, 0.98, 0.99]
"""


def test_ten_thousand_populations_on_sixty_four_devices_that_fail(tmp_path):
    """The planner and the driver are the real ones; nothing is lost, doubled or made twice but for lost steps."""
    (tmp_path / "study.toml").write_text(STUDY)
    began = time.process_time()
    study = read_study(tmp_path / "study.toml")
    plan = make_plan(study.cells, tmp_path / "out", [], fits=None, at_most=study.at_most)
    assert (len(plan.jobs), plan.wanted) == (10_000, 20_000)
    engine, outcome = simulate(
        plan.jobs, 64, lambda job: 2000.0, Failures(hours_between=20, hours_between_preemptions=9)
    )
    assert time.process_time() - began < 10
    assert sorted(outcome.finished) == list(range(10_000))
    assert not outcome.failed
    assert not outcome.open
    # every member is in one population, and every population has made its steps once, beside those that were lost
    counts = collections.Counter(name for job in plan.jobs for name in job.serves)
    assert set(counts.values()) == {1}
    assert len(counts) == 20_000
    assert engine.saved == [1_000_000.0] * 10_000
    made = 2 * math.fsum(engine.made)
    assert made == pytest.approx(plan.agent_steps + engine.lost_steps, rel=1e-9)
    assert engine.losses > 50
    assert engine.preemptions > 150
    assert sum(engine.begun) == 10_000 + outcome.retried == 10_000 + engine.losses + engine.preemptions
    assert 0 < engine.lost_steps <= engine.losses * 2 * 20_000
    # the devices were busy nearly all the time that they were there
    away = (engine.losses + engine.preemptions) * 600
    assert engine.busy + away > 0.98 * 64 * engine.clock
    assert engine.busy == pytest.approx(made / 2000 + START * sum(engine.begun), rel=0.01)


def jobs_of(tmp_path, count=3, **settings):
    config = resolve("sac", "target", [0], {"steps": 1000, "hidden": (8, 8), **settings})
    return [Job(config, tmp_path / f"runs/{number}", ("SAC",)) for number in range(count)]


class Scripted(SimulatedEngine):
    """An engine whose populations end as a script says: event class, steps that are saved, reason."""

    def __init__(self, jobs, script, devices=1):
        super().__init__(jobs, devices, lambda job: 1.0)
        self.script, self.order, self.open, self.stopped = {n: list(s) for n, s in script.items()}, [], [], 0

    def room(self):
        return 1 - len(self.open)

    def begin(self, number, job):
        assert number not in self.open
        self.order.append(number)
        self.open.append(number)

    def wait(self, seconds):
        number = self.open.pop()
        kind, steps, *why = self.script[number].pop(0) if self.script.get(number) else (Ended, 1000)
        self.saved[number] = steps
        return [kind(number, *why)]

    def stop(self):
        self.stopped += 1

    def close(self):
        self.closed = True


def run(jobs, script, **more):
    said, engine = [], Scripted(jobs, script)
    outcome = drive(jobs, engine, made=engine.steps_saved, say=said.append, **more)
    assert engine.closed
    return engine, outcome, said


def test_what_is_lost_goes_on_in_its_place_in_the_order(tmp_path):
    engine, outcome, said = run(jobs_of(tmp_path), {0: [(Lost, 400, "its node is gone")], 2: [(Ended, 100)]})
    assert engine.order == [0, 0, 1, 2, 2]
    assert (outcome.finished, outcome.failed, outcome.retried) == ([0, 1, 2], {}, 2)
    assert said == [
        "population 1 was lost (its node is gone); it goes on from step 400",
        "population 3 was lost (its process ended before its last step); it goes on from step 100",
    ]


def test_what_is_lost_again_and_again_is_given_up(tmp_path):
    """Three times at the same step; with a step saved in between it may be lost as often as it likes."""
    away = [(Lost, 0, "killed by SIGKILL")] * 9
    engine, outcome, said = run(jobs_of(tmp_path, 2), {0: away})
    assert engine.order == [0, 0, 0, 1]
    assert outcome.failed == {0: f"lost {TRIES} times without a step saved in between: killed by SIGKILL"}
    assert outcome.finished == [1]
    assert said[-1].startswith("population 1 failed: lost 3 times")
    slow = [(Lost, steps, "preempted") for steps in (100, 200, 300, 300, 400, 500, 600)]
    _, outcome, _ = run(jobs_of(tmp_path, 1), {0: slow})
    assert (outcome.finished, outcome.retried) == ([0], 7)


def test_the_directory_is_the_truth(tmp_path):
    """What is finished is finished, whatever the engine says; what ended and is not, is not."""
    _, outcome, _ = run(jobs_of(tmp_path), {0: [(Lost, 1000, "gone")], 1: [(Failed, 1000, "?")], 2: [(Ended, 999)]})
    assert (outcome.finished, outcome.retried, outcome.failed) == ([0, 1, 2], 1, {})


def test_one_that_fails_is_reported_and_the_others_go_on(tmp_path):
    engine, outcome, said = run(jobs_of(tmp_path), {1: [(Failed, 40, "every member is frozen")]})
    assert (outcome.finished, outcome.failed) == ([0, 2], {1: "every member is frozen"})
    assert said == ["population 2 failed: every member is frozen"]
    assert not engine.stopped
    with pytest.raises(UsageError, match="every member is frozen"):
        run(jobs_of(tmp_path), {0: [(Failed, 40, "every member is frozen")]}, stop_at_failure=True)


def test_a_signal_has_all_saved_and_names_the_command(tmp_path):
    """Of eight that wait, two run: they save, the rest is not begun, and the same study has nothing twice."""
    jobs = jobs_of(tmp_path, 8)
    engine = SimulatedEngine(jobs, 2, lambda job: 1.0)
    real, sent = engine.wait, []

    def wait(seconds):
        if engine.clock > 1500 and not sent:  # a second one would end this process at once
            sent.append(True)
            signal.raise_signal(signal.SIGTERM)
        return real(300.0)

    engine.wait = wait
    with pytest.raises(Interrupted, match=r"^stopped; continue with: dac sweep x$") as caught:
        drive(jobs, engine, made=engine.steps_saved, command="dac sweep x")
    assert caught.value.exit_code == 128 + signal.SIGTERM
    done = [steps for steps in engine.saved if steps == 1000]
    begun = [steps for steps in engine.saved if 0 < steps < 1000]
    assert (len(done), len(begun), engine.saved.count(0)) == (2, 2, 4)
    left = [dataclasses.replace(job, done=int(engine.saved[n])) for n, job in enumerate(jobs) if engine.saved[n] < 1000]
    again, outcome = simulate(left, 2, lambda job: 1.0)
    assert len(outcome.finished) == 6
    assert math.fsum(again.made) - sum(job.done for job in left) == 6000 - math.fsum(map(int, begun))


def test_a_budget_ends_a_study(tmp_path):
    jobs = jobs_of(tmp_path, 4)
    engine = SimulatedEngine(jobs, 1, lambda job: 1.0)
    queue = Queue(4, [1025.0] * 4, Budget(50, lambda: engine.clock))
    outcome = drive(jobs, engine, queue=queue, made=engine.steps_saved, pause=math.inf)
    assert (outcome.finished, outcome.open) == ([0, 1], [2, 3])
    # one that takes longer than was thought is saved at the end
    engine = SimulatedEngine(jobs, 1, lambda job: 0.5)
    queue = Queue(4, [1025.0] * 4, Budget(60, lambda: engine.clock))
    outcome = drive(jobs, engine, queue=queue, made=engine.steps_saved, pause=math.inf)
    assert (outcome.finished, outcome.open) == ([0], [1, 2, 3])
    assert (engine.clock, engine.saved) == (3600, [1000, 775, 0, 0])


def test_devices_that_are_away_are_waited_for(tmp_path):
    """One device, preempted about once in 500 s: the study waits for it and loses nothing."""
    jobs = jobs_of(tmp_path, 5)
    engine, outcome = simulate(jobs, 1, lambda job: 1.0, Failures(hours_between_preemptions=500 / 3600))
    assert len(outcome.finished) == 5
    assert engine.preemptions >= 3
    assert engine.lost_steps == 0
    assert engine.clock == pytest.approx(engine.busy + 600 * engine.preemptions)
