"""Loggers get every evaluation once, by member and by group, and can neither slow nor break a run."""

import json
import sqlite3
import struct
import threading
import time

import numpy as np
import pytest
from scipy.stats import t as student

import dac
from dac.cli import main
from dac.config import resolve
from dac.config.schema import LOGGERS
from dac.training import run as run_module
from dac.training.loggers import HOMES, background
from dac.training.loggers.background import AbstractLogger, Background
from dac.training.loggers.series import Spread, find_groups, make_record, spread
from dac.training.watchers import AbstractWatcher, Evaluation, Start
from tests.training.test_watchers import TINY

SETTINGS = TINY | {"seeds": [0, 3], "alpha": [0.5, 1.0]}
FILES = ("metrics.csv", "policy.safetensors")


def stop_at(step):
    return lambda evaluation: "enough" if evaluation.step == step else None


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return dac.train("dac", "target", out=tmp_path_factory.mktemp("plain") / "run", **SETTINGS)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run with every logger, stopped after its second evaluation and resumed from the checkpoint before it."""
    folder = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        run = dac.train(
            "dac", "target", out=folder / "run", **SETTINGS, log=LOGGERS, watchers=[stop_at(150), NoLastCheckpoint()]
        )
        return dac.resume(run.directory)


class NoLastCheckpoint(AbstractWatcher):
    """Removes the checkpoint that a stopped run makes, so that it goes on from one before what was logged."""

    def on_start(self, start):
        self.folder = start.directory / "checkpoint"

    def on_end(self, error):
        (self.folder / "step-000000000150.json").unlink()


def test_loggers_change_nothing(plain, logged):
    for name in FILES:
        assert (logged.directory / name).read_bytes() == (plain.directory / name).read_bytes()
    assert logged.config.training.log == LOGGERS
    assert logged.config.fingerprint() == plain.config.fingerprint()


def events_of(folder):
    """What TensorBoard has of a folder: by tag, values by step, without what a restart takes back."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (size,) = struct.unpack("<Q", content[at : at + 8])
            event = Event.FromString(content[at + 12 : at + 12 + size])
            at += size + 16
            if event.HasField("session_log"):
                found = {tag: [(s, v) for s, v in points if s < event.step] for tag, points in found.items()}
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def expected(run, member, name="return"):
    return list(zip(run.metrics["step"][:, member].astype(int), run.metrics[name][:, member], strict=True))


def test_tensorboard_has_every_member_and_group_once(logged):
    folder = logged.directory / "tensorboard"
    for number, path in enumerate(["alpha-0.5/seed-0", "alpha-0.5/seed-3", "alpha-1/seed-0", "alpha-1/seed-3"]):
        series = events_of(folder / path)
        np.testing.assert_allclose(series["return"], expected(logged, number), rtol=1e-6)
        assert {"updates", "q_mean", "frozen"} <= set(series)
        assert "_hparams_/session_start_info" in series
    group = events_of(folder / "alpha-1")
    returns = logged.metrics["return"][:, 2:]
    half = student.ppf(0.975, 1) * returns.std(axis=1, ddof=1) / np.sqrt(2)
    steps = [50, 100, 150, 200]
    np.testing.assert_allclose(group["return"], list(zip(steps, returns.mean(axis=1), strict=True)), rtol=1e-6)
    low = list(zip(steps, returns.mean(axis=1) - half, strict=True))
    np.testing.assert_allclose(group["interval/return/low"], low, rtol=1e-5)
    assert "custom_scalars__config__" in group
    assert "settings/text_summary" in group


def test_trackio_has_every_step_once(logged):
    (path,) = logged.directory.parent.glob("trackio/*.db")
    with sqlite3.connect(path) as base:
        rows = base.execute("select step, metrics from metrics order by id").fetchall()
        ((config,),) = base.execute("select config from configs").fetchall()
    assert [step for step, _ in rows] == [50, 100, 150, 200]
    check_keys([json.loads(metrics) for _, metrics in rows], logged)
    assert json.loads(config)["hidden"] == [8, 8]


