"""Where a new run is put: nobody's directory is taken twice, and nothing is left by what cannot run."""

import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dac
from dac.core.types import UsageError
from dac.rundir.writing import make_directory, resume_command, take_next_free
from dac.training.watchers import AbstractWatcher


def test_whoever_starts_at_once_takes_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def take(_):
        together.wait()
        return [str(take_next_free("gym:Pendulum-v1", "sac")) for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        taken = [name for names in pool.map(take, range(8)) for name in names]
    assert sorted(taken) == [f"runs/gym-Pendulum-v1-sac-{number:03d}" for number in range(1, 161)]


def test_two_runs_without_a_directory_are_two_directories(tmp_path, monkeypatch):
    """From Python too: the second run starts while the first one is in the middle."""
    monkeypatch.chdir(tmp_path)
    tiny = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "steps": 100, "eval_every": 50}
    tiny |= {"capacity": 80, "random_steps": 20}  # with tests/training/test_terminal.py it shares compiled programs
    inner = []

    class Another(AbstractWatcher):
        def on_start(self, start):
            inner.append(dac.train("sac", "target", **tiny))

    outer = dac.train("sac", "target", watchers=[Another()], **tiny)
    assert [run.directory for run in (outer, *inner)] == [Path("runs/target-sac-001"), Path("runs/target-sac-002")]
    assert all(run.finished for run in (outer, *inner))


def test_a_run_that_fails_at_once_leaves_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Failing(AbstractWatcher):
        def on_start(self, start):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        dac.train("sac", "target", watchers=[Failing()], hidden=(8, 8), steps=100)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_place_where_no_directory_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to("nowhere")
    with pytest.raises(UsageError, match=r"^cannot create runs: File exists$"):
        take_next_free("maze", "dac")
    with pytest.raises(UsageError, match="cannot create"):
        make_directory(Path("runs"))


@pytest.mark.parametrize("name", ["plain", "with a space", "it's", "$HOME"])
def test_the_command_can_be_pasted(name):
    assert shlex.split(resume_command(Path(name))) == ["dac", "resume", name]
