"""A run that was killed and resumed is the run that was not, to the bit; and what happens when things go wrong."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load_file

import dac
from dac.algorithms import ALGORITHMS
from dac.cli import main
from dac.core.types import UsageError
from dac.envs.gymnasium import GymnasiumEnvs
from dac.envs.host import CannotSave
from dac.envs.saving import Capturer
from dac.rundir.writing import Recorder
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.envs.test_saving import Engine as Engine

# one capacity for all, so that the tests share compiled programs
TINY = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "seeds": [0, 1, 2], "capacity": 80}
ON_POLICY = {"hidden": (8, 8), "rollout": 40, "minibatches": 4, "epochs": 2, "random_steps": 0, "seeds": [0, 1, 2]}
EVERY = {
    "dac": TINY | {"alpha": "adapt"},
    "rnd": TINY | {"bonus_hidden": (8, 8)},
    "ppo": ON_POLICY,
    "acktr": {"hidden": (8, 8), "rollout": 40, "random_steps": 0, "seeds": [0, 1, 2]},
}


class Killed(BaseException):
    pass


def files(run):
    names = ["metrics.csv", "policy.safetensors", "config.toml"]
    return {name: (run.directory / name).read_bytes() for name in names}


def killed_and_resumed(algorithm, task, out, monkeypatch, kill_at, **settings):
    """Kill the run right after the rows of `kill_at` were written, later than the last checkpoint, and resume."""
    real = Recorder.append

    def killing(self, rows):
        real(self, rows)
        if rows[0]["step"] == kill_at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "append", killing)
        with pytest.raises(Killed):
            dac.train(algorithm, task, out=out, **settings)
    assert not (out / "summary.json").exists()
    return dac.resume(out)


QUICK = [("dac", "maze"), ("dac", "SparseHopper"), ("ppo", "maze")]


@pytest.mark.parametrize(
    ("algorithm", "task"),
    [
        pytest.param(name, task, marks=() if (name, task) in QUICK else pytest.mark.slow)
        for name in ALGORITHMS
        for task in ("maze", "SparseHopper")
    ],
)
def test_killed_and_resumed_is_the_same_to_the_bit(tmp_path, monkeypatch, algorithm, task):
    """Three members, both loops, every algorithm, alpha-adaptation on; checkpoints between the evaluations."""
    settings = EVERY.get(algorithm, TINY) | {"steps": 200, "eval_every": 50, "checkpoint_every": 70}
    whole = dac.train(algorithm, task, out=tmp_path / "whole", **settings)
    parts = killed_and_resumed(algorithm, task, tmp_path / "parts", monkeypatch, 150, **settings)
    assert files(whole) == files(parts)
    summaries = [run.summary for run in (whole, parts)]
    assert summaries[0]["members"] == summaries[1]["members"]
    rows = parts.metrics["step"]
    np.testing.assert_array_equal(rows[:, 0], [50, 100, 150, 200])


@pytest.mark.parametrize(
    "task", ["gym:PointMaze_UMaze-v3", pytest.param("gym:AntMaze_UMaze-v5", marks=pytest.mark.slow)]
)
def test_maze_robots_resume_to_the_bit(tmp_path, monkeypatch, task):
    """Goals, visited cells and success rates too."""
    settings = TINY | {"steps": 200, "eval_every": 100, "checkpoint_every": 70, "eval_limit": 50}
    whole = dac.train("sac", task, out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("sac", task, tmp_path / "parts", monkeypatch, 100, **settings)
    assert files(whole) == files(parts)
    assert whole.summary["members"] == parts.summary["members"]
    for name, array in whole.visits.items():
        np.testing.assert_array_equal(array, parts.visits[name], err_msg=name)
    assert (whole.metrics["visited"][-1] > 1).all()
    assert whole.metrics["success"].shape == (2, 3)
    with np.load(whole.directory / "visits.npz") as saved:  # of which the report draws a map
        assert saved["grid"].tolist() == [50, 50] == list(saved["walls"].shape)
        assert not (saved["first_visit"] >= 0).all(axis=0).any() or not saved["walls"].all()
        assert not (saved["walls"].ravel() & (saved["first_visit"] >= 0)).any()


def test_a_task_of_the_control_suite_resumes_to_the_bit(tmp_path, monkeypatch):
    """Its target is drawn into the model of every simulation anew, and is part of the state."""
    settings = TINY | {"steps": 200, "eval_every": 50, "checkpoint_every": 70, "time_limit": 60}
    whole = dac.train("dac", "dmc:reacher-easy", out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("dac", "dmc:reacher-easy", tmp_path / "parts", monkeypatch, 150, **settings)
    assert files(whole) == files(parts)


def test_more_steps_are_as_if_asked_for_at_once(tmp_path):
    """The ring grows with the number of steps: its rows move to where the longer run has them."""
    settings = TINY | {"steps": 240, "eval_every": 60, "checkpoint_every": 100, "capacity": 10_000}
    whole = dac.train("sac", "maze", out=tmp_path / "whole", **settings)
    short = dac.train("sac", "maze", out=tmp_path / "short", **settings | {"steps": 120})
    longer = dac.load(short.directory).resume(steps=240)
    assert files(whole) == files(longer)
    for steps in (None, 240, 100):
        with pytest.raises(UsageError, match=r"is finished, at 240 steps; give more with `steps=`"):
            dac.resume(longer.directory, steps)


def test_a_run_that_cannot_get_longer_stays_finished(tmp_path, monkeypatch):
    """Killed while a large checkpoint is read: a configuration of 120 steps beside the summary of 60 would be a lie."""
    short = dac.train("sac", "maze", out=tmp_path, **TINY | {"steps": 60, "eval_every": 60, "checkpoint_every": 60})
    before = files(short)

    def killing(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("dac.training.session.restore_latest", killing)
        with pytest.raises(Killed):
            dac.resume(tmp_path, 120)
    assert files(short) == before
    assert dac.load(tmp_path).config.training.steps == 60
    assert dac.resume(tmp_path, 120).metrics["step"][:, 0].tolist() == [60, 120]


def test_a_signal_too_late_for_the_run_is_not_lost(tmp_path, monkeypatch):
    """It comes while the summary is written: the run is finished, and what would follow it is not begun."""
    real = Recorder.finish

    def late(*arguments):
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(Recorder, "finish", late)
    with pytest.raises(KeyboardInterrupt):
        dac.train("sac", "maze", out=tmp_path, **TINY | {"steps": 60, "eval_every": 60})
    assert dac.load(tmp_path).finished


def test_a_full_ring_and_host_replay_resume(tmp_path, monkeypatch):
    """The ring went round before the kill; replay in host memory."""
    settings = TINY | {"steps": 200, "eval_every": 50, "checkpoint_every": 30, "capacity": 64, "replay": "host"}
    whole = dac.train("sac", "SparseHopper", out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("sac", "SparseHopper", tmp_path / "parts", monkeypatch, 150, **settings)
    assert files(whole) == files(parts)


def test_without_a_checkpoint_it_starts_anew(tmp_path, monkeypatch):
    settings = TINY | {"steps": 100, "eval_every": 50, "checkpoint_every": 90}
    whole = dac.train("sac", "maze", out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("sac", "maze", tmp_path / "parts", monkeypatch, 50, **settings)
    assert files(whole) == files(parts)


def test_damage_is_reported_and_the_checkpoint_before_is_used(tmp_path, monkeypatch, capsys):
    settings = TINY | {"steps": 200, "eval_every": 50, "checkpoint_every": 40}
    whole = dac.train("sac", "maze", out=tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(dac, "resume", lambda *arguments: None)
        killed_and_resumed("sac", "maze", tmp_path / "parts", patch, 150, **settings)
    state = max((tmp_path / "parts" / "checkpoint").glob("state-*"))
    state.write_bytes(state.read_bytes()[:-10])
    assert main(["resume", str(tmp_path / "parts")]) == 0
    captured = capsys.readouterr()
    assert f"{state} is damaged" in captured.err
    assert "the checkpoint of iteration 80 is used" in captured.err
    assert files(whole) == files(dac.load(tmp_path / "parts"))


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("gym:Pendulum-v1", {}),
        ("gym:Pendulum-v1", {"workers": 2, "frame_skip": 2, "envs": 2}),
        pytest.param("gym:FetchPush-v4", {}, marks=pytest.mark.slow),
        pytest.param("gym:FrankaKitchen-v1", {}, marks=pytest.mark.slow),
        pytest.param("gym:AdroitHandDoor-v1", {}, marks=pytest.mark.slow),
        pytest.param("gym:HandReach-v3", {}, marks=pytest.mark.slow),
    ],
)
def test_gymnasiums_environments_resume_to_the_bit(tmp_path, monkeypatch, task, changes):
    """They are saved by their attributes, in the middle of episodes."""
    settings = TINY | {"steps": 160, "eval_every": 80, "checkpoint_every": 50, "eval_limit": 50} | changes
    whole = dac.train("sac", task, out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("sac", task, tmp_path / "parts", monkeypatch, 80, **settings)
    assert files(whole) == files(parts)


def killed_and_resumed_by_command(env, directory, monkeypatch, **settings):
    """As above, of a function's environments, the second part from the command line."""
    with monkeypatch.context() as patch:
        patch.setattr(dac, "resume", lambda *arguments: None)
        killed_and_resumed("sac", f"python:{__name__}:{env}", directory, patch, 60, **settings)
    assert main(["resume", str(directory)]) == 0
    assert dac.load(directory).metrics["step"].shape == (2, 3)


