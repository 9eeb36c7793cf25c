"""Populations side by side: the same runs as one after the other, stopped together and saved."""

import itertools
import os
import signal
import subprocess
import sys
import time

import jax
import pytest

from dac.api import Run
from dac.cli import main
from dac.cli.plan_bar import PlanBar
from dac.cli.reproduce import reproduce
from dac.cluster.driver import train
from dac.cluster.engines.base import Ended
from dac.cluster.engines.local import LocalEngine, find_gpus, per_gpu, share_machine, split_cores
from dac.core.types import UsageError
from dac.experiments.paper import Experiment, Method
from dac.experiments.plan import Job, cells_of, make_plan
from dac.training import memory
from dac.training.watchers import AbstractWatcher

SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 60, "update_after": 20, "random_steps": 20, "eval_every": 20}
NARROW = SMALL | {"hidden": (8,)}
TWO = Experiment(
    "two", "Two", "nothing", (("target", (Method("SAC", "sac", SMALL), Method("narrow", "sac", NARROW))),), seeds=2
)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """Other processes find the tests' compilation cache, and what is set for them is gone afterwards."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")
    monkeypatch.setenv(memory.PROCESSES, "1")


def test_side_by_side_is_one_after_the_other(tmp_path):
    reproduce([TWO], tmp_path / "side", jobs=2, quiet=True)
    reproduce([TWO], tmp_path / "alone", quiet=True)
    folders = [sorted((tmp_path / name / "runs").iterdir()) for name in ("side", "alone")]
    assert [path.name for path in folders[0]] == [path.name for path in folders[1]]
    for side, alone in zip(*folders, strict=True):
        assert Run(side).finished
        assert (side / "metrics.csv").read_bytes() == (alone / "metrics.csv").read_bytes()


def test_one_that_fails_ends_the_others_with_its_words(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    plan = make_plan(cells_of(TWO), tmp_path, [])
    assert len(plan.jobs) == 2
    with pytest.raises(UsageError, match=f"cannot create {tmp_path}/runs/.*: Not a directory"):
        train(plan.jobs, lambda number: AbstractWatcher(), 2)


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 5, 6, 9}, raising=False)
    assert split_cores(2) == [{1, 2}, {5, 6, 9}]
    assert split_cores(5) == [{1}, {2}, {5}, {6}, {9}]
    shares = split_cores(7)  # more than there are: some go without one of their own
    assert len(shares) == 7
    assert all(shares)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert split_cores(2) == [set(), set()]


def test_a_wrong_number_is_refused(tmp_path, capsys):
    assert main(["reproduce", "fig1-maze", "--jobs", "0", "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err == "dac: jobs must be at least 1, not 0\n"
    assert not (tmp_path / "x").exists()


def test_processes_are_spread_over_gpus(tmp_path, monkeypatch):
    """Five at a time on three GPUs: two share a GPU, each has up to half of it, and the freest one is next."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.delenv(name)
    assert find_gpus() == ["4", "6", "7"]
    assert [per_gpu(count, 3) for count in (1, 3, 4, 6, 7)] == [1, 1, 2, 2, 3]
    started = []

    class Pretended:
        def __init__(self, number, job, environment, cores, output):
            self.number = number
            started.append((environment["CUDA_VISIBLE_DEVICES"], environment["XLA_PYTHON_CLIENT_MEM_FRACTION"]))

        def fileno(self):
            return self.number

        def event(self):
            return Ended(self.number)

        def close(self):
            pass

        def stop(self):
            pass

    monkeypatch.setattr("dac.cluster.engines.local.Worker", Pretended)
    monkeypatch.setattr("dac.cluster.engines.local.wait", lambda workers, seconds: workers[1:2])
    engine, job = LocalEngine(5), Job(cells_of(TWO)[0].config, tmp_path / "runs/x", ("SAC",))
    for number in range(5):
        engine.begin(number, job)
    assert started == [(name, "0.450") for name in ("4", "6", "7", "4", "6")]
    assert engine.room() == 0
    assert engine.wait(1) == [Ended(1)]
    engine.begin(5, job)  # 7 and 6 have one population each now
    assert started[-1] == ("6", "0.450")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert find_gpus() == []


def test_memory_is_shared_too(monkeypatch):
    monkeypatch.setattr(memory, "_available_bytes", lambda: 1000)
    assert memory.host_bytes() == 1000
    before = dict(os.environ)
    with share_machine(4):
        assert memory.host_bytes() == 250
        with share_machine(2):
            assert memory.host_bytes() == 500
        assert memory.host_bytes() == 250
    assert memory.host_bytes() == 1000
    assert dict(os.environ) == before


def test_the_share_of_a_gpu_is_what_the_user_says(monkeypatch):
    for name in ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.delenv(name)
    with share_machine(3):
        assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.300"
        assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2")
    with share_machine(3):
        assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2"


@pytest.mark.slow
def test_nothing_stays_set_when_all_have_ended(tmp_path):
    """The next population of this process may use the whole memory again."""
    before = dict(os.environ)
    train(make_plan(cells_of(TWO), tmp_path, []).jobs, lambda number: AbstractWatcher(), 2)
    assert dict(os.environ) == before


@pytest.mark.parametrize(("at_once", "left"), [(1, "50 min"), (2, "25 min"), (3, "17 min"), (8, "17 min")])
def test_the_time_left_is_at_least_that_of_the_longest(tmp_path, at_once, left):
    config = cells_of(TWO)[0].config
    jobs = [Job(config, tmp_path / name, ("DAC",)) for name in "abcd"]
    bar = PlanBar(jobs, [1000.0] * 4, quiet=True, at_once=at_once)
    bar.advance(0, 60, None)  # done
    shown = bar.advance(1, 0, None)
    assert shown == f"25% of the plan, about {left} left"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "everyone"),  # whoever is killed outright cannot save
    [*itertools.product([signal.SIGINT, signal.SIGTERM], [False, True]), (signal.SIGKILL, False)],
)
def test_a_signal_stops_all_and_they_save(tmp_path, number, everyone):
    """Killed outright, it leaves nobody behind: they notice, save and end. Signals may also go to all at once."""
    command = [sys.executable, "-m", "dac", "reproduce", "fig1-maze", "--scale", "0.09", "--jobs", "2"]
    command += ["--out", str(tmp_path)]
    began, log = time.monotonic(), tmp_path / "log.txt"
    with open(log, "w") as file:
        process = subprocess.Popen(command, stderr=file, start_new_session=True)
        while len(list(tmp_path.glob("runs/*/metrics.csv"))) < 2:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - began < 300
            time.sleep(0.2)
        (os.killpg if everyone else os.kill)(process.pid, number)
        assert process.wait(120) == (-number if number == signal.SIGKILL else 128 + number)
    runs = [Run(path.parent) for path in tmp_path.glob("runs/*/config.toml")]
    assert len(runs) == 2
    while any((run.directory / "lock").exists() for run in runs):
        assert time.monotonic() - began < 400
        time.sleep(0.2)
    for run in runs:
        assert run.last_checkpoint() > 0
        assert not run.finished
    said = log.read_text()
    assert "Traceback" not in said
    if number != signal.SIGKILL:
        assert "dac: stopped; continue with: dac reproduce fig1-maze" in said
