"""Members spread over several devices: the tests of eight_devices.py, in a process that has eight."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dac
from dac.core.types import UsageError

FILE = Path(__file__).with_name("eight_devices.py")


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_eight_devices(which):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", which, str(FILE)]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def test_more_devices_than_there_are_are_refused_before_anything_starts(tmp_path):
    with pytest.raises(UsageError, match="devices must be from 0 to 1, as many cpu devices as there are, not 2"):
        dac.train("sac", "target", out=tmp_path / "run", devices=2)
    assert not (tmp_path / "run").exists()