def test_environments_without_a_state_go_on_and_say_so(tmp_path, monkeypatch, capsys):
    settings = TINY | {"steps": 120, "eval_every": 60, "checkpoint_every": 50}
    killed_and_resumed_by_command("Engine", tmp_path / "run", monkeypatch, **settings)
    why = "its environments begin new episodes when it is resumed (env.engine is a Hidden, which is no plain data)"
    said = capsys.readouterr()
    assert why in said.out + said.err
    assert f"{why}: not the same to the bit" in said.err


def test_a_checkpoint_without_environments_still_loads(tmp_path, monkeypatch, capsys):
    """As those are that were written before environments of Gymnasium were saved; later ones have them again."""
    settings = TINY | {"steps": 120, "eval_every": 60, "checkpoint_every": 50}
    with monkeypatch.context() as patch:
        patch.setattr(GymnasiumEnvs, "unsaved", "not at that time")
        patch.setattr(dac, "resume", lambda *arguments: None)
        killed_and_resumed("sac", "gym:Pendulum-v1", tmp_path / "run", patch, 60, **settings)
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "(the checkpoint was written without its environments): not the same to the bit" in capsys.readouterr().err
    saved = max((tmp_path / "run" / "checkpoint").glob("state-*"))
    assert "envs.captured" in load_file(saved)


