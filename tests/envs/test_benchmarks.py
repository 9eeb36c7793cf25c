"""What docs/benchmarks.md says of benchmarks that are not installed here, on environments of the same shape."""

import re
from pathlib import Path

import numpy as np
import pytest

import dac
from tests.envs import benchmarks

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 20, "steps": 100, "eval_every": 50}
TINY |= {"capacity": 80, "eval_episodes": 6}


def test_the_pages_check_finds_what_does_not_follow_from_the_seed():
    """With the wrapper of the page it does, and with either half of the advice alone it does not."""
    source = re.search(r"```python\n(import gymnasium\nimport numpy\n.*?)\nprint", PAGE, re.S)[1]
    scope: dict = {}
    exec(source, scope)
    starts_afresh = scope["starts_afresh"]
    assert starts_afresh(benchmarks.make_reaching)
    assert not starts_afresh(lambda: benchmarks.Reaching(seed=0))
    assert not starts_afresh(lambda: benchmarks.DrawsTask(benchmarks.Reaching()))


@pytest.mark.parametrize(
    ("task", "length"),
    [("python:tests.envs.benchmarks:make_reaching", 25), ("gym:tests.envs.benchmarks:myoPretended-v0", 20)],
)
def test_they_are_trained_on_with_their_success_rates(tmp_path, task, length):
    """Episodes end by the limit that each has in its own way, and the same policy has the same episodes again."""
    run = dac.train("sac", task, out=tmp_path / "run", **TINY)
    assert run.metrics["length"].ravel().tolist() == [length, length]
    success = run.metrics["success"].ravel()
    assert ((success >= 0) & (success <= 1)).all()
    once, again = run.evaluate(6), run.evaluate(6)
    np.testing.assert_array_equal(once.returns, again.returns)
    np.testing.assert_array_equal(once.successes, again.successes)
