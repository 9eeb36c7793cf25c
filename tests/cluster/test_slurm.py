"""The engine of Slurm, on submitit's own processes instead of a cluster: preemption, stopping, options."""

import dataclasses
import os
import signal
import time

import jax
import pytest

from dac.cluster.engines.base import Ended, Failed, Lost
from dac.cluster.engines.slurm import FOLDER, Options, SlurmEngine, Training, make
from dac.core.errors import UsageError
from dac.training.run import run
from tests.cluster.ray_cluster import descendants
from tests.cluster.test_ray import SAME, checkpoint_of, several
from tests.cluster.test_worker import attempts, job


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)


def until(condition, engine, seconds=600):
    end, events = time.monotonic() + seconds, []
    while not condition(events):
        events += engine.wait(0.2)
        assert time.monotonic() < end
    return events


@pytest.mark.slow
def test_a_job_that_is_preempted_is_queued_again_and_goes_on_to_the_bit(tmp_path):
    """One of two jobs gets the signal of Slurm in the middle; then both are asked to stop, and others finish them."""
    jobs = several(tmp_path / "runs", 2, steps=60_000)
    engine = make(options={"cluster": "local", "time": "0:20"})
    for number, made in enumerate(jobs):
        engine.begin(number, made)
    until(lambda events: checkpoint_of(jobs[0]), engine)
    (task, *_) = descendants(engine._running[0]._process.pid)
    os.kill(task, signal.SIGUSR2)  # as Slurm does; submitit's own `_interrupt` ends its local controller
    until(lambda events: len(attempts(jobs[0].directory)) >= 3, engine)
    (first, stopped, again) = attempts(jobs[0].directory)[:3]
    assert first["from"] == 0
    assert stopped["end"].startswith("stopped at step ")
    assert again["from"] == stopped["to"] > 0
    assert again["pid"] != first["pid"]
    engine.stop()
    events = until(lambda events: len(events) == 2, engine)
    engine.close()
    assert sorted(events, key=lambda event: event.number) == [Ended(0), Ended(1)]
    engine = make(options={"cluster": "local"})
    for number, made in enumerate(jobs):
        engine.begin(number, made)
    events = until(lambda events: len(events) == 2, engine)
    engine.close()
    for made in jobs:
        lines = attempts(made.directory)
        assert lines[-1]["to"] == 60_000
        ends = [line["to"] for line in lines if "to" in line]
        assert [line["from"] for line in lines if "from" in line] == [0, *ends[:-1]]  # no step was made twice
        alone = tmp_path / "here" / made.directory.name
        run(made.config, alone, [])
        for name in SAME:
            assert (made.directory / name).read_bytes() == (alone / name).read_bytes()
    assert not list((tmp_path / FOLDER).glob("stop-*"))


def test_what_waits_for_its_array_ends_when_it_is_stopped(tmp_path):
    engine = SlurmEngine(Options(cluster="local"), jobs=3)
    engine.begin(5, job(tmp_path / "runs/a"))
    assert engine.room() == 2
    engine.stop()
    assert list(engine.wait(5)) == [Ended(5)]
    assert engine.room() == 3
    engine.close()
    assert not (tmp_path / FOLDER).exists()


class Queued:
    """A job as submitit shows it."""

    job_id = "12_3"

    def __init__(self, state):
        self.state, self.cancelled = state, False

    def done(self):
        return False

    def cancel(self):
        self.cancelled = True


def test_who_waits_for_a_node_is_taken_out_of_the_queue_and_who_runs_may_save(tmp_path):
    engine = SlurmEngine(Options())
    engine._stop = tmp_path / "stop-1"
    engine._running = {number: Queued(state) for number, state in enumerate(["PENDING", "RUNNING", "UNKNOWN"])}
    jobs = dict(engine._running)
    engine.stop()
    assert [job.cancelled for job in jobs.values()] == [True, False, True]
    assert list(engine.wait(0)) == [Ended(0), Ended(2)]
    assert (tmp_path / "stop-1").exists()
    assert list(engine._running) == [1]


def test_a_job_without_a_result_is_lost(tmp_path):
    class Gone(Queued):
        def done(self):
            return True

        def result(self):
            raise RuntimeError("Job 12_3 has not produced any output\n(state: NODE_FAIL)\n")

    engine = SlurmEngine(Options())
    engine._running = {4: Gone("NODE_FAIL")}
    assert list(engine.wait(1)) == [Lost(4, "its job 12_3 ended in state NODE_FAIL: (state: NODE_FAIL)")]


def test_no_slurm_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = make()
    engine.begin(0, job(tmp_path / "runs/a"))
    with pytest.raises(UsageError, match="cannot use Slurm: "):
        engine.wait(2)


def test_a_node_that_does_not_share_the_directory(tmp_path):
    training = Training(2, job(tmp_path / "runs/a"), tmp_path / "nowhere/stop", 60)
    why = f"the node does not see {tmp_path}/nowhere: all nodes have to share it"
    assert training() == Failed(2, why)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Options()),
        ({"time": "24:30", "gpus": "1", "memory": "3.5"}, Options(time=1470, gpus=1, memory=3.5)),
        ({"qos": "low", "partition": "gpu"}, Options(more=(("partition", "gpu"), ("qos", "low")))),
    ],
)
def test_options(options, expected):
    assert make(options=options)._options == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"partitoin": "gpu"},
            r"no option 'partitoin' \(accepted: time, cpus, gpus, memory, grace, cluster, partition",
        ),
        ({"time": "soon"}, "time of the engine slurm must be a whole number, not 'soon'"),
        ({"cpus": "0"}, "cpus of the engine slurm must be a whole number, not '0'"),
        ({"gpus": "-1"}, "gpus of the engine slurm must be a whole number, not '-1'"),
        ({"memory": "inf"}, "memory of the engine slurm must be a number, not 'inf'"),
        ({"cluster": "lsf"}, "cluster of the engine slurm must be slurm or local, not 'lsf'"),
    ],
)
def test_options_that_are_none(options, message):
    with pytest.raises(UsageError, match=message):
        make(options=options)


def test_it_takes_no_address():
    with pytest.raises(UsageError, match="takes no `address=`"):
        make(address="login")


def test_the_parameters_of_a_job(tmp_path):
    """What submitit hands to sbatch."""
    more = (("partition", "gpu"), ("account", "lab"))
    engine = SlurmEngine(dataclasses.replace(Options(), gpus=1, more=more), jobs=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("submitit.slurm.slurm.SlurmExecutor.affinity", classmethod(lambda cls: 2))
        executor = engine._executor(tmp_path)
        text = executor._executor._make_submission_file_text("python", "id")
    for line in ("--partition=gpu", "--account=lab", "--time=240", "--gpus-per-node=1", "--signal=USR2@120", "--mem=8"):
        assert f"#SBATCH {line}" in text
    assert executor._executor.max_num_timeout == 1000
