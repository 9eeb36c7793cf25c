"""What a terminal shows while a run trains."""

import io
import re

import pytest
from rich.console import Console

from dac.config import resolve
from dac.progress import ProgressBar


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_bar_stays_in_a_narrow_terminal(width):
    screen = io.StringIO()
    bar = ProgressBar(resolve("dac", "SparseHalfCheetah", range(20), {}))
    bar._console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    with bar:
        bar.announce("in [red]")
        bar.update(340_000, 23_456.7, **{"return": 786.1, "visited": 39_873.5})
        assert bar._live is not None
        bar._live.refresh()
    # what is drawn over is kept as a line of its own
    lines = [line for line in re.split(r"\r|\n|\x1b\[[?0-9]*[a-zA-Z]", screen.getvalue()) if "━" in line]
    assert "dac on SparseHalfCheetah, 20 members" in screen.getvalue()
    assert "in [red]" in screen.getvalue()
    assert lines
    assert all(len(line) <= width for line in lines)
    assert "340,000/1,000,000 steps" in lines[-1]
    assert ("visited 39,873.5" in lines[-1]) == (width == 200)
    assert ("…" in lines[-1]) == (width < 200)