def test_environments_that_can_no_longer_be_saved_are_a_warning(tmp_path, monkeypatch, caplog):
    """Training goes on, and so does a resumed run, with new episodes."""
    settings = TINY | {"steps": 120, "eval_every": 60, "checkpoint_every": 50}
    real = Capturer.capture

    def capture(self):
        if self._env.unwrapped.state is not None and sys._getframe(2).f_code.co_name != "try_saving":
            raise CannotSave("it has grown too much")
        return real(self)

    monkeypatch.setattr(Capturer, "capture", capture)
    run = dac.train("sac", "gym:Pendulum-v1", out=tmp_path / "run", progress=False, **settings)
    said = "on its environments begin new episodes when it is resumed (it has grown too much)"
    assert [r.levelname for r in caplog.records if r.message.endswith(said)] == ["WARNING"]
    assert run.finished


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: (d / "config.toml").write_text("algorithm = 3"), "an algorithm and a task are needed"),
        (lambda d: (d / "config.toml").unlink(), "is not a run directory"),
        (
            lambda d: (d / "config.toml").write_text(
                (d / "config.toml").read_text().replace("gamma = 0.999", "gamma = 0.5")
            ),
            "belongs to another run, or .* was changed",
        ),
        (lambda d: (d / "metrics.csv").write_text("member,seed\n"), r"metrics.csv is damaged: it has 12 bytes of \d+"),
    ],
)
def test_a_broken_run_directory_is_one_line(tmp_path, capsys, monkeypatch, change, message):
    settings = TINY | {"steps": 80, "eval_every": 20, "checkpoint_every": 40}
    with monkeypatch.context() as patch:
        patch.setattr(dac, "resume", lambda *arguments: None)
        killed_and_resumed("sac", "maze", tmp_path / "run", patch, 60, **settings)
    change(tmp_path / "run")
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    import re

    assert re.search(message, error)


