"""The engine of a Ray cluster: nodes that are lost, results that come home, and requests that cannot be met."""

import dataclasses
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import jax
import pytest

from dac.cluster.driver import Follower, drive
from dac.cluster.engines import ray as engine_module
from dac.cluster.engines.base import Ended, Failed, Lost
from dac.cluster.engines.local import LocalEngine
from dac.cluster.engines.ray import Order, RayEngine, make
from dac.core.errors import UsageError
from dac.rundir.reading import RunDirectory
from dac.training.watchers import AbstractWatcher
from tests.cluster.ray_cluster import descendants, ray_nodes
from tests.cluster.test_worker import attempts, job

SAME = ("metrics.csv", "policy.safetensors", "config.toml")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def several(folder, count, **settings):
    """Populations of two seeds each."""
    jobs = [job(folder / f"{number:02d}", **settings) for number in range(count)]
    return [
        dataclasses.replace(j, config=dataclasses.replace(j.config, seeds=(2 * n, 2 * n + 1)))
        for n, j in enumerate(jobs)
    ]


def checkpoint_of(job):
    return max((int(path.stem[5:]) for path in job.directory.glob("checkpoint/step-*.json")), default=0)


def same_as_local(jobs, folder):
    """Compare with what the local engine makes of the same populations."""
    twins = [dataclasses.replace(made, directory=folder / "runs" / made.directory.name) for made in jobs]
    assert sorted(drive(twins, LocalEngine(2)).finished) == list(range(len(jobs)))
    for made, twin in zip(jobs, twins, strict=True):
        for name in SAME:
            assert (made.directory / name).read_bytes() == (twin.directory / name).read_bytes()


class Looking(Follower):
    """Calls a function now and then with the numbers of the populations that train."""

    def __init__(self, jobs, function):
        super().__init__(jobs, lambda number: AbstractWatcher())
        self._function = function

    def look(self):
        self._function(set(self._shown))


@pytest.mark.slow
def test_a_node_is_lost_in_the_middle_of_twelve_populations(tmp_path):
    """The study finishes, its results are those of the local engine to the bit, and only lost steps are repeated."""
    jobs, lost, said = several(tmp_path / "there", 12), {}, []
    with ray_nodes(1, 1, 1) as (nodes, three):
        raylet = three[2].all_processes["raylet"][0].process.pid

        def lose_one(running):
            """Once three are done and one on the third node has a checkpoint, without being at its end."""
            done = sum(RunDirectory(made.directory).finished for made in jobs if made.resume)
            if lost or done < 3:
                return
            there = set(descendants(raylet))
            for number in running:
                made = jobs[number]
                if 0 < checkpoint_of(made) < 16_000 and attempts(made.directory)[-1]["pid"] in there:
                    nodes.lose(three[2])
                    lost[number] = checkpoint_of(made)
                    return

        engine = RayEngine(nodes.address)
        assert engine.room() == 3
        outcome = drive(jobs, engine, follower=Looking(jobs, lose_one), say=said.append, pause=0.1)
    ((number, saved),) = lost.items()
    assert sorted(outcome.finished) == list(range(12))
    assert not outcome.failed
    assert not outcome.open
    assert outcome.retried == 1
    (line,) = said
    assert line.startswith(f"population {number + 1} was lost (")
    assert line.endswith(f"; it goes on from step {saved:,}")
    for index, made in enumerate(jobs):
        steps = [(line.get("from"), line.get("to")) for line in attempts(made.directory)]
        once = [(0, None), (None, 20_000)]
        again = [(0, None), (saved, None), (None, 20_000)]  # the first had no time to say where it was
        assert steps == (again if index == number else once)
    same_as_local(jobs, tmp_path / "here")


@pytest.mark.slow
def test_results_come_home_from_a_storage_and_another_node_goes_on(tmp_path, monkeypatch):
    """Nodes see the storage alone. The engine is asked to stop, and another one goes on from what it has saved."""
    monkeypatch.setattr(engine_module, "HOME", 0.5)
    storage = f"file://{tmp_path}/bucket"
    jobs = several(tmp_path / "home/runs", 2, steps=40_000)
    with ray_nodes(1, 1) as (nodes, _):
        engine = RayEngine(nodes.address, storage=storage)
        for number, made in enumerate(jobs):
            engine.begin(number, made)
        end = time.monotonic() + 600
        while not all(list((tmp_path / "bucket" / j.directory.name).glob("checkpoint/*.json")) for j in jobs):
            assert engine.wait(0.2) == []
            assert time.monotonic() < end
        engine.stop()
        events = []
        while len(events) < 2:
            assert time.monotonic() < end
            events += engine.wait(1.0)
        engine.close()
        assert sorted(events, key=lambda e: e.number) == [Ended(0), Ended(1)]
        saved = [checkpoint_of(made) for made in jobs]
        assert all(0 < step < 40_000 for step in saved)
        engine = RayEngine(nodes.address, storage=storage)
        assert sorted(drive(jobs, engine).finished) == [0, 1]
    for made, step in zip(jobs, saved, strict=True):
        steps = [(line.get("from"), line.get("to")) for line in attempts(made.directory)]
        assert steps == [(0, None), (None, step), (step, None), (None, 40_000)]
        copied = tmp_path / "bucket" / made.directory.name
        assert (copied / "summary.json").read_bytes() == (made.directory / "summary.json").read_bytes()
    same_as_local(jobs, tmp_path / "here")


