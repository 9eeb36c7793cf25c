"""Films, read back frame by frame."""

import subprocess

import numpy as np
import pytest

import dac
from dac.cli import main
from dac.core.types import UsageError
from dac.export.video import best_member, find_encoder, record_video
from tests.common import can_draw

TINY = {"hidden": (8, 8), "batch_size": 16, "steps": 100, "eval_every": 50, "update_after": 50, "eval_episodes": 1}


def decode(path, width, height):
    command = [find_encoder(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize("task", ["maze", "SparseHopper"])
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
