"""Films, read back frame by frame."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import dac
from dac.cli import main
from dac.core.types import UsageError
from dac.export.video import best_member, find_encoder, record_video
from tests.common import can_draw
from tests.envs import strange

TINY = {"hidden": (8, 8), "batch_size": 16, "steps": 100, "eval_every": 50, "update_after": 50, "eval_episodes": 1}


SHARED = TINY | {"capacity": 80, "random_steps": 20}  # with tests/envs/test_strange.py it shares compiled programs


def decode(path, width, height):
    command = [find_encoder(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize("task", [pytest.param("maze", marks=pytest.mark.slow), "SparseHopper"])
def test_a_film_has_every_frame(task, tmp_path, capsys):
    if task != "maze" and not can_draw():
        pytest.skip("no OpenGL here")
    run = dac.train("dac", task, seeds=[0, 1], out=tmp_path / "run", **TINY)
    assert main(["video", str(run.directory), "--steps", "5"]) == 0
    steps = int(capsys.readouterr().out.split(": ")[1].split()[0])
    assert 1 <= steps <= 5
    frames = decode(run.directory / "video.mp4", *((400, 400) if task == "maze" else (480, 480)))
    assert len(frames) == steps + 1
    assert frames[0].std() > 5  # something is drawn
    assert (frames[0] != frames[-1]).any()
    with pytest.raises(UsageError, match="exists already"):
        record_video(run, run.directory / "video.mp4")
    with pytest.raises(UsageError, match="member must be from 0 to 1"):
        record_video(run, tmp_path / "other.mp4", member=2)


def test_the_best_member_is_filmed(tmp_path):
    run = dac.train("dac", "maze", seeds=[0, 1, 2], out=tmp_path / "run", **TINY)
    visited = [m["visited_cells"] for m in run.summary["members"]]
    assert visited[best_member(run)] == max(visited)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run on an environment of one's own that draws itself."""
    return dac.train("sac", strange.Drawn, out=tmp_path_factory.mktemp("runs") / "own", eval_limit=30, **SHARED)


def test_an_environment_of_ones_own_is_filmed(own, capsys, monkeypatch):
    monkeypatch.setattr("dac.export.video.LONGEST_FILM", 12)  # it has no time limit
    assert main(["video", str(own.directory)]) == 0
    assert "video.mp4: 12 steps" in capsys.readouterr().out
    frames = decode(own.directory / "video.mp4", 46, 32)
    assert [round((frame > 128).mean() * 46) for frame in frames] == list(range(1, 14))


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("make_without_drawing", "its render_mode is None; an environment that is to be filmed takes render_mode="),
        ("make_for_films", "cannot be filmed: OSError: no display"),
        ("DrawnAsText", "it cannot be filmed: render() must return an image (height, width, 3); got str"),
    ],
)
def test_what_does_not_draw_is_one_line(own, tmp_path, capsys, factory, said):
    copied = shutil.copytree(own.directory, tmp_path / "run")
    (copied / "video.mp4").unlink(missing_ok=True)
    config = copied / "config.toml"
    config.write_text(config.read_text().replace("strange:Drawn", f"strange:{factory}"))
    assert main(["video", str(copied)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (copied / "video.mp4").exists()


def test_a_package_that_drawing_needs_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    run = dac.train("sac", "gym:Pendulum-v1", out=tmp_path / "run", **TINY)
    assert main(["video", str(run.directory)]) == 2
    error = capsys.readouterr().err
    assert "gym:Pendulum-v1 cannot be filmed: pygame is not installed, run `pip install" in error
    assert error.count("\n") == 1


def test_the_extra_for_films_is_named(own, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["video", str(own.directory), "--out", str(tmp_path / "film.mp4")]) == 2
    words = "dac: a film needs the extra 'video': pip install 'diversity-actor-critic[video]'\n"
    assert capsys.readouterr().err == words
