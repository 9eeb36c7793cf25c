"""`--kernels`: off unless asked for, and said at the start where it does not apply."""

import jax
import pytest

import dac
from dac.config import resolve
from dac.training import kernels
from dac.training.kernels import settle_kernels
from tests.training.test_resume import TINY

SETTINGS = TINY | {"steps": 60, "eval_every": 60}


class Device:
    platform, device_kind, compute_capability = "gpu", "NVIDIA H200", "9.0"


def line(**settings):
    return settle_kernels(resolve("sac", "target", settings={"kernels": "on"} | settings))[1]


def test_on_a_cpu_a_run_with_kernels_says_that_it_has_none(tmp_path, caplog):
    caplog.set_level("INFO", logger="dac")
    asked = dac.train("sac", "target", out=tmp_path / "asked", **SETTINGS | {"kernels": "on"})
    assert "kernels: off; they are for GPUs of compute capability 9.0, not for a cpu" in caplog.text
    assert asked.config.hyper["kernels"] == "off"
    assert asked.policies().mlp.kernels == "off"


def test_the_default_is_off_and_keeps_the_fingerprint():
    config = resolve("sac", "target")
    assert settle_kernels(config) == (config, None)
    assert config.make_algorithm().init(jax.random.key(0), dac.EnvSpec(2, 1)).policy.model.mlp.kernels == "off"
    assert "kernels" not in str(config.fingerprint())


def test_a_hopper_runs_them_for_the_networks_that_have_some(monkeypatch):
    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert line() == "kernels: on, fused passes of the networks with float32 operands"
    assert line(precision="bf16").endswith("with bfloat16 operands")
    assert line(hidden=(16, 8)) == "kernels: off; they are for two hidden layers of one size, not 16,8"
    assert line(hidden=(1024, 1024)) == "kernels: off; they are for hidden layers up to 512"
    assert line(network="residual") == "kernels: off; they are for networks of --network mlp"
    assert line(activation="tanh") == "kernels: off; they are for ReLU without norm"
    monkeypatch.setattr(Device, "compute_capability", "8.0")
    assert line() == "kernels: off; they are for GPUs of compute capability 9.0, and NVIDIA H200 has 8.0"


def test_a_wrong_word_is_refused():
    with pytest.raises(dac.UsageError, match="kernels must be one of auto, on, off, not 'yes'"):
        resolve("sac", "target", settings={"kernels": "yes"})
    assert kernels.MADE_FOR == "9.0"
