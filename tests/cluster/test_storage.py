"""Copies of run directories are runs at every instant."""

import pytest

from dac.cluster.storage import OWNER, Place, copy_run
from dac.rundir.checkpoints import Checkpointer, restore_latest
from dac.rundir.reading import RunDirectory
from tests.rundir.test_checkpoints import FakeLoop


@pytest.fixture
def source(tmp_path):
    """A run with two checkpoints, a lock and an unfinished file."""
    folder = tmp_path / "source"
    folder.mkdir()
    checkpointer = Checkpointer(folder, "run")
    for step in (10, 20):
        checkpointer.save(FakeLoop(step), {}, {})
        checkpointer.wait()
        assert checkpointer.problem() is None
    for name in ("config.toml", "metrics.csv", "lock", "lock.3", "metrics.csv.1234.part", "summary.json"):
        (folder / name).write_text(name)
    return folder


def test_there_and_back(tmp_path, source):
    there = Place(f"memory://{tmp_path.name}/run")
    assert there.last_checkpoint() == ""
    there.write(OWNER, b"me")
    copy_run(Place(source), there)
    assert there.last_checkpoint() == "checkpoint/step-000000000020.json"
    assert there.read(OWNER) == b"me"
    back = tmp_path / "back"
    copy_run(there, Place(back))
    names = {str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()}
    assert names == {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and not path.name.startswith("lock") and path.suffix != ".part"
    }
    for name in names:
        assert (back / name).read_bytes() == (source / name).read_bytes()
    assert restore_latest(back, "run", lambda found: None, print)[0].step == 20


def test_what_is_gone_goes_there_too_and_pieces_are_copied_once(tmp_path, source, monkeypatch):
    target = tmp_path / "target"
    copy_run(Place(source), Place(target))
    written = []
    monkeypatch.setattr(Place, "write", lambda self, name, content: written.append(name))
    (source / "summary.json").unlink()  # it goes on
    gone = next(source.glob("checkpoint/state-*10.safetensors"))
    gone.unlink()
    copy_run(Place(source), Place(target))
    assert not (target / "summary.json").exists()
    assert not (target / "checkpoint" / gone.name).exists()
    assert written[-2:] == ["checkpoint/step-000000000010.json", "checkpoint/step-000000000020.json"]
    assert not any(name.endswith(".safetensors") for name in written)
    written.clear()
    copy_run(Place(source), Place(target), light=True)
    assert written == ["config.toml", "metrics.csv"]


def test_cut_off_at_any_write_it_is_a_run_that_is_whole(tmp_path, source):
    """The copy of the first checkpoint is there; that of the second ends after every number of writes."""
    one = tmp_path / "one"
    one.mkdir()
    checkpointer = Checkpointer(one, "run")
    checkpointer.save(FakeLoop(10), {}, {})
    checkpointer.wait()
    steps, real = [], Place.write

    class Cut(Exception):
        pass

    for allowed in range(20):
        target, left = tmp_path / f"target{allowed}", [allowed]
        copy_run(Place(one), Place(target))

        def write(self, name, content, left=left):
            if not left[0]:
                raise Cut
            left[0] -= 1
            real(self, name, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Place, "write", write)
            try:
                copy_run(Place(source), Place(target))
                ended = True
            except Cut:
                ended = False
        steps.append(restore_latest(target, "run", lambda found: None, pytest.fail)[0].step)
        assert (target / "summary.json").exists() == ended
    assert steps == sorted(steps)
    assert set(steps) == {10, 20}


def test_a_file_that_vanishes_while_it_is_copied(tmp_path, source, monkeypatch):
    """The run goes on, and removes what a newer checkpoint does not need: the copy begins anew."""
    real, gone = Place.read, []

    def read(self, name):
        if name.endswith("10.safetensors") and not gone:
            gone.append(name)
            for path in (*source.glob("checkpoint/state-*10.*"), *source.glob("checkpoint/step-*10.json")):
                path.unlink()
        return real(self, name)

    monkeypatch.setattr(Place, "read", read)
    copy_run(Place(source), Place(tmp_path / "target"))
    assert gone
    assert Place(tmp_path / "target").sizes() == Place(source).sizes()


def test_a_finished_copy_is_read_as_one(tmp_path):
    assert Place(tmp_path / "nothing").sizes() == {}
    with pytest.raises(Exception, match="no such run directory"):
        RunDirectory(tmp_path / "nothing")
