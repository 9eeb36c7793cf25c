"""An interrupted run can be used: its policies are those of its last checkpoint, and it may end where it stands."""

import shutil

import pytest

import dac
from dac.cli import main
from dac.cli.summary import find_frozen
from dac.export.video import best_member
from tests.common import interrupt_at

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "seeds": [0, 1, 2], "capacity": 80}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that was killed at step 150, its last checkpoint at step 140; none of its files is changed by a test."""
    run = tmp_path_factory.mktemp("runs") / "a run"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, 150)
        with pytest.raises(KeyboardInterrupt):
            dac.train("dac", "maze", out=run, **TINY, steps=200, eval_every=50, checkpoint_every=70)
    return run


def test_the_policies_are_those_of_the_last_checkpoint(interrupted, tmp_path, capsys):
    run = dac.load(interrupted)
    assert not run.finished
    assert run.last_checkpoint() == 140
    whole = dac.train("dac", "maze", out=tmp_path / "140", **TINY, steps=140, eval_every=50, checkpoint_every=0)
    saved, trained = ((r.directory / "policy.safetensors").read_bytes() for r in (run, whole))
    assert saved == trained
    assert main(["evaluate", str(interrupted), "--episodes", "1"]) == 0
    assert "mean return" in capsys.readouterr().out


def test_the_best_member_so_far_is_filmed(interrupted, tmp_path, capsys):
    run = dac.load(interrupted)
    visited = run.metrics["visited"].max(axis=0)
    assert visited[best_member(run)] == max(visited)
    assert main(["video", str(interrupted), "--steps", "2", "--out", str(tmp_path / "film.mp4")]) == 0
    assert "film.mp4: 2 steps" in capsys.readouterr().out


def test_before_the_first_checkpoint_there_are_no_policies(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 50)
        with pytest.raises(KeyboardInterrupt):
            dac.train("dac", "maze", out=tmp_path / "run", **TINY, steps=200, eval_every=50, checkpoint_every=70)
    (tmp_path / "run/metrics.csv").unlink(missing_ok=True)
    run = dac.load(tmp_path / "run")
    assert find_frozen(run) == {}
    assert best_member(run) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "policy.safetensors; a run writes its policies with its first checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "evaluated"),
    [
        (140, [50, 100, 140]),  # where it stands, which was no step of an evaluation
        (180, [50, 100, 150, 180]),
    ],
)
def test_a_run_can_be_made_shorter(interrupted, tmp_path, steps, evaluated):
    """It is the run of so many steps, to the bit."""
    shutil.copytree(interrupted, tmp_path / "run")
    run = dac.resume(tmp_path / "run", steps)
    assert run.finished
    assert run.metrics["step"][:, 0].tolist() == evaluated
    assert run.visits[f"visits_{steps}"].sum(axis=1).tolist() == [steps] * 3
    whole = dac.train("dac", "maze", out=tmp_path / "w", **TINY, steps=steps, eval_every=50, checkpoint_every=70)
    for name in ("metrics.csv", "policy.safetensors", "config.toml"):
        assert (run.directory / name).read_bytes() == (whole.directory / name).read_bytes()
    assert run.summary["members"] == whole.summary["members"]
    longer = dac.resume(run.directory, 200)
    assert longer.metrics["step"][:, 0].tolist() == ([50, 100, 150, 200] if steps == 140 else [*evaluated, 200])


def test_no_step_is_taken_back(interrupted, capsys):
    before = (interrupted / "config.toml").read_bytes()
    assert main(["resume", str(interrupted), "--steps", "139"]) == 2
    error = capsys.readouterr().err
    assert error == f"dac: {interrupted} is at step 140 already, its last checkpoint; --steps cannot be 139\n"
    assert (interrupted / "config.toml").read_bytes() == before
