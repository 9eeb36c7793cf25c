"""Checkpoints: whole or not there, whatever happens to the process, the disk or the files."""

import json
import os
import shutil

import numpy as np
import pytest

from dac.core.types import UsageError
from dac.rundir import checkpoints as module
from dac.rundir.checkpoints import KEPT, Checkpointer, restore_latest
from dac.rundir.lock import Lock
from dac.training.loop import lay_out

MEMBERS, CAPACITY, ROW = 2, 40, 3


class FakeLoop:
    """A loop whose every number follows from its step."""

    capacity = CAPACITY

    def __init__(self, step=0):
        self.step = step

    @property
    def stored(self):
        return max(self.step - 1, 0)

    def snapshot(self):
        return {"weights": np.full((MEMBERS, 5), self.step, np.float32), "count": np.full(MEMBERS, self.step)}

    @staticmethod
    def rows(start, stop):
        numbers = np.arange(start, stop, dtype=np.float32)
        return np.broadcast_to(numbers[None, :, None], (MEMBERS, stop - start, ROW)) + np.arange(MEMBERS)[:, None, None]

    def latest_rows(self, start):
        return self.rows(start, self.stored).astype(np.float32)

    def ring(self):
        """What a ring that lived through all of it holds."""
        ring = np.zeros((MEMBERS, CAPACITY, ROW), np.float32)
        lay_out(ring, [(0, self.rows(0, self.stored))] if self.stored else [])
        return ring


def save(checkpointer, step):
    checkpointer.save(FakeLoop(step), {"step": step}, {})
    checkpointer.wait()


def make(directory, steps=(10, 20, 30)):
    checkpointer = Checkpointer(directory, "run")
    for step in steps:
        save(checkpointer, step)
        assert checkpointer.problem() is None
    return checkpointer


def restored(directory, accept=lambda checkpoint: None):
    """The step that is restored, after checking every number of it, and what was reported."""
    reports = []
    found = restore_latest(directory, "run", accept, reports.append)
    if found is None:
        return None, reports
    point, arrays, rows = found
    loop = FakeLoop(point.step)
    for name, array in loop.snapshot().items():
        np.testing.assert_array_equal(arrays[name], array)
    ring = np.zeros((MEMBERS, CAPACITY, ROW), np.float32)
    lay_out(ring, rows)
    np.testing.assert_array_equal(ring, loop.ring())
    assert point.notes == {"step": point.step}
    return point.step, reports


@pytest.mark.parametrize("last", [1, 2, 11, 40, 41, 42, 75, 123, 500])
def test_the_ring_comes_back_from_its_pieces(tmp_path, last):
    """Also when it went round several times between two checkpoints, or between the first and the last."""
    make(tmp_path, sorted({1, 10, 11, 35, 70, last}))
    assert restored(tmp_path) == (max(70, last), [])


def test_a_ring_of_another_capacity_is_laid_out_anew():
    """A run that goes on with more steps may have a larger ring; row n stands at n modulo the capacity."""
    for capacity in (7, 40, 100):
        ring = np.zeros((MEMBERS, capacity, ROW), np.float32)
        lay_out(ring, [(60, FakeLoop.rows(60, 80)), (80, FakeLoop.rows(80, 95))])
        for number in range(max(60, 95 - capacity), 95):
            assert ring[0, number % capacity, 0] == number


def test_only_what_was_added_is_written_and_what_is_overwritten_goes(tmp_path):
    checkpointer = make(tmp_path, range(10, 200, 10))
    rings = sorted(path.name for path in checkpointer.folder.glob("ring-*"))
    assert all(int(name[18:30]) - int(name[5:17]) == 9 for name in rings)
    assert rings[-1] == "ring-000000000179-000000000188.safetensors"
    assert len(rings) == 5  # 40 rows of the last checkpoint, and one more piece for the one before
    assert len(list(checkpointer.folder.glob("step-*"))) == KEPT
    assert len(list(checkpointer.folder.iterdir())) == 5 + 2 * KEPT


class Killed(BaseException):
    """Nothing may catch this, as nothing catches kill -9."""


@pytest.mark.parametrize("operation", range(40))
def test_a_kill_at_any_file_operation_leaves_a_whole_checkpoint(tmp_path, monkeypatch, operation):
    """Every open, write, sync, rename and removal of a checkpoint in turn; then the run goes on and saves again."""
    checkpointer = make(tmp_path)
    calls = iter(range(1000))

    def killing(function):
        def wrapped(*arguments, **keywords):
            if next(calls) == operation:
                raise Killed
            return function(*arguments, **keywords)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "unlink", "open"):
            patch.setattr(os, name, killing(getattr(os, name)))
        patch.setattr("builtins.open", killing(open))
        killed = False
        try:
            checkpointer._write(
                40, FakeLoop(40).snapshot(), FakeLoop(40).latest_rows(29), 29, 39, checkpointer._pieces, {"step": 40}
            )
        except Killed:
            killed = True
    step, reports = restored(tmp_path)
    assert step in (30, 40)
    assert reports == []
    assert killed or step == 40
    point = restore_latest(tmp_path, "run", lambda checkpoint: None, print)[0]
    again = Checkpointer(tmp_path, "run", point)
    for following in (50, 60):
        save(again, following)
        assert again.problem() is None
        assert restored(tmp_path) == (following, [])
    assert not list(again.folder.glob("*.part"))


