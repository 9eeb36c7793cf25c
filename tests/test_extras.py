"""Whatever needs an extra says so in one line that installs it, and every extra has something that needs it."""

import sys
import tomllib
from pathlib import Path

import pytest

import dac
from dac.core.errors import needs_extra
from dac.core.types import EnvSpec
from dac.envs.bounds import ActionBounds

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ELSEWHERE = {
    "cuda12": "JAX itself says that there is a GPU which it cannot use",
    "cuda13": "JAX itself says that there is a GPU which it cannot use",
    "dataframe": "`Population.to_dataframe` returns a dictionary without it (tests/api/test_population.py)",
    "docs": "for those who build the documentation (`make docs`)",
    "all": "the others",
}
"""Extras without which nothing fails, and why."""


def log_to(name):
    from dac.training.loggers import make_loggers

    make_loggers([name])


def read_dataset():
    from dac.training.offline import load_offline

    load_offline("minari:a/b-v0", EnvSpec(1, 1), ActionBounds.unit(1))


def write_dataset():
    from dac.export.dataset import to_minari

    to_minari("runs/nowhere")


def write_onnx():
    from dac.export.onnx_file import onnx_model

    onnx_model(None)


def film():
    from dac.export.video import find_encoder

    find_encoder()


def start(engine):
    from importlib import import_module

    import_module(f"dac.cluster.engines.{engine}").make()


def copy_results():
    from dac.cluster.storage import Place

    Place("memory://results")


def find_robot():
    from dac.envs.gymnasium import find_environment

    find_environment("PointMaze_UMaze-v3")


def make_task():
    from dac.envs.dmc.files import suite_folder

    suite_folder()


def tune(storage):
    from dac.cluster.tuning.storage import open_storage

    open_storage(storage)


NEEDS = [
    ("dmc", "dm_control", make_task, "a task dmc:DOMAIN-TASK"),
    ("optuna", "optuna", lambda: tune("sqlite://"), "dac tune"),
    ("postgresql", "psycopg", lambda: tune("postgresql+psycopg://x@nowhere/x"), "a study in PostgreSQL"),
    ("robotics", "gymnasium_robotics", find_robot, "the environment PointMaze_UMaze-v3"),
    ("minari", "minari", read_dataset, "init_replay"),
    ("minari", "minari", write_dataset, "export to minari"),
    ("onnx", "onnx", write_onnx, "export to onnx"),
    ("ray", "ray", lambda: start("ray"), "the engine ray"),
    ("ray", "fsspec", copy_results, "a storage"),
    ("slurm", "submitit", lambda: start("slurm"), "the engine slurm"),
    ("tensorboard", "tensorboardX", lambda: log_to("tensorboard"), "the logger tensorboard"),
    ("trackio", "trackio", lambda: log_to("trackio"), "the logger trackio"),
    ("video", "imageio_ffmpeg", film, "a film"),
    ("wandb", "wandb", lambda: log_to("wandb"), "the logger wandb"),
]
"""Extra, the library that it brings, what needs it, and how that is called in the message."""


@pytest.mark.parametrize(("extra", "library", "use", "what"), NEEDS, ids=[f"{n[0]}-{n[3]}" for n in NEEDS])
def test_a_missing_extra_is_one_line_that_installs_it(extra, library, use, what, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)  # every import of it fails
    with pytest.raises(dac.UsageError) as caught:
        use()
    assert str(caught.value) == f"{what} needs the extra {extra!r}: pip install 'diversity-actor-critic[{extra}]'"


def test_every_extra_that_is_named_exists():
    assert {need[0] for need in NEEDS} | set(ELSEWHERE) <= set(PROJECT["optional-dependencies"])


def test_a_library_that_is_there_but_broken_is_said_to_be():
    with pytest.raises(dac.UsageError) as caught, needs_extra("onnx", "export to onnx"):
        raise ImportError("libprotobuf.so:\ncannot open")
    assert str(caught.value) == (
        "export to onnx needs the extra 'onnx': pip install 'diversity-actor-critic[onnx]' "
        "(it is there, but cannot be imported: libprotobuf.so: cannot open)"
    )
