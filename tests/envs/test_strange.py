"""A user's own environment, however unusual, works or is refused in one line that says what to do."""

import time

import pytest

import dac
from dac.cli import main
from dac.core.types import UsageError
from dac.training.watchers import AbstractWatcher
from tests.envs import strange

TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 20, "steps": 100, "eval_every": 50}
TINY |= {"capacity": 80}


class Notebook(AbstractWatcher):
    def __init__(self):
        self.lines = []

    def on_message(self, message):
        self.lines.append(message.text)


WORK = {
    "Plain": "",
    "DictObservations": "observations are laid out flat, as 2 numbers: Dict('position': Box(-1.0, 1.0, (1,), float32)",
    "DoublePrecision": "",
    "Asymmetric": "",
    "NoTimeLimit": "has no time limit below 70 steps, after which evaluations cut an episode (the setting eval_limit)",
}
"""Environments that work, with what is said of them."""


@pytest.mark.parametrize("name", WORK)
def test_it_works(name, tmp_path):
    notes, environment = Notebook(), getattr(strange, name)
    environment.built = 0
    run = dac.train("sac", environment, out=tmp_path / "run", watchers=[notes], eval_limit=70, **TINY)
    lengths = run.metrics["length"][:, 0].tolist()
    assert run.finished
    assert environment.built == 4  # to train with, to evaluate with, and two to try whether it can be saved: no more
    assert lengths == ([70, 70] if name == "NoTimeLimit" else [20, 20])
    said = [line for line in notes.lines if "laid out" in line or "cut an episode" in line]
    assert len(said) == bool(WORK[name])
    assert all(WORK[name] in line for line in said)


REFUSED = {
    "DiscreteActions": "the action space is Discrete(3); libraries for discrete actions are stable-baselines3",
    "SeveralDiscreteActions": "the action space is MultiDiscrete([3 2]); libraries for discrete actions are",
    "DictActions": "; gymnasium.wrappers.TransformAction can make one of it",
    "UnboundedActions": "(gymnasium.wrappers.TransformAction can give it some)",
    "Images": "images are not supported; the observation space is Box(0, 255, (64, 64, 3), uint8); observe features",
    "DiscreteObservations": "(gymnasium.wrappers.FlattenObservation turns discrete ones into zeros and a one)",
    "WrongShape": "member 0 (seed 0), environment 0, reset after step 0: the observation has shape (3,); its space has",
    "ResetWithoutSeed": "reset must take a seed: def reset(self, *, seed=None, options=None)",
    "OldReset": "reset must return (obs, info); got ndarray",
    "FailsToBuild": "environment 0 could not be made: FileNotFoundError: no such model: robot.xml",
    "BinaryActions": "the action space is MultiBinary(4); libraries for discrete actions are stable-baselines3",
    "ImagesAmongOthers": "images are not supported; the observation space is Box(0, 255, (3, 64, 64), uint8); observe",
    "SeveralAgents": "; it has several agents, and libraries for those are BenchMARL and RLlib; a wrapper that is",
    "NoBase": "; derive its class from gymnasium.Env",
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_before_anything_is_written(name, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "sac", f"python:tests.envs.strange:{name}", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert REFUSED[name] in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NaNRewards", "every member is frozen; the last one was member 0 (seed 0): the reward of step 10 must be fin"),
        ("OldStep", "environment 0, step 1: step must return (obs, reward, terminated, truncated, info); got 4 values"),
    ],
)
def test_it_ends_with_one_line(name, said, tmp_path):
    with pytest.raises(UsageError) as caught:
        dac.train("sac", getattr(strange, name), out=tmp_path / "run", **TINY)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


class Slow(strange.Plain):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


@pytest.mark.parametrize(("cores", "hints"), [(2, 1), pytest.param(1, 0, marks=pytest.mark.slow)])
def test_slow_environments_are_noticed_once(cores, hints, tmp_path, monkeypatch):
    monkeypatch.setattr("dac.training.advice.SLOW_AFTER", 0.1)
    monkeypatch.setattr("dac.training.advice.usable_cores", lambda: cores)
    notes = Notebook()
    dac.train("sac", Slow, seeds=[0, 1], out=tmp_path / "run", watchers=[notes], **TINY | {"steps": 200})
    said = "of the time goes into stepping the environments one after the other; the setting workers spreads them over"
    assert [said in line for line in notes.lines].count(True) == hints