@pytest.mark.slow
def test_evaluations_that_wait_for_each_other_are_the_same(tmp_path, monkeypatch):
    """Three evaluations at a time, as on an accelerator: the same rows, also killed and resumed, also at the end."""
    settings = TINY | {"steps": 160, "eval_every": 20, "checkpoint_every": 100, "eval_episodes": 2}
    one = dac.train("dac", "SparseHopper", out=tmp_path / "one", **settings)
    calls, real = [], HostLoop.evaluate_moments

    def counted(self, moments, episodes):
        calls.append(len(moments))
        return real(self, moments, episodes)

    with monkeypatch.context() as patch:
        patch.setattr("dac.training.host.EVALUATIONS_AT_ONCE", 3)
        patch.setattr("jax.default_backend", lambda: "accelerator")
        patch.setattr(HostLoop, "evaluate_moments", counted)
        three = dac.train("dac", "SparseHopper", out=tmp_path / "three", **settings)
        assert calls == [3, 2, 3]  # a checkpoint does not wait
        assert files(three) == files(one)
        killed = killed_and_resumed("dac", "SparseHopper", tmp_path / "killed", patch, 140, **settings)
        assert files(killed) == files(one)


@pytest.mark.parametrize("at", [40, 60, 30, 80])
def test_a_signal_in_any_step_costs_nothing(tmp_path, monkeypatch, at):
    """In the step before an evaluation (40), a checkpoint too (60), between them (30), and in the last one (80)."""
    settings = TINY | {"steps": 80, "eval_every": 20, "checkpoint_every": 60}
    whole = dac.train("dac", "SparseHopper", out=tmp_path / "whole", **settings)
    caught, real = [], HostLoop.iterate

    class Caught:
        received = None

        def __init__(self, stop):
            self.stop = stop
            caught.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *exception): ...

    def iterate(self):
        real(self)
        if self.step == at:
            caught[-1].received = signal.SIGTERM
            caught[-1].stop()

    with monkeypatch.context() as patch:
        patch.setattr("dac.training.session.Signals", Caught)
        patch.setattr(HostLoop, "iterate", iterate)
        if at == 80:  # it is done
            run = dac.train("dac", "SparseHopper", out=tmp_path / "run", **settings)
        else:
            with pytest.raises(KeyboardInterrupt, match=f"stopped at step {at}; the last checkpoint is of step {at},"):
                dac.train("dac", "SparseHopper", out=tmp_path / "run", **settings)
    if at < 80:
        run = dac.resume(tmp_path / "run")
    assert files(run) == files(whole)


def command(*arguments):
    return [sys.executable, "-m", "dac", *map(str, arguments)]


def start(*arguments, **keywords):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[2] / ".jax-cache")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return subprocess.Popen(
        command(*arguments), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords
    )