def records_of(content):
    """The records of wandb's own file, which has the form of a LevelDB log: blocks of 32 KiB with pieces of records."""
    at, parts = 7, []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:  # no room for a header: the rest of the block is empty
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        parts.append(content[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last piece
            yield b"".join(parts)
            parts = []


def test_wandb_has_every_step_once(logged):
    from wandb.proto.wandb_internal_pb2 import Record

    rows, configs, identities = [], [], set()
    paths = sorted(logged.directory.glob("wandb/offline-run-*/*.wandb"))
    assert len(paths) == 2  # before and after, which `wandb sync` puts together
    for path in paths:
        for record in map(Record.FromString, records_of(path.read_bytes())):
            if record.HasField("history"):
                items = {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
                rows.append(items)
            if record.HasField("run"):
                identities.add(record.run.run_id)
                configs += [item.key for item in record.run.config.update]
    assert [row["step"] for row in rows] == [50, 100, 150, 200]
    check_keys(rows, logged)
    assert len(identities) == 1
    assert {"algorithm", "task", "alpha", "steps"} <= set(configs)


def check_keys(rows, run):
    for number, row in enumerate(rows):
        returns = run.metrics["return"][number]
        assert row["return/alpha 0.5/mean"] == pytest.approx(returns[:2].mean())
        assert row["return/alpha 0.5/seed 3"] == pytest.approx(returns[1])
        assert row["return/alpha 1/low"] < row["return/alpha 1/mean"] < row["return/alpha 1/high"]


class Slow(AbstractLogger):
    """Sleeps; notes what it was given."""

    def __init__(self, seconds):
        self.seconds, self.steps, self.closed = seconds, [], False

    def open(self, start, groups):
        return "it is open"

    def restore(self, step):
        pass

    def write(self, record):
        time.sleep(self.seconds)
        self.steps.append(record.step)

    def close(self):
        self.closed = True


class Full(Slow):
    def write(self, record):
        raise OSError(28, "No space left on device\nand more")


class Exiting(Slow):
    def open(self, start, groups):
        raise SystemExit(1)


def with_logger(patch, logger):
    patch.setattr(run_module, "make_loggers", lambda names: [Background("x", logger)])


def test_a_slow_logger_gets_everything_at_the_end_if_it_can(plain, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", "dac")
    monkeypatch.setattr(background, "SHORT", 0.01)
    logger = Slow(0.2)
    with_logger(monkeypatch, logger)
    run = dac.train("dac", "target", out=tmp_path / "run", **SETTINGS)
    assert logger.steps == [50, 100, 150, 200]
    assert logger.closed
    assert "it is open" in caplog.text
    assert "waiting up to 10 s for the logger x" in caplog.text
    assert (run.directory / "metrics.csv").read_bytes() == (plain.directory / "metrics.csv").read_bytes()


def test_a_logger_that_blocks_is_left_behind(plain, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(background, "SHORT", 0.05)
    monkeypatch.setattr(background, "LONG", 0.2)
    monkeypatch.setattr(background, "QUEUE", 2)
    released = threading.Event()
    logger = Slow(0)
    logger.write = lambda record: released.wait()
    with_logger(monkeypatch, logger)
    start = time.monotonic()
    run = dac.train("dac", "target", out=tmp_path / "run", **SETTINGS)
    assert time.monotonic() - start < 30
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "the logger x is too slow: evaluations are left out there; metrics.csv has them all"
    assert lines[-1].startswith("the logger x did not end within 0.2 s: the last evaluations may be missing there")
    assert len(lines) == 2
    for name in FILES:
        assert (run.directory / name).read_bytes() == (plain.directory / name).read_bytes()
    released.set()


@pytest.mark.parametrize(
    ("logger", "words"), [(Full(0), "(OSError: [Errno 28] No space left on device)"), (Exiting(0), "(SystemExit: 1)")]
)
def test_a_logger_that_fails_is_switched_off_with_one_line(logger, words, plain, tmp_path, monkeypatch, caplog):
    with_logger(monkeypatch, logger)
    run = dac.train("dac", "target", out=tmp_path / "run", **SETTINGS)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"the logger x failed and is switched off {words}; metrics.csv has every row"
    for name in FILES:
        assert (run.directory / name).read_bytes() == (plain.directory / name).read_bytes()


def test_the_means_are_of_members_that_are_not_frozen():
    config = resolve("dac", "target", range(3), {})
    groups = find_groups(config, config.members())
    assert [(group.name, group.members) for group in groups] == [("dac", (0, 1, 2))]
    rows = [
        {"member": k, "seed": k, "step": 50, "return": v, "frozen": f}
        for k, v, f in [(0, 1.0, 0), (1, 9.0, 1), (2, 3.0, 0)]
    ]
    record = make_record(50, rows, groups, {"member", "seed", "step"})
    assert record.members[1] == {"return": 9.0, "frozen": 1.0}
    assert record.groups[0]["return"].mean == 2.0
    assert record.groups[0]["return"].low == pytest.approx(2 - 12.706 * np.sqrt(2) / np.sqrt(2), rel=1e-4)
    assert spread([4.0]) == Spread(4.0, None, None)
    rows[0]["return"] = float("nan")
    assert make_record(50, rows, groups, set()).groups[0]["return"] == Spread(3.0, None, None)


def test_every_logger_has_a_name():
    assert tuple(HOMES) == LOGGERS


@pytest.mark.parametrize(
    "command", ["train dac target --log tensorboard,tensorbored --out {}", "resume {} --log tensorbored"]
)
def test_an_unknown_logger_is_refused_before_anything_is_made(command, plain, tmp_path, capsys):
    target = plain.directory if command.startswith("resume") else tmp_path / "run"
    assert main(command.format(target).split()) == 2
    assert capsys.readouterr().err == "dac: log must be some of tensorboard, wandb, trackio, not 'tensorbored'\n"
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_may_have_other_loggers(plain, tmp_path):
    out = tmp_path / "run"
    dac.train("dac", "target", out=out, **SETTINGS, watchers=[stop_at(150)])
    assert main(["resume", str(out), "--log", "tensorboard", "--quiet"]) == 0
    assert len(events_of(out / "tensorboard/alpha-1/seed-0")["return"]) == 1
    assert dac.load(out).config.training.log == ("tensorboard",)


def test_a_logger_is_told_nothing_more_once_it_is_gone():
    watcher = Background("x", Exiting(0))
    config, said = resolve("dac", "target", [0], {}), []
    watcher.on_start(Start(config, None, config.members(), lambda text, warning=False: said.append(text)))
    watcher._thread.join()
    for step in range(3 * background.QUEUE):
        watcher.on_evaluation(Evaluation(step, []))
    watcher.on_end(None)
    assert len(said) == 1
