"""`dac sweep` with real processes: told before it starts, stopped, killed and gone on with, to the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import jax
import pytest

import dac
from dac.api import Run
from dac.cli import main
from dac.cluster.engines.local import LocalEngine
from dac.rundir.lock import Lock

STUDY = """\
tasks = ["target"]
algorithms = ["sac"]
seeds = [0, 1]

[settings]
hidden = [8, 8]
batch_size = 16
steps = 600
checkpoint_every = 100
eval_every = 100
update_after = 20
random_steps = 20
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """Other processes find the tests' compilation cache."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)


def write(folder, text=STUDY):
    (folder / "small.toml").write_text(text)
    return str(folder / "small.toml")


def curves(store):
    return {path.parent.name: path.read_bytes() for path in store.glob("runs/*/metrics.csv")}


def attempts(store):
    """From and to which step each process trained, in order, by run."""
    found = {}
    for path in store.glob("runs/*/attempts.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = [line.get("from", line.get("to")) for line in lines]
    return found


def test_the_plan_is_shown_and_nothing_begun(tmp_path, capsys):
    text = STUDY.replace('["sac"]', '["dac", "sac"]') + "beta = [0.1, 0.3]\n[settings.dac]\nalpha = [0.2, 0.5, 0.8]\n"
    start = ["sweep", write(tmp_path, text.replace("[0, 1]", '"0:10"')), "--out", str(tmp_path / "out"), "--dry-run"]
    assert main(start) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("dac beta 0.1 alpha 0.2, dac beta 0.3 alpha 0.2, dac beta 0.1 alpha 0.5, ")
    assert " and 2 more on target" in shown[1]
    assert shown[1].split()[-6:-2] == ["target", "60", "600", "36,000"]
    assert shown[2].split()[-6:-2] == ["target", "20", "600", "12,000"]
    assert shown[3].startswith("0 of 80 members are finished; 48,000 agent-steps to go, about ")
    assert main([*start, "--memory", "0.00001"]) == 2  # 10 kB
    assert "of 1 members x 600 transitions needs 0.00 GiB, and a device has 0.00 GiB" in capsys.readouterr().err
    paper = ["reproduce", "fig1-maze", "--scale", "0.01", "--dry-run", "--out", str(tmp_path / "out")]
    for memory, populations in ((80, 5), (0.0003, 6)):  # two members fit, not four
        assert main([*paper, "--memory", str(memory)]) == 0
        assert capsys.readouterr().out.count(" on maze ") == populations
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_is_said_before_anything_starts(tmp_path, capsys):
    file = write(tmp_path)
    for more, message in {
        ("--engine", "rai"): "argument --engine: invalid choice: 'rai' (choose from",
        ("--address", "auto"): "the engine `local` is this machine and takes no --address",
        ("--jobs", "0"): "jobs must be at least 1, not 0",
        ("--memory", "nan"): "memory must be above 0 GiB, not nan",
        ("--out", file): f"{file} is not a folder; give another --out",
        ("--job", "2"): "unknown argument '--job' of `dac sweep`; did you mean --jobs?",
    }.items():
        assert main(["sweep", file, *more]) == 2
        assert capsys.readouterr().err.startswith(f"dac: {message}")
    for more, message in {
        ("--engine", "rai"): "argument --engine: invalid choice: 'rai' (choose from",
        ("--address", "auto"): "the engine `local` is this machine and takes no --address",
        ("--memory", "0"): "memory must be above 0 GiB, not 0",
    }.items():
        assert main(["reproduce", "fig1-maze", "--out", str(tmp_path / "out"), *more]) == 2
        assert capsys.readouterr().err.startswith(f"dac: {message}")
    (tmp_path / "out").mkdir()
    with Lock(tmp_path / "out"):
        assert main(["sweep", file, "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert f"{tmp_path / 'out'} is in use by process" in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGKILL], pytest.param([signal.SIGKILL, signal.SIGTERM, signal.SIGKILL], marks=pytest.mark.slow)],
)
def test_what_is_killed_or_preempted_goes_on(tmp_path, monkeypatch, capsys, numbers):
    """SIGKILL loses the steps since a checkpoint, SIGTERM none; the study is the same to the bit, and complete."""
    text = STUDY.replace("steps = 600", "steps = 4000").replace("_every = 100", "_every = 500")
    file, told = write(tmp_path, text), []
    real = LocalEngine.wait

    def wait(engine, seconds):
        """End the process after its second checkpoint, and the ones that follow after their first."""
        ((_, process),) = engine.processes().items() or [(0, 0)]
        saved = [int(path.stem.removeprefix("step-")) for path in tmp_path.glob("out/runs/*/checkpoint/step-*.json")]
        if len(told) < len(numbers) and max(saved, default=0) >= 1000 * (1 + len(told)):
            os.kill(process, numbers[len(told)])
            told.append(numbers[len(told)])
        return real(engine, 0.01)

    monkeypatch.setattr(LocalEngine, "wait", wait)
    assert main(["sweep", file, "--out", str(tmp_path / "out")]) == 0
    out, error = capsys.readouterr()
    assert told == numbers
    assert out.endswith(f"2 of 2 members are finished in {tmp_path / 'out'}\n")
    assert "was lost (killed by SIGKILL); it goes on from step" in error
    monkeypatch.undo()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    ((name, steps),) = attempts(tmp_path / "out").items()
    assert (steps.pop(0), steps.pop()) == (0, 4000)
    for number in numbers:
        if number == signal.SIGTERM:  # where it was asked to leave
            assert steps.pop(0) == steps[0]
        assert steps[0] >= 1000
        assert number == signal.SIGTERM or steps[0] % 500 == 0  # from a checkpoint
        steps.pop(0)
    assert steps == []
    # an undisturbed one
    calm = dac.train("sac", "target", seeds=[0, 1], out=tmp_path / "calm", **tomllib.loads(text)["settings"])
    run = Run(tmp_path / "out/runs" / name)
    assert (run.directory / "metrics.csv").read_bytes() == (calm.directory / "metrics.csv").read_bytes()
    assert run.summary["members"] == calm.summary["members"]
    # a study that is complete says so and starts nothing
    before = (tmp_path / "out/runs" / name / "attempts.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["sweep", file, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"2 of 2 members are finished: the study is complete in {tmp_path / 'out'}\n"
    assert (tmp_path / "out/runs" / name / "attempts.jsonl").read_bytes() == before
    # status and report read its folder
    assert main(["status", str(tmp_path / "out"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["members"], row["step"]) == ("finished", 2, 4000)
    assert main(["report", str(tmp_path / "out"), "-o", str(tmp_path / "report.html")]) == 0


@pytest.mark.slow
def test_one_that_fails_is_reported_and_the_study_ends_with_the_others(tmp_path, monkeypatch, capsys):
    """An environment that raises in its third episode: two of four populations fail, the exit code says so."""
    (tmp_path / "broken_task.py").write_text(
        "import gymnasium\n"
        "class Env(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Box(-1, 1, (1,))\n"
        "    episodes = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.episodes += 1; self.steps = 0\n"
        "        if self.episodes > 3: raise RuntimeError('the robot fell off the table')\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.steps += 1\n"
        "        return self.observation_space.sample(), 0.0, False, self.steps >= 50, {}\n"
        "def make(): return Env()\n"
    )
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, STUDY.replace('["target"]', '["target", "python:broken_task:make"]'))
    assert main(["sweep", file, "--out", "out", "--jobs", "2"]) == 1
    out, error = capsys.readouterr()
    assert "2 of 4 members are finished in out" in out
    assert "failed: sac on python:broken_task:make in out/runs/" in error
    assert "the robot fell off the table" in error


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_study_that_is_stopped_goes_on(tmp_path, number):
    """Six populations, three at a time; with SIGKILL nobody is left behind. The end is that of an undisturbed study."""
    text = STUDY.replace("steps = 600", "steps = 4000\nbatch_size = [16, 17, 18]").replace("batch_size = 16\n", "")
    file = write(tmp_path, text.replace('["sac"]', '["sac", "dac"]'))
    command = [sys.executable, "-m", "dac", "sweep", file, "--jobs", "3", "--out", str(tmp_path / "out")]
    with open(tmp_path / "log.txt", "w") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log)
        while len(list(tmp_path.glob("out/runs/*/checkpoint/step-*.json"))) < 4:
            assert process.poll() is None, (tmp_path / "log.txt").read_text()
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(120) == (-number if number == signal.SIGKILL else 128 + number)
    if number != signal.SIGKILL:
        said = (tmp_path / "log.txt").read_text()
        assert f"dac: stopped; continue with: dac sweep {file} --jobs 3 --out {tmp_path / 'out'}\n" in said
    before = attempts(tmp_path / "out")
    assert main(command[3:]) == 0
    assert main(["sweep", file, "--jobs", "3", "--out", str(tmp_path / "calm")]) == 0
    assert len(curves(tmp_path / "out")) == 6
    assert curves(tmp_path / "out") == curves(tmp_path / "calm")
    for name, steps in attempts(tmp_path / "out").items():
        assert steps[-1] == 4000
        # every process goes on where the one before it was saved
        assert all(start == end for end, start in zip(steps[1:-1:2], steps[2:-1:2], strict=True)), (name, before, steps)
