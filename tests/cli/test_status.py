"""`dac status` says how far every run is, from its directory alone, and never fails for one that is damaged."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

import dac
from dac.cli import main
from dac.core.errors import UsageError
from dac.rundir import glance as glance_module
from dac.rundir.glance import glance
from dac.rundir.lock import Lock
from dac.rundir.table import read_table, read_tail
from dac.training.watchers import Message, Position, Start
from dac.training.watchers.progress_file import TRACE, WAY_ON, ProgressFile
from tests.training.test_watchers import TINY


def write_run(directory, *, evaluations=3, members=2, steps=1000, task="maze", summary=False, frozen=()):
    """A run directory as `dac train` leaves it, with made-up numbers."""
    directory.mkdir(parents=True)
    seeds, training = list(range(members)), f"steps = {steps}\nenvs = 1\neval_every = 100\n"
    head = f'algorithm = "dac"\ntask = "{task}"\nseeds = {seeds}\n'
    (directory / "config.toml").write_text(f"{head}\n[training]\n{training}\n[hyper]\nalpha = 0.5\nhidden = [8, 8]\n")
    rows = ["member,seed,step,updates,return,return_std,length,frozen"]
    for number in range(evaluations):
        step = 100 * (number + 1)
        rows += [f"{m},{m},{step},{step},{step + m}.5,0.0,10.0,{int(m in frozen)}" for m in range(members)]
    (directory / "metrics.csv").write_text("\n".join(rows) + "\n")
    if summary:
        found = {
            "agent_steps_per_second": 123.0,
            "seconds": 60.0,
            "versions": {"dac": "0.2.0"},
            "warnings": ["Q explodes"],
            "members": [{"frozen": None}] * members,
        }
        (directory / "summary.json").write_text(json.dumps(found))
    return directory


def test_states(tmp_path):
    finished = write_run(tmp_path / "a", evaluations=10, summary=True)
    seen = glance(finished)
    assert (seen.state, seen.step, seen.steps, seen.mean_return, seen.rate) == ("finished", 1000, 1000, 1001.0, 123.0)
    assert seen.devices == 1  # a summary of an older version does not say
    text = (finished / "summary.json").read_text()
    (finished / "summary.json").write_text(text.replace('"seconds"', '"devices": 8, "seconds"'))
    assert (glance(finished).devices, glance(finished).detail) == (8, "on 8 devices")
    assert seen.warnings == ("Q explodes",)
    stopped = write_run(tmp_path / "b", frozen=(1,))
    seen = glance(stopped)
    assert (seen.state, seen.detail, seen.step, seen.mean_return, seen.frozen) == ("stopped", "", 300, 300.5, (1,))
    (stopped / "checkpoint").mkdir()
    (stopped / "checkpoint/step-000000000400.json").write_text("{}")
    assert glance(stopped).step == 400
    with Lock(stopped):
        seen = glance(stopped)
        assert (seen.state, seen.pid, seen.host) == ("running", os.getpid(), socket.gethostname())
        assert seen.detail == f"process {os.getpid()} on {socket.gethostname()}"
        (stopped / "progress.json").write_text(json.dumps({"step": 320, "devices": 4}))
        seen = glance(stopped)
        assert (seen.devices, seen.detail) == (4, f"process {os.getpid()} on {socket.gethostname()}, 4 devices")
    assert glance(stopped).state == "stopped"


def test_whoever_holds_a_lock_is_found_out(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (run / "lock").write_text(json.dumps({"pid": gone.pid, "host": socket.gethostname()}))
    seen = glance(run)
    assert (seen.state, seen.detail) == ("stopped", f"its process {gone.pid} on {socket.gethostname()} is gone")
    # its number belongs to another process now
    (run / "lock").write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
    assert glance(run).state == "stopped"
    with Lock(run):
        pass  # looking took nothing away
    # another machine is believed, unless it has said nothing for long
    (run / "lock").write_text(json.dumps({"pid": 7, "host": "elsewhere"}))
    assert glance(run).detail == "process 7 on elsewhere"
    (run / "progress.json").write_text(json.dumps({"step": 320, "time": time.time()}))
    assert (glance(run).state, glance(run).step) == ("running", 320)
    monkeypatch.setattr(glance_module, "SILENCE", -1)
    assert (glance(run).state, glance(run).detail) == ("stopped", "its process 7 on elsewhere is gone")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.toml", b"task = ", "config.toml cannot be read"),
        ("config.toml", b"\xff\xfe", "config.toml cannot be read"),
        ("config.toml", b'task = "maze"', "config.toml is damaged: 'algorithm' is missing"),
        ("metrics.csv", b"no,columns\n1,2\n", "metrics.csv is damaged: its first line does not name the columns"),
        (
            "metrics.csv",
            b"member,step,return,frozen\n0,1,2,0\n1,1,x,0\n",
            "metrics.csv is damaged: a row does not",
        ),
        (
            "metrics.csv",
            b"member,step,return,frozen\n0,1,2,0\n0,1,2,0\n",
            "metrics.csv is damaged: it does not hold a",
        ),
        ("summary.json", b"{", "summary.json is damaged"),
        ("summary.json", b"[]", "summary.json is damaged: it holds no table"),
        ("summary.json", b"{}", "summary.json is damaged: 'members' is missing"),
        ("checkpoint/step-000000000100.json", b"{", "no checkpoint can be read"),
    ],
)
def test_a_damaged_run_is_broken_and_says_why(name, content, words, tmp_path, capsys):
    run = write_run(tmp_path / "run")
    (run / "checkpoint").mkdir()
    (run / name).write_bytes(content)
    assert main(["status", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run ") and "broken" in line]
    assert f"broken: {words}" in line


@pytest.mark.parametrize("name", ["progress.json", "lock"])
def test_what_only_adds_something_may_be_damaged(name, tmp_path):
    run = write_run(tmp_path / "run")
    (run / name).write_bytes(b"{")
    assert glance(run).state == "stopped"


def test_rows_that_are_being_written_are_left_out(tmp_path):
    """At any byte at which a reader may come, it sees the last evaluation that is whole."""
    run = write_run(tmp_path / "run", evaluations=2)
    content = (run / "metrics.csv").read_bytes()
    whole = [content.index(b"\n") + 1, content.index(b"\n0,0,200") + 1, len(content)]
    for size in range(len(content) + 1):
        (run / "metrics.csv").write_bytes(content[:size])
        seen = glance(run)
        assert seen.state == "stopped", seen.detail
        assert seen.step == 100 * (sum(size >= bound for bound in whole[1:]))
    assert seen.mean_return == 201.0


def test_only_the_end_of_a_long_file_is_read(tmp_path):
    run = write_run(tmp_path / "run", evaluations=2000, members=3)
    path = run / "metrics.csv"
    tail, table = read_tail(path, 3), read_table(path, 3)
    assert tail.count < 100 < table.count == 2000
    assert tail.evaluation(-1) == table.evaluation(-1)
    assert table.column("return", [0, 1999]) == [[100.5, 101.5, 102.5], [200000.5, 200001.5, 200002.5]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A real run that was stopped, one of an environment that is not installed, and some others."""
    folder = tmp_path_factory.mktemp("runs")
    dac.train("dac", "target", out=folder / "mine", watchers=[stop], **(TINY | {"alpha": [0.5, 1.0]}))
    write_run(folder / "deep/elsewhere", task="python:nowhere:make")
    write_run(folder / "deep/done", summary=True, evaluations=10)
    (folder / "mine/checkpoint/other").mkdir()
    shutil.copy(folder / "mine/config.toml", folder / "mine/checkpoint/other")  # no run is looked for in here
    return folder


