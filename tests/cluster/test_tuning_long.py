"""`dac tune` on a real task, killed twice on the way, against the default settings on fresh seeds."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import dac
from dac.cluster.tuning.storage import close_storage, open_storage, storage_text
from dac.experiments.stats import iqm
from tests.cluster.postgres import server

COMMON = shlex.split("--hidden 32,32 --batch-size 64 --steps 7500 --random-steps 500 --update-after 500")
COMMON += shlex.split("--eval-every 500 --eval-episodes 3")
TUNE = shlex.split("tune gym:Pendulum-v1 --trials 32 --seeds-per-trial 2 --checkpoint-every 1000 --quiet") + COMMON
FRESH = shlex.split("--seeds 100:110 --quiet")
KILLS = ["rung-0-001", "rung-1-000"]
"""The populations in whose midst the process is killed."""


def dac_in_a_process(*words):
    """Run a command as a user would: the tests' own quick compilation makes slower programs."""
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.Popen([sys.executable, "-m", "dac", *map(str, words)], env=own)


def kill_in(process, population):
    """Kill a process as soon as that population has written two evaluations of its own."""
    path = population / "metrics.csv"
    begun, end = None, time.monotonic() + 1500
    while True:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        lines = path.read_text().count("\n") if path.exists() else 0
        begun = lines if begun is None and lines else begun
        if begun is not None and lines >= max(begun, 17) + 16:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def finished(storage, name):
    """All that is known of the trials that have ended, with the time at which they were told."""
    opened = open_storage(storage)
    trials = opened.get_all_trials(opened.get_study_id_from_name(name))
    close_storage(opened)
    return {t.number: (t.state, t.value, t.params, t.datetime_complete) for t in trials if t.state.is_finished()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tuned_settings_are_at_least_as_good_as_the_defaults(kind, tmp_path):
    out, name = tmp_path / "study", "gym-Pendulum-v1-dac"
    with server() if kind == "postgresql" else contextlib.nullcontext() as url:
        where = ["--out", out, *([] if url is None else ["--storage", url])]
        storage, before = storage_text(url, out), {}
        for number, population in enumerate(KILLS):
            process = dac_in_a_process(*TUNE, *where)
            kill_in(process, out / "populations" / population)
            now = finished(storage, name)
            assert number == 0 or len(now) == 24  # of the second rung it is known who is not on it
            assert now | before == now  # what was known is still known, and was not told again
            before = now
        assert dac_in_a_process(*TUNE, *where).wait() == 0
        after = finished(storage, name)
    assert after | before == after
    assert sorted(after) == list(range(32))
    states = [state.name for state, *_ in after.values()]
    assert (states.count("COMPLETE"), states.count("PRUNED")) == (8, 24)
    tuned = ["train", "--config", out / "best.toml", "--out", tmp_path / "tuned", *FRESH]
    default = ["train", "dac", "gym:Pendulum-v1", *COMMON, "--out", tmp_path / "default", *FRESH]
    assert dac_in_a_process(*tuned).wait() == dac_in_a_process(*default).wait() == 0
    last = {n: dac.load(tmp_path / n).metrics["return"][-5:].mean(axis=0) for n in ("tuned", "default")}
    assert iqm(last["tuned"]) >= iqm(last["default"]), last
    assert np.isfinite(last["tuned"]).all()
