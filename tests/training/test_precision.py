"""Runs with products in bf16: they resume to the bit, act as they were evaluated, and `auto` is measured once."""

import pytest

import dac
from dac.config import resolve
from dac.core.architectures import MLP
from dac.training import precision
from tests.training.test_resume import TINY, files, killed_and_resumed

SETTINGS = TINY | {"steps": 90, "eval_every": 30, "checkpoint_every": 30, "precision": "bf16"}


@pytest.mark.parametrize("task", ["target", pytest.param("SparseHopper", marks=pytest.mark.slow)])
def test_a_bf16_run_resumes_to_the_bit_and_acts_in_bf16(task, tmp_path, monkeypatch):
    whole = dac.train("sac", task, out=tmp_path / "whole", **SETTINGS)
    resumed = killed_and_resumed("sac", task, tmp_path / "killed", monkeypatch, 60, **SETTINGS)
    assert files(whole) == files(resumed)
    assert 'precision = "bf16"' in (whole.directory / "config.toml").read_text()
    policy = whole.policies()
    assert isinstance(policy.mlp, MLP)
    assert policy.mlp.precision == "bf16"
    assert {str(leaf.dtype) for leaf in policy.mlp.weights} == {"float32"}


def test_auto_is_measured_once_said_and_kept(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="dac")
    monkeypatch.setattr(precision, "measure", lambda config: {"float32": 2e-3, "bf16": 1e-3})
    auto = dac.train("sac", "target", out=tmp_path / "auto", **SETTINGS | {"precision": "auto", "steps": 60})
    assert auto.config.hyper["precision"] == "bf16"
    assert "precision: bf16, by measurement (a hidden layer forward and backward: float32 2.00 ms, bf16 1.00 ms)" in (
        caplog.text
    )
    given = dac.train("sac", "target", out=tmp_path / "given", **SETTINGS | {"steps": 60})
    assert files(auto) == files(given)
    monkeypatch.setattr(precision, "measure", lambda config: pytest.fail("measured again"))
    assert dac.resume(auto.directory, steps=90).config.hyper["precision"] == "bf16"


def test_what_gains_less_than_a_tenth_is_not_worth_the_digits(monkeypatch):
    config = resolve("sac", "target", settings={"precision": "auto"})
    for seconds, chosen in ((1.0, "float32"), (0.95, "float32"), (0.5, "bf16")):
        monkeypatch.setattr(precision, "measure", lambda config, s=seconds: {"float32": 1.0, "bf16": s})
        assert precision.settle_precision(config)[0].hyper["precision"] == chosen


@pytest.mark.parametrize(
    ("algorithm", "settings", "batch", "layer"),
    [
        ("sac", {"hidden": (8, 16, 4), "batch_size": 32}, 32, (8, 16)),
        ("td3", {"hidden": (8,), "batch_size": 32}, 32, (8, 8)),
        ("dac", {"hidden": (8, 8), "network": "residual", "batch_size": 32}, 32, (8, 32)),
        ("ppo", {"hidden": (8, 8), "rollout": 40, "minibatches": 4}, 10, (8, 8)),
        ("acktr", {"hidden": (8, 8), "rollout": 40}, 40, (8, 8)),
    ],
)
def test_what_is_measured_has_the_shapes_of_the_run(algorithm, settings, batch, layer):
    config = resolve(algorithm, "target", range(3), settings=settings | {"precision": "auto"})
    x, weight = precision._largest_layer(config)
    assert (x.shape, weight.shape) == ((3, batch, layer[0]), (3, *layer))


def test_measuring_says_how_long_each_takes():
    config = resolve("sac", "target", settings={"hidden": (8, 8), "batch_size": 16, "precision": "auto"})
    seconds = precision.measure(config)
    assert list(seconds) == ["float32", "bf16"]
    assert all(0 < value < 10 for value in seconds.values())


def test_tf32_on_a_cpu_says_that_it_is_float32():
    config, line = precision.settle_precision(resolve("sac", "target", settings={"precision": "tf32"}))
    assert config.hyper["precision"] == "tf32"
    assert line == "precision: tf32 is for GPUs; on a cpu it is float32"
