"""The axes that the package writes down are the axes it has, and no array gets an axis by accident."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dac.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[1]
QUICK = ("dac",)


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ALGORITHMS]
)
def test_every_axis_is_what_it_is_called(algorithm):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.axes", algorithm]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"checked {algorithm}" in done.stdout
