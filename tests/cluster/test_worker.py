"""The process of one population: it trains what `dac train` would, and how it ends can be told from outside."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

import jax
import pytest

from dac.cluster import worker
from dac.cluster.engines.base import Ended, Failed, Lost
from dac.cluster.worker import Worker, shares
from dac.config import resolve
from dac.core.errors import UsageError
from dac.experiments.plan import Job
from dac.rundir.lock import LEASE, Fenced, InUse, Lock
from dac.rundir.names import ATTEMPTS
from dac.rundir.reading import RunDirectory
from dac.training.memory import PROCESSES
from dac.training.run import run
from tests.rundir.test_lock import can_unshare, host

PYTHON = sys.executable
SMALL = {"hidden": (8, 8), "batch_size": 16, "update_after": 20, "random_steps": 20, "eval_every": 5000}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)


def job(directory, steps=20_000, **settings):
    given = SMALL | {"steps": steps, "checkpoint_every": 2_000} | settings
    return Job(resolve("sac", "target", (0, 1), given), Path(directory), ("SAC",))


def attempts(directory):
    return [json.loads(line) for line in (directory / ATTEMPTS).read_text().splitlines()]


def wait_for_checkpoint(of, process):
    end = time.monotonic() + 120
    while not list(of.directory.glob("checkpoint/step-*.json")):
        assert process.running
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_worker_whose_parent_is_gone_saves_and_another_goes_on_to_the_bit(tmp_path):
    there, alone = job(tmp_path / "there"), job(tmp_path / "alone")
    first = Worker(3, there)
    wait_for_checkpoint(there, first)
    first._process.stdin.close()  # as the system does when a process dies
    event = first.event(60)
    assert isinstance(event, Lost)
    assert event.number == 3
    assert event.why.startswith("stopped at step ")
    saved = RunDirectory(there.directory).last_checkpoint()
    assert event.why.startswith(f"stopped at step {saved:,}; ")
    assert 0 < saved < 20_000
    second = Worker(3, there)
    assert wait([second], 120) == [second]
    assert second.event() == Ended(3)
    run(alone.config, alone.directory, [])
    for name in ("metrics.csv", "policy.safetensors", "config.toml"):
        assert (there.directory / name).read_bytes() == (alone.directory / name).read_bytes()
    assert [(a.get("from"), a.get("to")) for a in attempts(there.directory)] == [
        (0, None),
        (None, saved),
        (saved, None),
        (None, 20_000),
    ]
    for process in (first, second):
        process.close()
    assert worker._train(there) == (0, "")  # its word was lost, and it is asked again
    assert len(attempts(there.directory)) == 4


@pytest.mark.slow
def test_what_ends_a_worker_can_be_told(tmp_path):
    """Asked to stop it has ended; killed, or stopped by somebody else, it is lost; and a wrong job has failed."""
    ends = [
        (lambda w: w.stop(), Ended(0)),
        (lambda w: os.kill(w.pid, signal.SIGTERM), Lost(0, "stopped at step ")),
        (lambda w: w.kill(), Lost(0, "killed by SIGKILL")),
    ]
    for number, (end, expected) in enumerate(ends):
        training = job(tmp_path / f"run{number}", steps=10_000_000)
        process = Worker(0, training)
        wait_for_checkpoint(training, process)
        end(process)
        event = process.event(60)
        assert type(event) is type(expected)
        assert getattr(event, "why", "").startswith(getattr(expected, "why", ""))
        assert process.event() == event
        process.close()
    (tmp_path / "file").write_text("in the way")
    process = Worker(7, job(tmp_path / "file/run"))
    assert process.event(120) == Failed(7, f"cannot create {tmp_path}/file/run: Not a directory")
    process.close()


@pytest.mark.slow
def test_whoever_lost_the_directory_says_so(tmp_path):
    """A newer lock appears, as if another node had taken the population over."""
    training = job(tmp_path / "run", steps=10_000_000)
    process = Worker(0, training)
    wait_for_checkpoint(training, process)
    (training.directory / "lock.1").write_text(json.dumps({"pid": 1, "host": "other", "beat": "0", "lease": 60}))
    event = process.event(60)
    process.close()
    assert isinstance(event, Lost)
    assert "was taken over by process 1 on other" in event.why


def on_host(monkeypatch, folder, name):
    """Let workers that start from here on be on another machine: in a UTS namespace of their own."""
    python = folder / f"python-on-{name}"
    python.write_text(f'#!/bin/sh\nexec {shlex.join(host(name, PYTHON))} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.slow
@pytest.mark.skipif(not can_unshare(), reason="a user may not have namespaces of their own here")
def test_a_machine_that_was_paused_does_no_harm_to_the_one_that_took_over(tmp_path, monkeypatch):
    """One machine stands still in the middle of training, another one finishes, and the first comes back."""
    monkeypatch.setenv(LEASE, "3")
    training, alone = job(tmp_path / "run", steps=60_000), job(tmp_path / "alone", steps=60_000)
    on_host(monkeypatch, tmp_path, "one")
    first = Worker(0, training)
    wait_for_checkpoint(training, first)
    os.kill(first.pid, signal.SIGSTOP)
    on_host(monkeypatch, tmp_path, "two")
    second = Worker(0, training)
    assert second.event(300) == Ended(0)
    os.kill(first.pid, signal.SIGCONT)
    event = first.event(60)
    for process in (first, second):
        process.close()
    assert isinstance(event, Lost)
    assert "was taken over while this process gave no sign of life" in event.why
    lines = attempts(training.directory)
    assert [(line["host"], "from" in line) for line in lines] == [("one", True), ("two", True), ("two", False)]
    assert 0 < lines[1]["from"] < 60_000
    run(alone.config, alone.directory, [])
    for name in ("metrics.csv", "policy.safetensors", "config.toml"):
        assert (training.directory / name).read_bytes() == (alone.directory / name).read_bytes()


@pytest.mark.parametrize(
    ("error", "code", "why"),
    [
        (UsageError("no such thing"), worker.FAILED, "no such thing"),
        (UsageError("every member is frozen"), worker.FAILED, "every member is frozen"),
        (Fenced("taken over"), worker.TAKEN, "taken over"),
        (KeyboardInterrupt("stopped at step 5"), worker.STOPPED, "stopped at step 5"),
        (MemoryError("no\nroom"), 1, "MemoryError: no room"),
    ],
)
def test_an_exit_code_for_every_end(tmp_path, monkeypatch, capsys, error, code, why):
    def fail(*arguments, **more):
        raise error

    monkeypatch.setattr(worker, "run", fail)
    assert worker._train(job(tmp_path)) == (code, why)
    assert ("Traceback" in capsys.readouterr().err) == (code == 1)


def test_it_waits_for_the_one_before_to_save(tmp_path, monkeypatch):
    """The directory is in use for a while, and then it is free; or it stays in use for more than two leases."""
    monkeypatch.setenv(LEASE, "2")
    monkeypatch.setattr(worker.time, "sleep", lambda seconds: calls.append("slept") or Lock.__exit__(other))
    calls, directory = [], tmp_path / "run"
    directory.mkdir()

    def train(*arguments, resuming, **more):
        calls.append("tried")
        with Lock(directory):
            pass

    monkeypatch.setattr(worker, "run", train)
    other = Lock(directory)
    other.__enter__()
    assert worker._train(job(directory)) == (0, "")
    assert calls == ["tried", "slept", "tried"]

    def busy(*arguments, **more):
        raise InUse("run is in use by process 1 on other")

    monkeypatch.setattr(worker, "run", busy)
    monkeypatch.setenv(LEASE, "0.0001")
    assert worker._train(job(directory)) == (worker.TAKEN, "run is in use by process 1 on other")


@pytest.mark.parametrize(
    ("code", "asked", "event"),
    [
        (0, False, Ended(1)),
        (143, True, Ended(1)),
        (143, False, Lost(1, "why")),
        (-15, True, Ended(1)),
        (-15, False, Lost(1, "killed by SIGTERM")),
        (-9, True, Lost(1, "killed by SIGKILL")),
        (-11, False, Lost(1, "killed by SIGSEGV")),
        (2, True, Failed(1, "why")),
        (75, True, Lost(1, "why")),
        (1, False, Lost(1, "why")),
    ],
)
def test_what_an_end_means(code, asked, event):
    assert worker._event(1, code, "why", asked) == event


def test_shares_of_a_machine(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
    assert shares(3) == {PROCESSES: "3"}
    assert shares(2, 0.25) == {
        PROCESSES: "2",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.225",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
    }


def test_cores_are_given_and_taken_back():
    before = os.sched_getaffinity(0)
    with worker._on({min(before)}):
        said = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert said.stdout.strip() == str({min(before)})
    assert os.sched_getaffinity(0) == before
