"""Members spread over several devices: the tests of eight_devices.py, in a process that has eight."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import dac
from dac.core.types import UsageError
from dac.envs.host import usable_cores
from dac.training.devices import DIVIDE

FILE = Path(__file__).with_name("eight_devices.py")


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_eight_devices(which):
    flags = f"{os.environ['XLA_FLAGS']} --{DIVIDE}=8"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", which, str(FILE)]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


def test_more_devices_than_there_are_are_refused_before_anything_starts(tmp_path):
    jax.devices()  # JAX has begun to compute
    expected = "devices must be from 0 to 1, as many cpu devices as there are, not {}"
    with pytest.raises(UsageError, match=expected.format(2)) as refused:
        dac.train("sac", "target", out=tmp_path / "run", devices=2)
    late = (
        "; a CPU is divided before JAX has begun to compute, or by XLA_FLAGS=--xla_force_host_platform_device_count=2"
    )
    assert str(refused.value).endswith(late if usable_cores() > 1 else "not 2")
    with pytest.raises(UsageError, match=expected.format(4096) + "$"):
        dac.train("sac", "target", out=tmp_path / "run", devices=4096)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(usable_cores() < 2, reason="this machine has one core")
def test_the_cores_of_a_cpu_are_devices_where_that_is_asked_for(tmp_path):
    """From the command line, where nothing has begun yet; each device has what a population of its members has."""
    small = ["--steps", "60", "--eval-every", "30", "--random-steps", "10", "--update-after", "20", "--hidden", "8"]
    command = [sys.executable, "-m", "dac", "train", "sac", "target", *small, "--batch-size", "8"]

    def rows(name, *more):
        out = tmp_path / name
        done = subprocess.run([*command, "--out", out, *more], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr, (out / "metrics.csv").read_text().split()

    said, both = rows("both", "--seeds", "0:4", "--devices", "2")
    assert "devices: 4 members on 2 of 2 cpu devices, 2 on each" in said
    first = rows("first", "--seeds", "0:2")[1][1:]
    assert sorted(first) == sorted(row for row in both[1:] if row.split(",")[0] in "01")