STUDY = """
tasks = ["target"]
algorithms = ["sac"]
seeds = "0:4"
members = 2

[settings]
hidden = [8, 8]
batch_size = 16
update_after = 20
random_steps = 20
eval_every = 20000
checkpoint_every = 2000
steps = 60000
"""


@pytest.mark.slow
def test_a_study_on_ray_is_interrupted_and_goes_on(tmp_path):
    """Ctrl-C has every population save; the same command finishes, and no step is made twice."""
    (tmp_path / "study.toml").write_text(STUDY)
    command = [sys.executable, "-m", "dac", "sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")]
    with ray_nodes(1, 1) as (nodes, _):
        command += ["--engine", "ray", "--address", nodes.address, "--option", "cpus=1"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 600
        while len({path.parent for path in tmp_path.glob("out/runs/*/checkpoint/step-*.json")}) < 2:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 130, said
        assert f"continue with: dac sweep {tmp_path}/study.toml --engine ray" in said
        assert "--option cpus=1" in said
        runs = sorted((tmp_path / "out/runs").iterdir())
        saved = [attempts(path)[-1]["to"] for path in runs]
        assert len(runs) == 2
        assert subprocess.run(command, timeout=600, check=False).returncode == 0
    for path, step in zip(runs, saved, strict=True):
        assert RunDirectory(path).finished
        steps = [line.get("from", line.get("to")) for line in attempts(path)]
        assert steps == ([0, 60_000] if step == 60_000 else [0, step, step, 60_000])


@pytest.mark.slow
def test_a_request_that_no_node_holds_and_a_process_that_dies(tmp_path):
    with ray_nodes(1) as (nodes, _):
        with pytest.raises(UsageError, match=r"no node .* cpus=2 and gpus=0: the largest of 2 has 1 CPUs, and 0 GPUs"):
            RayEngine(nodes.address, cpus=2)
        with pytest.raises(
            UsageError, match=r"no node of the Ray cluster can hold a population with cpus=1 and gpus=0.5"
        ):
            RayEngine(nodes.address, gpus=0.5)
        (made,) = several(tmp_path / "runs", 1, steps=10_000_000)
        engine = RayEngine(nodes.address, cpus=0.5)
        assert engine.room() == 2
        engine.begin(0, made)
        while not checkpoint_of(made):
            assert engine.wait(0.2) == []
        os.kill(attempts(made.directory)[0]["pid"], signal.SIGKILL)
        assert list(engine.wait(60)) == [Lost(0, "killed by SIGKILL")]
        engine.begin(1, made)  # and closed without being asked to stop: it saves
        while len(attempts(made.directory)) < 2:
            engine.wait(0.2)
        engine.close()
        assert attempts(made.directory)[-1]["end"].startswith("stopped at step ")
        assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["00"]


class Scripted(types.SimpleNamespace):
    """What the engine asks of Ray, without a cluster: the test says how tasks end."""

    def __init__(self, *cpus):
        class RayError(Exception):
            pass

        class TaskCancelledError(RayError):
            pass

        super().__init__(ends={}, cancelled=[], orders=[], chosen={}, cpus=list(cpus), over=False)
        self.exceptions = types.SimpleNamespace(RayError=RayError, TaskCancelledError=TaskCancelledError)
        self.remote = lambda function: types.SimpleNamespace(options=self._options)

    def _options(self, **chosen):
        self.chosen = chosen
        return types.SimpleNamespace(remote=self._begin)

    def _begin(self, order, versions):
        self.orders.append(pickle.loads(order))
        return len(self.orders) - 1

    def nodes(self):
        return [{"Alive": count is not None, "Resources": {"CPU": count or 0}} for count in self.cpus]

    def wait(self, references, num_returns, timeout):
        return [reference for reference in references if reference in self.ends][:num_returns], []

    def get(self, reference):
        if isinstance(self.ends[reference], Exception):
            raise self.ends[reference]
        return self.ends[reference]

    def cancel(self, reference, force):
        assert not force  # which would leave no time to save
        self.cancelled.append(reference)
        self.ends[reference] = self.exceptions.TaskCancelledError()

    def shutdown(self):
        self.over = True


def test_what_becomes_of_tasks(tmp_path, monkeypatch):
    """One ends, one is on a node that dies, one finds another version; the last is cancelled before it has begun."""
    ray = Scripted(2, 3, None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(engine_module, "_connect", lambda ray, address: None)
    engine = RayEngine(cpus=1.5, jobs=4)
    assert (ray.chosen["num_cpus"], ray.chosen["num_gpus"], ray.chosen["max_retries"]) == (1.5, 0.0, 0)
    assert engine.room() == 3
    jobs = several(tmp_path / "runs", 4)
    for number in range(3):
        engine.begin(number, jobs[number])
    assert [order.job for order in ray.orders] == jobs[:3]
    assert all(Path(order.marker).exists() for order in ray.orders)
    assert engine.room() == 0
    assert list(engine.wait(0)) == []
    ray.ends = {
        0: Ended(0),
        1: ray.exceptions.RayError("Task failed because\nthe node died"),
        2: "the node a has dac 0.1, this machine 0.2: install the same on all nodes",
    }
    assert list(engine.wait(0)) == [Ended(0)]
    assert list(engine.wait(0)) == [Lost(1, "Task failed because the node died")]
    assert list(engine.wait(0)) == [Failed(2, ray.ends[2])]
    ray.cpus[1] = None
    assert engine.room() == 1
    engine.begin(3, jobs[3])
    engine.stop()
    assert ray.cancelled == [3]
    assert list(engine.wait(0)) == [Ended(3)]
    engine.close()
    assert ray.over
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            lambda ray: ConnectionError("Could not find any\nrunning Ray instance"),
            "cannot use the Ray cluster at auto: Could",
        ),
        (lambda ray: RuntimeError("Version mismatch: Python"), "cannot use the Ray cluster at auto: Version mismatch"),
        (lambda ray: ray.exceptions.RayError("no authentication token was found"), "at auto: no authentication token"),
        (
            lambda ray: ImportError("no grpc"),
            r"auto needs the extra client of Ray: pip install 'ray\[client\]' \(no grpc\)",
        ),
    ],
)
def test_a_cluster_that_does_not_take_it(error, message):
    ray = Scripted()

    def refuse(**arguments):
        raise error(ray)

    ray.init = refuse
    with pytest.raises(UsageError, match=message) as caught:
        engine_module._connect(ray, "auto")
    assert "\n" not in str(caught.value)


