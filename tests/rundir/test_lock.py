"""One process per run directory on machines that share it: leases, and processes that come back late."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dac.config import resolve
from dac.core.errors import UsageError
from dac.rundir import lock
from dac.rundir.checkpoints import Checkpointer, restore_latest
from dac.rundir.lock import Fenced, Lock, find_holder
from dac.rundir.writing import Recorder, Result
from tests.rundir.test_checkpoints import FakeLoop

SETTINGS = {"hidden": (8, 8), "batch_size": 16, "steps": 100}


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    monkeypatch.setenv(lock.LEASE, "0.4")


@pytest.fixture
def elsewhere(monkeypatch):
    """Call it to be another machine from here on, on which the locks of the first do not hold."""

    def move(host="elsewhere"):
        monkeypatch.setattr(socket, "gethostname", lambda: host)
        monkeypatch.setattr(lock, "_flock", lambda descriptor: True)

    return move


def paused(holder):
    """Stop the signs of life of a lock of this process, as SIGSTOP would."""
    holder._ended.set()
    holder._thread.join()


def test_a_lock_of_another_machine_that_lives_is_respected(tmp_path, elsewhere):
    with Lock(tmp_path):
        elsewhere()
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()} on "), Lock(tmp_path):
            pass
        assert find_holder(tmp_path).alive
    assert list(tmp_path.iterdir()) == []


def test_a_silent_one_is_taken_over_once_its_lease_is_over(tmp_path, elsewhere, caplog):
    first = Lock(tmp_path)
    with first:
        paused(first)
        elsewhere()
        began = time.monotonic()
        with Lock(tmp_path) as second:
            assert 0.4 <= time.monotonic() - began < 10
            assert [path.name for path in tmp_path.iterdir()] == ["lock.1"]
            assert find_holder(tmp_path).host == "elsewhere"
            with pytest.raises(Fenced, match=f"taken over by process {os.getpid()} on elsewhere"):
                first.check()
            second.check()
        assert "waiting up to 0 s for a sign" in caplog.text
        with pytest.raises(Fenced, match="taken over while"):  # nobody holds it now, and the late one not either
            first.check()
        with Lock(tmp_path):  # numbers begin anew
            with pytest.raises(Fenced):
                first.check()
            assert (tmp_path / "lock").exists()
    assert list(tmp_path.iterdir()) == []  # the late one left the lock of the others alone


def test_the_lease_of_the_holder_counts_not_that_of_the_observer(tmp_path, elsewhere, monkeypatch):
    monkeypatch.setenv(lock.LEASE, "1.5")
    first = Lock(tmp_path)
    with first:
        paused(first)
        elsewhere()
        monkeypatch.setenv(lock.LEASE, "0.1")
        began = time.monotonic()
        with Lock(tmp_path):
            assert time.monotonic() - began >= 1.5


def test_clocks_that_differ_do_not_matter(tmp_path, elsewhere, monkeypatch):
    """A file written a year ago by a wrong clock is as fresh as its counter."""
    with Lock(tmp_path) as holder:
        real = holder._write

        def long_ago():
            real()
            os.utime(tmp_path / "lock", (1, 1))

        holder._write = long_ago
        elsewhere()
        with pytest.raises(UsageError, match="in use"), Lock(tmp_path):
            pass


def test_of_many_that_wait_one_takes_over(tmp_path, elsewhere):
    first = Lock(tmp_path)
    with first:
        paused(first)
        elsewhere()
        won, refused, hold = [], [], threading.Event()

        def take():
            try:
                with Lock(tmp_path):
                    won.append(1)
                    hold.wait(20)
            except UsageError:
                refused.append(1)
                hold.set() if len(refused) == 7 else None

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(won), len(refused)) == (1, 7)


def test_without_links_and_without_locks_of_files(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(lock, "_flock", lambda descriptor: None)
    with Lock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
        with pytest.raises(UsageError, match="in use by process"), Lock(tmp_path):
            pass
    (tmp_path / "lock").write_text("")  # its maker died between the empty file and the full one
    with Lock(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["lock.1"]


def test_a_lock_of_the_machines_life_before_is_no_lock_of_this_one(tmp_path):
    """Another machine of the same name, or this one before it was started anew: its lease is waited for."""
    content = {"pid": 1, "host": socket.gethostname(), "boot": "another", "lease": 0.3, "beat": "000000000000"}
    (tmp_path / "lock").write_text(json.dumps(content))
    began = time.monotonic()
    with Lock(tmp_path):
        assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("lease", ["0", "-1", "soon"])
def test_a_lease_that_is_none_is_refused(tmp_path, monkeypatch, lease):
    monkeypatch.setenv(lock.LEASE, lease)
    with pytest.raises(UsageError, match=f"DAC_LEASE must be seconds above 0, not '{lease}'"), Lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def make_recorder(directory):
    config = resolve("sac", "target", 0, SETTINGS)
    return Recorder(directory, config, config.members())


ROW = {"member": 0, "seed": 0, "step": 10, "return": 1.0}


def test_whoever_comes_back_late_writes_nothing(tmp_path, elsewhere):
    """Rows, checkpoints, summary, policies, configuration: each is refused, and each file stays the new holder's."""
    first, recorder = Lock(tmp_path), make_recorder(tmp_path)
    with first:
        recorder.append([ROW])
        checkpointer = Checkpointer(tmp_path, "run")
        checkpointer.save(FakeLoop(10), recorder.notes(), {})
        checkpointer.wait()
        paused(first)
        elsewhere()
        with Lock(tmp_path):
            found = restore_latest(tmp_path, "run", lambda checkpoint: None, print)
            other = make_recorder(tmp_path)
            other.restore(found[0].notes | {"seconds": 0.0}, {})
            other.append([ROW | {"step": 20, "return": 2.0}])
            before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            lock._HELD[os.path.realpath(tmp_path)] = first  # both are in this process
            for write in (
                lambda: recorder.append([ROW | {"step": 20, "return": 7.0}]),
                lambda: recorder.write_config(),
                lambda: recorder.write_policies({"weight": np.zeros(3)}),
                lambda: recorder.finish(Result(20, 1, {}, None, None, None, None, 1.0, None)),
            ):
                with pytest.raises(Fenced):
                    write()
            checkpointer.save(FakeLoop(20), {}, {})
            checkpointer.wait()
            assert "taken over by process" in checkpointer.problem()
            after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
            assert {p: c for p, c in after.items() if p.name != "lock.1"} == {
                p: c for p, c in before.items() if p.name != "lock.1"
            }


