"""The benchmark that a GPU waits for goes through here too, in Pallas' interpreter, where times mean nothing."""

import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import kernels

    yield kernels
    for name in ("kernels", "common", "update"):
        sys.modules.pop(name, None)


def test_without_a_gpu_it_says_so(bench, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main([])
    assert "there is no GPU here; with --interpret" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        bench.main(["--tiles", "forward=64,63,8,2"])
    assert "in powers of two: forward=64,63,8,2" in capsys.readouterr().err


@pytest.mark.slow
def test_it_checks_then_times_passes_and_updates(bench, capsys, monkeypatch):
    tiny = "--interpret --members 2 --algorithm sac --hidden 16 --batch 32 --updates 1 --rounds 1 --precision bf16"
    bench.main([*tiny.split(), "--tiles", "forward=16,16,4,1"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("parity") and "fine True" in line for line in lines) == 6
    assert sum(line.startswith("pass") for line in lines) == 7  # three by XLA, three by kernels, one cut otherwise
    assert [line.split("kernels ")[1].split()[0] for line in lines if line.startswith("update")] == ["off", "on"]
    assert bench.TILES["forward"] != bench.Tile(16, 16, 4, 1)  # what was tried is not kept
    monkeypatch.setattr(bench.mlp, "_through", lambda active, gradient: gradient)  # a wrong kernel is not timed
    with pytest.raises(SystemExit, match="a kernel is wrong on this device"):
        bench.main(tiny.split())
    assert "update" not in capsys.readouterr().out