def test_what_is_wrong_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"bad address 'nowhere' \(accepted: auto, HOST:PORT, ray://HOST:PORT\)"):
        make(address="nowhere")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        for written in (address, f"ray://{address}"):
            with pytest.raises(UsageError, match=f"no Ray cluster answers at {written}: Connection refused; start one"):
                make(address=written)
    for options, message in [
        ({"cpu": "1"}, r"the engine ray has no option 'cpu' \(accepted: cpus, gpus, storage\)"),
        ({"gpus": "all"}, "gpus of the engine ray must be a number, not 'all'"),
        ({"gpus": "1.5"}, "gpus must be a part of one GPU or a whole number, not 1.5"),
        ({"cpus": "0"}, "a population needs a part of a CPU or a GPU, not cpus=0 and gpus=0"),
        ({"storage": "nosuch://bucket"}, "storage 'nosuch://bucket' cannot be used: Protocol not known: nosuch"),
    ]:
        with pytest.raises(UsageError, match=message):
            make(options=options)


def test_a_node_says_what_it_lacks(tmp_path, monkeypatch):
    """Another version, or a directory that it does not see."""
    population = engine_module._portable()
    name = socket.gethostname()
    wanted = engine_module._versions() | {"dac": "9.9"}
    assert population(b"", wanted).startswith(f"the node {name} has dac 0.")
    assert population(b"", wanted).endswith(", this machine 9.9: install the same on all nodes")
    monkeypatch.setattr(engine_module, "_neighbours", lambda order: 1)
    order = Order(4, job(tmp_path / "runs/a"), 1, 0, str(tmp_path / "runs/.study-x"), None, "me")
    found = population(pickle.dumps(order), engine_module._versions())
    why = f"the node {name} does not see {tmp_path}/runs: it needs a directory that all nodes share, or a storage"
    assert found == Failed(4, why)
