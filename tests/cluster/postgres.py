"""A PostgreSQL server of its own for a test, where the machine has one installed."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


def _programs():
    """The folder with `initdb` and `postgres`: Debian keeps them out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    path = str(found[-1]) if found else shutil.which("initdb")
    return None if path is None else Path(path).parent


def _user():
    """Who runs the server, which refuses to be run by root; None for whoever runs the test."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), "nobody")


@contextlib.contextmanager
def server():
    """Start a server on a free port of this machine, and yield the URL of an empty database; skips without one."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="dac-postgres-", dir="/tmp"))  # pytest's own folders are closed to others
    if user is not None:
        shutil.chown(folder, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    as_user = {"user": user, "cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}
    made = [programs / "initdb", "-D", folder / "data", "-U", "dac", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, **as_user)
    options = ["-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", str(port)]
    log = open(folder / "log", "w")  # noqa: SIM115 - it stays open as long as the server runs
    process = subprocess.Popen([programs / "postgres", *options], stdout=log, stderr=log, **as_user)
    try:
        _wait_for(programs, port, process)
        yield f"postgresql://dac@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)  # it does not wait for those who are connected
        process.wait(30)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(programs, port, process):
    end = time.monotonic() + 60
    while subprocess.run([programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode:
        assert process.poll() is None, "the server ended at once"
        assert time.monotonic() < end, "the server does not answer"
        time.sleep(0.1)
