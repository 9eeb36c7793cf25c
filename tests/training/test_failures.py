"""An environment that raises ends a run with one line and a checkpoint, from which it goes on."""

import functools
import itertools
import traceback

import gymnasium as gym
import numpy as np
import pytest

import dac
from dac.cli import main
from dac.core.keys import RESET, env_seed
from dac.core.types import UsageError
from tests.envs import strange

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "seeds": [0, 7], "envs": 2}
TINY |= {"steps": 160, "eval_every": 40, "checkpoint_every": 60, "eval_episodes": 2}


class Fragile(gym.Env):
    """Episodes of 20 steps; the environment that was made as the `number`-th raises at its `at`-th step or reset."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    number, at, where = None, 0, "step"
    made = itertools.count()

    def __init__(self):
        self.mine = next(Fragile.made) == Fragile.number
        self.calls = {"step": 0, "reset": 0}

    def _count(self, where):
        self.calls[where] += 1
        if self.mine and where == Fragile.where and self.calls[where] == Fragile.at:
            raise LookupError("the motor\nis hot")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count("reset")
        self.time = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self._count("step")
        self.time += 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(action[0]), False, self.time == 20, {}


@pytest.fixture
def fragile(monkeypatch):
    """Let the environment of that number raise.

    The first four are for training, the next two for a trial whether they can be saved, four more for evaluations.
    """

    def choose(number, at, where="step"):
        monkeypatch.setattr(Fragile, "made", itertools.count())
        for name, value in {"number": number, "at": at, "where": where}.items():
            monkeypatch.setattr(Fragile, name, value)

    return choose


@pytest.mark.parametrize(
    ("number", "at", "where", "said", "saved", "evaluated"),
    [
        (3, 27, "step", "environment 1, step 54", 54, [40]),
        (2, 3, "reset", "environment 0, reset after step 80", 80, [40]),
        (9, 30, "step", "episode 1 of an evaluation, step 10", 80, [40]),
    ],
)
def test_it_is_named_and_saved_and_goes_on(tmp_path, fragile, number, at, where, said, saved, evaluated):
    fragile(number, at, where)
    out = tmp_path / "a run"
    words = rf"^member 1 \(seed 7\), {said}: LookupError: the motor is hot; its traceback is in {out}/error.txt; "
    words += rf"the last checkpoint is of step {saved}, continue with: dac resume '{out}'$"
    with pytest.raises(UsageError, match=words) as caught:
        dac.train("sac", Fragile, out=out, **TINY)
    assert isinstance(caught.value.__cause__, LookupError)
    assert "test_failures.py" in (out / "error.txt").read_text()
    assert dac.load(out).metrics["step"][:, 0].tolist() == evaluated
    assert dac.load(out).evaluate(1).returns.shape == (2, 1)
    fragile(None, 0)  # mended
    run = dac.resume(out)
    assert run.finished
    assert run.metrics["step"][:, 0].tolist() == [40, 80, 120, 160]  # the one that failed is made
    assert run.summary["members"][1]["updates"] == 160 - 50
    assert not (out / "error.txt").exists()


def test_the_command_says_one_line_unless_more_is_asked_for(tmp_path, fragile, capsys, monkeypatch):
    options = [f"--{k.replace('_', '-')}={str(v).strip('()[]').replace(' ', '')}" for k, v in TINY.items()]
    command = ["train", "sac", f"python:{__name__}:Fragile", *options, "--quiet"]
    fragile(0, 5)
    assert main([*command, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dac: member 0 (seed 0), environment 0, step 10: LookupError")
    assert error.count("\n") == 1
    monkeypatch.setenv("DAC_DEBUG", "1")
    fragile(0, 1, "reset")
    assert main([*command, "--out", str(tmp_path / "other")]) == 2
    error = capsys.readouterr().err
    assert "in _count" in error
    last = "dac: member 0 (seed 0), environment 0, reset after step 0: LookupError: the motor is hot"
    assert error.splitlines()[-1] == last
    assert not (tmp_path / "other").exists()  # nothing was learnt yet


def test_it_is_the_same_with_worker_processes(tmp_path):
    """The cause holds the traceback of the other process."""
    factory = functools.partial(strange.FailsAtSeed, env_seed(7, RESET, 0, 1))
    factory.__module__, factory.__qualname__ = __name__, "fails_at_seed"
    said = r"^member 1 \(seed 7\), environment 1, step 6: LookupError: too late; "
    with pytest.raises(UsageError, match=said) as caught:
        dac.train("sac", factory, out=tmp_path / "run", workers=2, **TINY)
    assert "strange.py" in "".join(traceback.format_exception(caught.value.__cause__))
    assert "strange.py" in (tmp_path / "run/error.txt").read_text()