def finish(process, seconds=600):
    """Exit code and what was said."""
    _, error = process.communicate(timeout=seconds)
    return process.returncode, error


def wait_for(path, process, seconds=300):
    end = time.monotonic() + seconds
    while not any(path.parent.glob(path.name)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


OPTIONS = ["--hidden", "8,8", "--batch-size", "16", "--update-after", "50", "--random-steps", "30", "--seeds", "0:3"]
OPTIONS += ["--eval-every", "100"]


def test_a_real_signal_ends_a_real_run(tmp_path):
    run = tmp_path / "run"
    process = start("train", "dac", "maze", *OPTIONS, "--steps", 1_000_000, "--checkpoint-every", 1000, "--out", run)
    wait_for(run / "metrics.csv", process)
    process.send_signal(signal.SIGTERM)
    code, error = finish(process)
    assert code == 128 + signal.SIGTERM
    last = dac.load(run).last_checkpoint()
    words = f"dac: stopped at step {last:,}; the last checkpoint is of step {last:,}, continue with: dac resume {run}"
    assert error.splitlines()[-1] == words


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_rest_follows(tmp_path, number):
    options = [*OPTIONS, "--steps", 6000, "--checkpoint-every", 1000, "--alpha", "adapt"]
    whole = start("train", "dac", "SparseHopper", *options, "--out", tmp_path / "whole")
    run = tmp_path / "run"
    process = start("train", "dac", "SparseHopper", *options, "--out", run)
    wait_for(run / "metrics.csv", process)
    code, error = finish(start("resume", run))
    assert code == 2
    assert f"in use by process {process.pid} on" in error
    process.send_signal(number)
    code, error = finish(process)
    assert code == 128 + number
    assert f"continue with: dac resume {run}" in error.splitlines()[-1]
    assert error.splitlines()[-1].startswith("dac: stopped at step ")
    code, error = finish(start("resume", run))
    assert code == 0, error
    assert finish(whole)[0] == 0
    assert files(dac.load(run)) == files(dac.load(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("task", "kills"),
    [
        ("maze", 1),
        pytest.param("maze", 25, marks=pytest.mark.slow),
        pytest.param("SparseHopper", 25, marks=pytest.mark.slow),
    ],
)
def test_kill_minus_nine_at_random_instants(tmp_path, task, kills):
    """kill -9 again and again, also while a checkpoint is written: at the end it is the run that was never killed."""
    steps = 400 * (kills + 2) + 2000
    options = [*OPTIONS, "--steps", steps, "--checkpoint-every", 50, "--alpha", "adapt"]
    whole = start("train", "dac", task, *options, "--out", tmp_path / "whole")
    assert finish(whole)[0] == 0
    run, chance, killed = tmp_path / "run", random.Random(f"{task} {kills}"), 0
    process = start("train", "dac", task, *options, "--out", run)
    wait_for(run / "checkpoint" / "step-*", process)
    for _ in range(kills):
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        code, error = finish(process)
        assert code in {0, -signal.SIGKILL}, error
        if (run / "summary.json").exists():  # it was faster than the kill
            break
        killed += 1
        latest = max((run / "checkpoint").glob("step-*")).stat().st_mtime_ns
        process = start("resume", run)
        while process.poll() is None and max((run / "checkpoint").glob("step-*")).stat().st_mtime_ns == latest:
            time.sleep(0.01)
    else:
        code, error = finish(process)
        assert code == 0, error
    assert killed >= max(1, kills - 5)
    assert files(dac.load(run)) == files(dac.load(tmp_path / "whole"))
    assert not list((run / "checkpoint").glob("*.part"))


def test_a_disk_that_fills_up(tmp_path):
    """Files may have 60 kB: the policies and small files fit, a checkpoint does not. Training ends and says so."""

    # the limit is set by the new process itself: what runs between fork and exec would warn of JAX's threads
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000));"
    program += "from dac.cli import main; sys.exit(main())"
    options = [*OPTIONS, "--steps", 300, "--checkpoint-every", 100]
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", "dac", "maze", *map(str, options), "--out", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},
    )
    _, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert error.count("File too large; training goes on, the last good checkpoint is none") == 3, error
    found = dac.load(run)
    assert found.finished
    assert not list((run / "checkpoint").iterdir())


