"""Engines are found by their names, and what they do not take is refused in one line."""

import pytest

from dac.cli import main
from dac.cluster.engines import ENGINES, check_engine, read_options
from dac.core.errors import UsageError

STUDY = 'tasks = ["target"]\nalgorithms = ["sac"]\nseeds = [0]\n[settings]\nsteps = 100\n'


def test_options_are_read():
    assert read_options([]) == {}
    assert read_options(["gpus=0.5", "storage=s3://bucket/a=b"]) == {"gpus": "0.5", "storage": "s3://bucket/a=b"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["gpus"], "bad option 'gpus': an option of an engine is written NAME=VALUE"),
        (["=1"], "bad option '=1': an option of an engine is written NAME=VALUE"),
        (["gpus=1", "gpus=2"], "bad option 'gpus=2': gpus is given twice"),
    ],
)
def test_options_that_are_none(texts, message):
    with pytest.raises(UsageError, match=message):
        read_options(texts)


def test_this_machine_takes_no_options():
    check_engine("local", None, {})
    with pytest.raises(UsageError, match="the engine `local` has no option 'gpus'"):
        check_engine("local", None, {"gpus": "1"})
    assert list(ENGINES) == ["local", "ray", "slurm"]


@pytest.mark.parametrize("command", [["sweep", "study.toml"], ["reproduce", "fig1-maze", "--scale", "0.01"]])
def test_the_command_line_hands_options_on(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    assert main([*command, "--engine", "slurm", "--option", "partitoin=gpu", "--out", "out", "--quiet"]) == 2
    assert capsys.readouterr().err.startswith("dac: the engine slurm has no option 'partitoin' (accepted: time, cpus")
    assert main([*command, "--option", "gpus=1", "--out", "out"]) == 2
    assert "the engine `local` has no option 'gpus'" in capsys.readouterr().err
    assert not (tmp_path / "out/runs").exists()