def test_paused_between_looking_and_writing(tmp_path, elsewhere, monkeypatch):
    """The process sees its lock, is paused, loses it, and goes on as if nothing had happened."""
    first, recorder = Lock(tmp_path), make_recorder(tmp_path)
    seconds = []

    def paused_after_looking(path):
        if not seconds:  # later calls are the other's
            first.check()
            paused(first)
            elsewhere()
            seconds.append(Lock(tmp_path).__enter__())
            other = make_recorder(tmp_path)
            other.restore(other.notes() | {"seconds": 0.0, "metrics": {"bytes": size}}, {})

    with first:
        recorder.append([ROW])
        size = recorder._size
        kept = (tmp_path / "metrics.csv").read_bytes()
        monkeypatch.setattr("dac.rundir.writing.check_held", paused_after_looking)
        recorder.append([ROW | {"step": 20, "return": 7.0}])  # into a file that is nobody's any more
        assert (tmp_path / "metrics.csv").read_bytes() == kept
        seconds.pop().__exit__()
    with Lock(tmp_path) as first:
        monkeypatch.setattr("dac.rundir.files.check_held", paused_after_looking)
        with pytest.raises(UsageError, match=r"cannot write .*config\.toml: No such file"):
            recorder.write_config()
        assert not (tmp_path / "config.toml").exists()
        seconds.pop().__exit__()


HOLD = """
import sys
from pathlib import Path
from dac.config import resolve
from dac.rundir.lock import Lock
from dac.rundir.writing import Recorder
directory = Path(sys.argv[1])
config = resolve("sac", "target", 0, {"hidden": (8, 8), "batch_size": 16, "steps": 100})
with Lock(directory):
    recorder = Recorder(directory, config, config.members())
    recorder.restore(None, {})
    print("held", flush=True)
    for number, line in enumerate(sys.stdin):
        recorder.append([{"member": 0, "seed": 0, "step": number, "return": float(line)}])
        print("written", flush=True)
"""


def host(name, *command):
    """A process on a machine of that name: in a UTS namespace of its own."""
    inside = 'hostname "$0" && exec "$@"'
    return ["unshare", "--user", "--uts", "--map-root-user", "sh", "-c", inside, name, *command]


def can_unshare():
    if not shutil.which("unshare"):
        return False
    return subprocess.run(host("x", "true"), capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="a user may not have namespaces of their own here")
def test_two_machines_and_a_paused_process(tmp_path):
    """A process on one machine is paused, one on another machine takes over, and the first comes back."""
    (tmp_path / "run").mkdir()
    environment = os.environ | {lock.LEASE: "1.5", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]

    def start(name):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(host(name, *command), env=environment, text=True, **pipes)

    def ask(process, value):
        process.stdin.write(f"{value}\n")
        process.stdin.flush()
        return process.stdout.readline()

    first = start("one")
    try:
        assert first.stdout.readline() == "held\n"
        assert ask(first, 1) == "written\n"
        refused = start("two")
        said = refused.communicate()[1]
        assert f"in use by process {first.pid} on one" in said
        os.kill(first.pid, signal.SIGSTOP)
        second = start("two")
        try:
            assert second.stdout.readline() == "held\n"
            assert ask(second, 2) == "written\n"
            os.kill(first.pid, signal.SIGCONT)
            assert ask(first, 3) == ""  # it ended
            assert f"was taken over by process {second.pid} on two" in first.communicate()[1]
            assert ask(second, 4) == "written\n"
            assert second.communicate()[1].startswith(f"{tmp_path / 'run'} is held by process {first.pid} on one")
        finally:
            second.kill()
    finally:
        first.kill()
    rows = (tmp_path / "run/metrics.csv").read_text().splitlines()
    assert [row.split(",")[-1] for row in rows] == ["return", "2.0", "4.0"]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["metrics.csv"]