def in_own_mounts(script, folder, *arguments):
    """Run a shell script that may mount file systems of its own; `$0` is the folder, the rest is the command."""
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        possible = subprocess.run([*prefix, "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("this machine lets no one mount a file system of his own")
    folder.mkdir()
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    everything = [*prefix, script, str(folder), *command(*arguments)]
    return subprocess.run(everything, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.slow
def test_a_full_file_system(tmp_path):
    """128 kB are enough for the record and the policies, not for a checkpoint: training ends and says so."""
    folder, kept = tmp_path / "small", tmp_path / "kept"
    script = f'mount -t tmpfs -o size=128k tmpfs "$0"; "$@"; code=$?; cp -r "$0/run" {kept}; exit $code'
    options = [*OPTIONS, "--steps", 300, "--checkpoint-every", 100, "--out", folder / "run"]
    result = in_own_mounts(script, folder, "train", "dac", "maze", *options)
    assert result.returncode == 0, result.stderr
    said = "No space left on device; training goes on, the last good checkpoint is none"
    assert result.stderr.count(said) == 3, result.stderr
    assert "THAT IS NOT ENOUGH" in result.stderr
    assert dac.load(kept).finished
    assert not list((kept / "checkpoint").iterdir())


@pytest.mark.slow
def test_a_directory_that_becomes_read_only(tmp_path):
    """The file system turns read-only after the first checkpoint: one line, exit code 2; later the run goes on."""
    folder = tmp_path / "run"
    script = """
        "$@" & while ! ls "$0"/checkpoint/step-*.json >/dev/null 2>&1; do sleep 0.02; kill -0 $! || exit 9; done
        mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"; wait $!; exit $?
    """
    options = [*OPTIONS, "--steps", 20_000, "--checkpoint-every", 100, "--out", folder]
    result = in_own_mounts(script, folder, "train", "dac", "maze", *options)
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"dac: cannot write {folder / 'metrics.csv'}: Read-only file system; the last checkpoint is")
    assert "Traceback" not in result.stderr
    step = int(last.split("of step ")[1].split(",")[0].replace(",", ""))
    assert sorted((folder / "checkpoint").glob("step-*.json"))[-1].stem == f"step-{step:012d}"
    # the file system can be written again: the run continues as if nothing had been
    more = start("resume", folder, "--steps", 20_100)
    wait_for(folder / "checkpoint" / f"step-{step + 100:012d}.json", more)
    more.kill()
    more.communicate()
    rows = [int(line.split(",")[2]) for line in (folder / "metrics.csv").read_text().splitlines()[1::3]]
    assert rows == list(range(100, rows[-1] + 1, 100))


def test_a_directory_that_was_read_only_all_along(tmp_path):
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && "$@"'
    result = in_own_mounts(script, tmp_path / "locked", "train", "dac", "maze", "--out", tmp_path / "locked" / "run")
    assert result.returncode == 2
    assert result.stderr == f"dac: cannot create {tmp_path / 'locked' / 'run'}: Read-only file system\n"


def break_member(loop, index):
    import jax

    def poison(leaf):
        return leaf.at[index].set(np.nan) if leaf.dtype == np.float32 else leaf

    loop.replace_states(jax.tree.map(poison, loop.states))


@pytest.mark.parametrize("kind", ["device", pytest.param("host", marks=pytest.mark.slow)])
def test_a_frozen_member_keeps_its_last_good_state(kind):
    import jax

    from dac.core.population import grid, pick
    from dac.envs.maze import FourRoomMaze
    from dac.envs.mujoco import make_mujoco
    from tests.common import schedule, tiny

    def make(members):
        if kind == "device":
            return DeviceLoop(tiny(), FourRoomMaze(), members, schedule(400))
        return HostLoop(tiny(), lambda n: make_mujoco("SparseHopper", n), members, schedule(400))

    members = grid([0, 1, 2], {})
    loop, undisturbed = make(members), make(members)
    for each in (loop, undisturbed):
        each.advance(200)
    good = jax.tree.map(np.array, loop.policies())
    break_member(loop, 1)
    for each in (loop, undisturbed):
        each.advance(400)
    assert list(loop.health.failures) == [1]
    assert loop.health.failures[1].step == {"device": 250, "host": 200}[kind]  # end of the chunk; next action
    assert "is not finite" in loop.health.failures[1].cause
    assert "frozen at its last good state" in loop.health.news[0]
    for one, other in zip(*(jax.tree.leaves(pick(p, 1)) for p in (good, loop.policies())), strict=True):
        np.testing.assert_array_equal(one, other)
    for k in (0, 2):
        for one, other in zip(*(jax.tree.leaves(pick(x.policies(), k)) for x in (loop, undisturbed)), strict=True):
            np.testing.assert_array_equal(one, other)
    loop.close()
    undisturbed.close()


class Flaky(gym.Env):
    """Breaks in a given way at its 70th step, but only if it was seeded with an odd number."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    kind = "reward"
    members_seen = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            type(self).members_seen += 1
            self.bad = type(self).members_seen == 2  # the second member's training environment
            self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        broken = self.bad and self.steps >= 70
        obs = np.full(2, np.nan if broken and self.kind == "observation" else 0.1, np.float32)
        return obs, np.nan if broken and self.kind == "reward" else 1.0, False, self.steps % 50 == 0, {}


@pytest.mark.parametrize("kind", ["reward", "observation"])
def test_an_environment_that_breaks_freezes_its_member(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(Flaky, "kind", kind)
    monkeypatch.setattr(Flaky, "members_seen", 0)
    run = dac.train("sac", Flaky, out=tmp_path / "run", **TINY | {"steps": 200, "eval_every": 100, "on_nan": "freeze"})
    members = run.summary["members"]
    assert [m["frozen"] is None for m in members] == [True, False, True]
    assert members[1]["frozen"] == {"step": 70, "cause": f"the {kind} of step 70 must be finite; got nan"}
    np.testing.assert_array_equal(run.metrics["frozen"], [[0, 1, 0], [0, 1, 0]])
    assert np.isfinite(run.metrics["return"][:, [0, 2]]).all()
    monkeypatch.setattr(Flaky, "members_seen", 0)
    with pytest.raises(
        UsageError, match=r"member 1 \(seed 1.*must be finite; got nan, found at step 70; `on_nan=freeze`"
    ):
        dac.train("sac", Flaky, out=tmp_path / "stop", **TINY | {"steps": 200, "on_nan": "stop"})


def test_warnings_name_what_looks_wrong():
    from dac.core.population import grid
    from dac.training.health import find_warnings

    metrics = {"ratio_saturation": np.array([0.1, 0.95]), "q_mean": np.array([-2e6, 0.0])}
    found = find_warnings(metrics, grid([7, 8], {}))
    assert set(found) == {(1, "ratio_saturation"), (0, "q_mean")}
    assert "seed 8" in found[1, "ratio_saturation"]
    assert "saturated" in found[1, "ratio_saturation"]
    assert "Q explodes (q_mean -2e+06)" in found[0, "q_mean"]


@pytest.mark.slow
def test_the_summary_is_valid_json_whatever_happened(tmp_path):
    run = dac.train("sac", "target", out=tmp_path / "run", **TINY | {"steps": 100, "eval_every": 50})
    summary = json.loads((run.directory / "summary.json").read_text())
    assert summary["warnings"] == []
    assert all(member["frozen"] is None for member in summary["members"])
