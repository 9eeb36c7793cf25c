"""Watchers see every event of a run in order, may stop it, and show what went wrong."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dac
from dac.config import resolve
from dac.training.watchers import AbstractWatcher, Evaluation, Message, Position, Start
from dac.training.watchers.progress import ProgressBar


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_bar_stays_in_a_narrow_terminal(width):
    screen = io.StringIO()
    config = resolve("dac", "SparseHalfCheetah", range(20), {})
    bar = ProgressBar(Console(file=screen, force_terminal=True, width=width, color_system=None))
    bar.on_start(Start(config, Path("runs/x"), config.members()))
    bar.on_message(Message("in [red]"))
    bar.on_progress(Position(340_000, 23_456.7, {"return": 786.1, "visited": 39_873.5}))
    bar.on_end(None)
    # what is drawn over is kept as a line of its own
    lines = [line for line in re.split(r"\r|\n|\x1b\[[?0-9]*[a-zA-Z]", screen.getvalue()) if "━" in line]
    assert "dac on SparseHalfCheetah, 20 members" in screen.getvalue()
    assert "in [red]" in screen.getvalue()
    assert lines
    assert all(len(line) <= width for line in lines)
    assert "340,000/1,000,000 steps" in lines[-1]
    assert ("visited 39,873.5" in lines[-1]) == (width == 200)
    assert ("…" in lines[-1]) == (width < 200)


TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "capacity": 80}
TINY |= {"seeds": [0, 1, 2], "steps": 200, "eval_every": 50, "checkpoint_every": 100}


class Diary(AbstractWatcher):
    """Writes down what it is told, and may ask to stop."""

    def __init__(self, stop_at=None):
        self.events, self.evaluations, self.stop_at = [], [], stop_at

    def on_start(self, start):
        self.events.append(("start", start.config.training.steps, len(start.members)))

    def on_message(self, message):
        self.events.append(("message", message.warning))

    def on_evaluation(self, evaluation):
        self.events.append(("evaluation", evaluation.step))
        self.evaluations.append(evaluation)
        return "enough" if evaluation.step == self.stop_at else None

    def on_checkpoint(self, step):
        self.events.append(("checkpoint", step))

    def on_end(self, error):
        self.events.append(("end", error))


def test_a_watcher_is_told_everything_in_order_and_changes_nothing(tmp_path):
    diary = Diary()
    watched = dac.train("dac", "target", out=tmp_path / "watched", watchers=[diary], **TINY)
    plain = dac.train("dac", "target", out=tmp_path / "plain", **TINY)
    told = [event for event in diary.events if event[0] != "message"]
    assert told == [
        ("start", 200, 3),
        ("evaluation", 50),
        ("evaluation", 100),
        ("checkpoint", 100),
        ("evaluation", 150),
        ("evaluation", 200),
        ("checkpoint", 200),
        ("end", None),
    ]
    assert not any(event[1] for event in diary.events if event[0] == "message")
    for name in ("metrics.csv", "policy.safetensors"):
        assert (watched.directory / name).read_bytes() == (plain.directory / name).read_bytes()
    rows = [[row["return"] for row in evaluation.rows] for evaluation in diary.evaluations]
    np.testing.assert_allclose(rows, watched.metrics["return"])


def test_a_watcher_can_stop_a_run_which_then_goes_on_to_the_bit(tmp_path, caplog):
    caplog.set_level("INFO", "dac")
    stopped = dac.train("dac", "maze", out=tmp_path / "stopped", watchers=[Diary(stop_at=150)], **TINY)
    assert not stopped.finished
    assert stopped.last_checkpoint() == 150
    assert "stopped at step 150: enough; the last checkpoint is of step 150, continue with: dac resume" in caplog.text
    assert np.isfinite(np.asarray(stopped.policies().mlp.weights[0])).all()  # what was learnt by then can be used
    whole = dac.train("dac", "maze", out=tmp_path / "whole", **TINY)
    again = dac.resume(stopped.directory)
    for name in ("metrics.csv", "policy.safetensors"):
        assert (again.directory / name).read_bytes() == (whole.directory / name).read_bytes()


def test_the_end_is_told_whatever_happens(tmp_path):
    class Failing(Diary):
        def on_evaluation(self, evaluation):
            raise RuntimeError("no more ink")

    diary = Failing()
    with pytest.raises(dac.UsageError, match="no more ink"):
        dac.train("dac", "maze", out=tmp_path / "run", watchers=[diary], **TINY)
    kind, error = diary.events[-1]
    assert kind == "end"
    assert str(error.__cause__) == "no more ink"


def test_frozen_members_are_warned_of_and_left_out_of_the_mean(tmp_path, caplog, monkeypatch):
    """From Python nothing else would say so: the warning reaches the terminal unless logging is told otherwise."""
    from dac.training import loop

    real, looks = loop.find_broken, []

    def breaking(states):
        looks.append(None)
        return real(states) | ({1: "value.model"} if len(looks) > 1 else {})

    monkeypatch.setattr(loop, "find_broken", breaking)
    diary = Diary()
    run = dac.train("dac", "maze", out=tmp_path / "run", watchers=[diary], **TINY)
    assert ("message", True) in diary.events
    (line,) = [record.getMessage() for record in caplog.records if "member 1" in record.getMessage()]
    assert line.startswith("member 1 (seed 1")
    assert "it is frozen at its last good state, the others go on" in line
    assert all(record.levelname == "WARNING" for record in caplog.records)
    last = diary.evaluations[-1]
    assert [row["frozen"] for row in last.rows] == [0, 1, 0]
    assert last.mean("visited") == np.mean([last.rows[k]["visited"] for k in (0, 2)])
    np.testing.assert_array_equal(run.metrics["frozen"][-1], [0, 1, 0])


def test_the_mean_is_of_all_where_every_member_is_frozen():
    rows = [{"frozen": 1, "return": 2.0}, {"frozen": 1, "return": 4.0}]
    assert Evaluation(10, rows).mean("return") == 3.0


def test_a_small_network_with_the_mazes_preset_does_not_break(tmp_path):
    """Of these ten, seeds 0 and 9 used to be frozen by step 100, when no bound held the replay buffer's term."""
    settings = {"hidden": (8, 8), "batch_size": 16, "steps": 300, "eval_every": 100, "update_after": 50}
    run = dac.train("dac", "maze", seeds=range(10), out=tmp_path / "run", random_steps=20, **settings)
    assert not run.metrics["frozen"].any()
    assert run.config.hyper["clip"] == float("inf")
