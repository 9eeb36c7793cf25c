"""A terminal that closes and a reader that goes away: nothing is lost, and no error is raised on the way."""

import errno
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dac
from dac.core.streams import Lasting
from dac.training.signals import Interrupted, Signals
from dac.training.watchers import AbstractWatcher

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "steps": 200, "eval_every": 50, "checkpoint_every": 150}
TINY |= {"capacity": 80, "random_steps": 20}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items() if name not in ("hidden", "steps")]
OPTIONS += ["--hidden=8,8"]


class HangUp(AbstractWatcher):
    """Closes the terminal at step 100, of which the kernel and the shell both tell the process."""

    def on_evaluation(self, evaluation):
        if evaluation.step == 100:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)


def test_the_end_of_a_terminal_saves_the_run(tmp_path):
    said = "stopped at step 100; the last checkpoint is of step 100, continue with"
    with pytest.raises(Interrupted, match=said) as caught:
        dac.train("sac", "target", out=tmp_path / "run", watchers=[HangUp()], **TINY)
    assert caught.value.exit_code == 128 + signal.SIGHUP
    assert not (tmp_path / "run/lock").exists()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    assert dac.resume(tmp_path / "run").finished


def test_what_nohup_ignores_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert dac.train("sac", "target", out=tmp_path / "run", watchers=[HangUp()], **TINY).finished
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_interruption_ends_it_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    with Signals(lambda: None) as signals:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        signals.received = None
    assert left == [128 + signal.SIGTERM]


class Closed(io.StringIO):
    """A stream nobody reads, or on a disk that is full."""

    def __init__(self, number):
        super().__init__()
        self.number, self.tried = number, 0

    def write(self, text):
        self.tried += 1
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC])
def test_a_stream_that_fails_falls_silent(number):
    stream = Lasting(closed := Closed(number))
    print("one", file=stream)
    print("two", file=stream, flush=True)
    assert closed.tried == 4
    assert stream.isatty() is False


CONTROLLING = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_closed_pipe_and_a_closed_terminal(tmp_path):
    """The real thing: a shell's pipe, and a window that is closed in the middle of a run."""
    cache = Path(__file__).parents[2] / ".jax-cache"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "dac", "train", "sac", "target", *OPTIONS]
    pipe = f"set -o pipefail; {' '.join(command)} --steps 200 --out '{tmp_path / 'piped'}' 2>&1 | head -1"
    piped = subprocess.Popen(["bash", "-c", pipe], env=environment, stdout=subprocess.PIPE, text=True)
    window, inside = os.openpty()
    lost = subprocess.Popen(
        [sys.executable, "-c", CONTROLLING, *command, "--steps=10000000", f"--out={tmp_path / 'lost run'}"],
        env=environment, stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    out, _ = piped.communicate(timeout=300)
    assert piped.returncode == 0
    assert out.count("\n") == 1
    assert dac.load(tmp_path / "piped").finished
    end = time.monotonic() + 300
    while not (tmp_path / "lost run/metrics.csv").exists():
        assert lost.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    os.close(window)
    assert lost.wait(timeout=60) == 128 + signal.SIGHUP
    run = dac.load(tmp_path / "lost run")
    assert run.last_checkpoint() > 0
    assert not (tmp_path / "lost run/lock").exists()