def test_enough_operations_are_killed(tmp_path, monkeypatch):
    """The test above is only worth something if a checkpoint takes that many steps."""
    count = 0
    real = os.fsync

    def counting(descriptor):
        nonlocal count
        count += 1
        real(descriptor)

    monkeypatch.setattr(os, "fsync", counting)
    make(tmp_path, [10])
    assert count == 6  # state, ring, manifest, each with its directory


def mutate(folder, generator):
    """Damage one file in one of many ways; the name of what was done."""
    files = sorted(folder.iterdir())
    path = files[generator.integers(len(files))]
    content = bytearray(path.read_bytes())
    kind = generator.choice(
        ["truncate", "flip", "delete", "empty", "swap", "garbage", "extend", "schema", "directory", "field"]
    )
    if kind == "truncate":
        path.write_bytes(content[: generator.integers(len(content))])
    elif kind == "flip":
        content[generator.integers(len(content))] ^= 1 << generator.integers(8)
        path.write_bytes(content)
    elif kind == "delete":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "swap":
        path.write_bytes(files[generator.integers(len(files))].read_bytes())
    elif kind == "garbage":
        path.write_bytes(generator.bytes(generator.integers(1, 300)))
    elif kind == "extend":
        path.write_bytes(bytes(content) + generator.bytes(7))
    elif kind == "directory":
        path.unlink()
        path.mkdir()
    else:
        path = max(folder.glob("step-*"))
        whole = json.loads(path.read_text())
        if kind == "schema":
            whole["checkpoint"]["schema"] = int(generator.integers(2, 9))
        else:
            body = whole["checkpoint"]
            name = list(body)[generator.integers(len(body))]
            body[name] = [None, -1, "x", [], {}, True][generator.integers(6)]
            if generator.random() < 0.5:  # a checksum that fits the nonsense
                whole["digest"] = module._digest(json.dumps(body, sort_keys=True).encode())
        path.write_text(json.dumps(whole))
    return f"{kind} {path.name}"


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_found_and_named(tmp_path, seed):
    """200 mutations: an older checkpoint with a report, an error of one line, or harmless; never silent garbage."""
    (tmp_path / "good").mkdir()
    make(tmp_path / "good")
    outcomes = set()
    for number in range(10):
        directory = tmp_path / f"bad-{number}"
        shutil.copytree(tmp_path / "good", directory)
        before = {p.name: p.read_bytes() for p in (directory / "checkpoint").iterdir()}
        done = mutate(directory / "checkpoint", np.random.default_rng([seed, number]))
        after = {p.name: p.read_bytes() if p.is_file() else None for p in (directory / "checkpoint").iterdir()}
        try:
            step, reports = restored(directory)  # checks every number
        except UsageError as error:
            outcomes.add("refused")
            refusal = str(error)
        else:
            refusal = None
        if refusal is not None:
            assert "\n" not in refusal, done
            assert str(directory) in refusal, done
            continue
        assert step in (20, 30), done
        if step == 20:
            outcomes.add("older")
            assert len(reports) == 1 or "step-" in done, done
        else:
            outcomes.add("same")
            changed = {name for name in before if before[name] != after.get(name)}
            newest = json.loads(before["step-000000000030.json"])["checkpoint"]
            needed = {newest["state"]["name"], "step-000000000030.json", *(p["name"] for p in newest["ring"])}
            assert not changed & needed or after["step-000000000030.json"] != before["step-000000000030.json"], done
    assert outcomes


def test_a_foreign_checkpoint_is_refused(tmp_path):
    Checkpointer(tmp_path, "run")
    checkpointer = Checkpointer(tmp_path, "another run")
    save(checkpointer, 10)
    with pytest.raises(UsageError, match="belongs to another run"):
        restored(tmp_path)


def test_what_the_record_refuses_falls_back_too(tmp_path):
    make(tmp_path)

    def accept(point):
        if point.step == 30:
            raise UsageError("metrics.csv is damaged")

    step, reports = restored(tmp_path, accept)
    assert step == 20
    assert reports == ["metrics.csv is damaged; the checkpoint of iteration 20 is used"]
    # the run goes on from there, and what came after is forgotten
    checkpointer = Checkpointer(tmp_path, "run", restore_latest(tmp_path, "run", accept, print)[0])
    save(checkpointer, 25)
    assert restored(tmp_path) == (25, [])


def test_nothing_saved_is_no_error(tmp_path):
    assert restored(tmp_path) == (None, [])


def test_a_full_disk_is_reported_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    checkpointer = make(tmp_path)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        save(checkpointer, 40)
    problem = checkpointer.problem()
    assert "No space left on device" in problem
    assert checkpointer.problem() is None
    assert checkpointer.last == 30
    assert restored(tmp_path) == (30, [])
    assert not list(checkpointer.folder.glob("*.part"))
    save(checkpointer, 50)  # there is space again: the rows in between were not lost
    assert restored(tmp_path) == (50, [])


def test_one_process_per_directory(tmp_path):
    with Lock(tmp_path):
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()} on "), Lock(tmp_path):
            pass
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def test_a_stale_lock_is_recognised_and_a_foreign_one_without_a_lease_believed(tmp_path):
    import socket

    (tmp_path / "lock").write_text(json.dumps({"pid": 999_999_999, "host": socket.gethostname()}))
    with Lock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    (tmp_path / "lock").write_text("not json")
    with Lock(tmp_path):
        pass
    (tmp_path / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    with pytest.raises(UsageError, match="process 1 on elsewhere; if that is gone, remove"), Lock(tmp_path):
        pass
    assert (tmp_path / "lock").exists()