def stop(evaluation):
    return "enough" if evaluation.step == 100 else None


def test_the_table(runs, capsys):
    assert main(["status", str(runs)]) == 0
    header, *rows, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "algorithm", "task", "members", "state", "steps", "return", "steps/s", "left"]
    assert [row.split()[0] for row in rows] == ["deep/done", "deep/elsewhere", "mine"]
    assert rows[0].split()[4:] == ["finished", "1,000", "of", "1,000", "1,001.0", "123", "-"]
    assert rows[1].split()[1:] == [
        "dac",
        "python:nowhere:make",
        "2",
        "stopped",
        "300",
        "of",
        "1,000",
        "301.0",
        "-",
        "-",
    ]
    assert rows[2].split()[1:8] == ["dac", "target", "6", "stopped", "100", "of", "200"]
    assert last == f"3 runs below {runs}: 1 finished, 2 stopped"


def test_json_for_scripts(runs, capsys):
    assert main(["status", str(runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    mine = dac.load(runs / "mine")
    assert [run["state"] for run in found] == ["finished", "stopped", "stopped"]
    assert found[2]["run"] == str(runs / "mine")
    assert found[2]["members"] == len(mine.members) == 6
    assert found[2]["return"] == pytest.approx(mine.metrics["return"][-1].mean())


def test_nothing_there(tmp_path, capsys, monkeypatch):
    assert main(["status", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no runs below {tmp_path}\n"
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "no runs below runs\n"
    assert main(["status", "absent"]) == 2
    assert capsys.readouterr().err == "dac: no such folder: absent\n"
    assert main(["status", "--watch", "soon"]) == 2
    assert capsys.readouterr().err == "dac: argument --watch: takes seconds from 0.1 to 86400, not 'soon'\n"


def test_it_does_not_wait_for_jax(runs):
    program = (
        f"import sys; from dac.cli import main; main(['status', {str(runs)!r}])\n"
        "print([name for name in ('jax', 'numpy', 'gymnasium', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_progress_file(tmp_path, monkeypatch):
    """At most once a second; with the pace of the last minute and the warnings; where it cannot be written, no harm."""
    clock = [100.0]
    monkeypatch.setattr("dac.training.watchers.progress_file.time.monotonic", lambda: clock[0])
    config = dac.config.resolve("dac", "target", [0], {"steps": 1000})
    watcher, path = ProgressFile(tmp_path), tmp_path / "progress.json"
    watcher.on_start(Start(config, tmp_path, config.members(), devices=2))

    def told(step, seconds):
        clock[0] += seconds
        watcher.on_progress(Position(step, 50.0, {}))
        return json.loads(path.read_text())

    assert told(10, 1)["seconds_left"] is None
    assert told(20, 0.5)["step"] == 10
    watcher.on_message(Message("member 1 is frozen", warning=True))
    found = told(30, 1.5)
    assert (found["step"], found["agent_steps_per_second"], found["warnings"]) == (30, 50.0, ["member 1 is frozen"])
    assert found["devices"] == 2
    assert found["seconds_left"] == pytest.approx(970 * 2 / 20)
    assert abs(found["time"] - time.time()) < 60
    watcher.on_end(KeyboardInterrupt("stopped at step 30"))
    assert json.loads(path.read_text())["end"] == "stopped at step 30"
    watcher.on_end(UsageError(f"step 30: hot{TRACE}error.txt{WAY_ON}of step 20, continue with: dac resume runs/a"))
    assert json.loads(path.read_text())["end"] == "step 30: hot"  # the whole line would be wider than the table
    watcher._path = tmp_path / "gone/progress.json"
    watcher.on_end(None)
