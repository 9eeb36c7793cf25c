"""`dac tune` with tiny networks in the maze: what it finds, and that nothing can make it lose or repeat a trial."""

import contextlib
import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

import dac
from dac.cli import main
from dac.cluster.tuning import tuner
from dac.cluster.tuning.folder import POPULATIONS, Tuning, read_populations
from dac.cluster.tuning.ladder import make_ladder
from dac.cluster.tuning.results import find_importances
from dac.cluster.tuning.sampling import sample
from dac.cluster.tuning.space import Range, default_space, read_space
from dac.cluster.tuning.storage import close_storage, open_storage, open_study, storage_text, without_password
from dac.config import resolve
from dac.core.types import UsageError
from dac.experiments.stats import iqm
from dac.rundir.lock import Lock
from dac.rundir.writing import Recorder
from dac.training import device
from tests.cluster.postgres import server
from tests.common import interrupt_at

SMALL = {"hidden": (8, 8), "batch_size": 16, "update_after": 40, "random_steps": 30, "eval_every": 60, "steps": 180}
WORDS = [f"--{n.replace('_', '-')}={'8,8' if n == 'hidden' else v}" for n, v in SMALL.items()]
STUDY = ["tune", "maze", *WORDS, "--trials", "6", "--slots", "4", "--seeds-per-trial", "2"]
STUDY += ["--objective", "visited", "--last", "1", "--quiet"]


def config(algorithm="dac", task="maze", **settings):
    return resolve(algorithm, task, [0, 1], SMALL | settings)


def trials_of(out, storage=None, name="maze-dac"):
    opened = open_storage(storage_text(storage, out))
    trials = open_study(opened, name).get_trials()
    close_storage(opened)
    return trials


def rows(out):
    return list(csv.DictReader(io.StringIO((out / "trials.csv").read_text())))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that nothing disturbed, what was told, and how many programs there were after each population."""
    out = tmp_path_factory.mktemp("tune") / "study"
    told, programs = [], []
    tell, train = optuna.Study.tell, tuner.continue_run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optuna.Study, "tell", lambda self, n, *a, **k: (told.append(n), tell(self, n, *a, **k))[1])

        def counting(*arguments):
            run = train(*arguments)
            programs.append(device._run_any_length._cache_size())
            return run

        patch.setattr(tuner, "continue_run", counting)
        assert main([*STUDY, "--out", str(out)]) == 0
    return out, told, programs


def test_the_best_of_a_rung_go_on_together_and_the_others_are_pruned(study):
    out, told, _ = study
    below, top = read_populations(out)[:3], read_populations(out)[3]
    assert [p.name for p in read_populations(out)] == [*(f"rung-0-{k:03d}" for k in range(3)), "rung-1-000"]
    assert (top.chosen_from, top.step, [p.step for p in below]) == (tuple(p.name for p in below), 180, [60] * 3)
    trials = trials_of(out)
    values = {}
    for population in below:
        visited = dac.load(population.directory).metrics["visited"][-1].reshape(2, 2)
        values |= dict(zip(population.trials, map(iqm, visited), strict=True))
    assert [trial.intermediate_values[60] for trial in trials] == [values[k] for k in range(6)]
    best = sorted(values, key=lambda k: (-values[k], k))[:2]
    assert list(top.trials) == best
    assert [t.number for t in trials if t.state == TrialState.COMPLETE] == sorted(best)
    assert all(t.state == TrialState.PRUNED and t.value == values[t.number] for t in trials if t.number not in best)
    final = dac.load(top.directory).metrics
    assert final["step"][:, 0].tolist() == [60, 120, 180]
    assert [trials[k].value for k in best] == [iqm(row) for row in final["visited"][-1].reshape(2, 2)]
    assert sorted(told) == list(range(6))
    members = dac.load(top.directory).members
    assert [m.seed for m in members] == [0, 1, 0, 1]
    assert [m.hyper["alpha"] for m in members[::2]] == [trials[k].params["alpha"] for k in best]


def test_all_populations_run_one_program(study):
    *_, programs = study
    assert len(programs) == 4
    assert programs[0] == programs[-1]


def test_a_study_ends_with_settings_a_table_and_pictures(study, tmp_path):
    out = study[0]
    best = max((t for t in trials_of(out) if t.state == TrialState.COMPLETE), key=lambda t: t.value)
    run = resolve(file=out / "best.toml")
    assert {name: run.hyper[name] for name in best.params} == best.params
    assert run.seeds == tuple(range(2, 12))
    again = ["train", "--config", str(out / "best.toml"), "--seeds", "5", "--steps", "60", "--quiet"]
    assert main([*again, "--out", str(tmp_path / "run")]) == 0
    assert dac.load(tmp_path / "run").members[0].hyper["beta"] == best.params["beta"]
    table = rows(out)
    assert [row["trial"] for row in table] == list("012345")
    assert float(table[best.number]["visited_180"]) == best.value
    assert {name: float(table[best.number][name]) for name in best.params} == best.params
    assert [float(table[0][name]) for name in ("alpha", "beta")] == [0.5, 1.0]  # the first one has the defaults
    for name in ("history", "importance"):
        assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert (out / f"{name}.pdf").read_bytes()[:4] == b"%PDF"
    importances = find_importances(Tuning(config(), default_space(config()), 6, 2, last=1), trials_of(out))
    assert set(importances) == {"alpha", "beta", "learning_rate", "gamma"}
    assert sum(importances.values()) == pytest.approx(1)


def test_the_same_command_does_nothing_more_and_others_are_refused(study, capsys, monkeypatch):
    out = study[0]
    before = (out / "trials.csv").read_bytes()
    monkeypatch.setattr(tuner, "continue_run", None)  # nothing is trained
    assert main([*STUDY, "--out", str(out)]) == 0
    assert (out / "trials.csv").read_bytes() == before
    capsys.readouterr()
    for words, reason in (
        (["--steps", "240"], "run.training.steps is 180 there, not 240"),
        (["--alpha", "0.5"], "space.alpha is '0.1:1.0' there, not None"),
        (["--eta", "2"], "eta is 3 there, not 2"),
        (["--storage", "elsewhere.log"], "storage is 'the folder' there, not 'elsewhere.log'"),
    ):
        assert main([*STUDY, *words, "--out", str(out)]) == 2
        assert f"other settings: {reason}; give another --out" in capsys.readouterr().err
    assert not Path("elsewhere.log").exists()


def test_the_dashboard_opens_the_study(study):
    from optuna_dashboard import wsgi

    opened = open_storage(storage_text(None, study[0]))
    app, answers = wsgi(opened), {}

    def get(path):
        environment = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": io.BytesIO(), "QUERY_STRING": ""}
        environment |= {"SERVER_NAME": "here", "SERVER_PORT": "80", "wsgi.url_scheme": "http", "SCRIPT_NAME": ""}
        body = b"".join(app(environment, lambda status, headers, *rest: answers.update(status=status)))
        return answers["status"][:3], body

    status, body = get("/api/studies")
    (summary,) = json.loads(body)["study_summaries"]
    assert (status, summary["study_name"]) == ("200", "maze-dac")
    status, body = get(f"/api/studies/{summary['study_id']}")
    assert status == "200"
    assert len(json.loads(body)["trials"]) == 6
    status, body = get("/dashboard/")
    assert status == "200"
    assert b"<html" in body.lower()
    close_storage(opened)


class Death(BaseException):
    """The end of a process, as far as one process can act it."""


def test_a_process_may_die_at_any_moment(study, tmp_path, monkeypatch):
    """Before and after whatever changes the folder or the storage, once before the second rung is begun and once after.

    The study is the one that nothing disturbed, and none of its trials is told twice.
    """
    out, deaths, told, alive = tmp_path / "study", [], [], [True]

    def mortal(owner, name, note=None):
        real = getattr(owner, name)

        def moment(when):
            death = f"{when} {name}{' late' if (out / POPULATIONS / 'rung-1-000').exists() else ''}"
            if alive[0] and death not in deaths:
                deaths.append(death)
                alive[0] = False
                raise Death

        def call(*arguments, **options):
            moment("before")
            result = real(*arguments, **options)
            if note is not None:
                note.append(arguments[1])
            moment("after")
            return result

        monkeypatch.setattr(owner, name, call)

    mortal(optuna.storages._CachedStorage, "create_new_trial")
    mortal(optuna.storages.RDBStorage, "set_trial_intermediate_value")
    mortal(optuna.Study, "tell", told)
    mortal(Path, "rename")
    mortal(Recorder, "append")
    mortal(tuner, "sample")
    mortal(tuner, "tidy")
    finished = {}
    for _ in range(40):
        alive[0] = True
        with contextlib.suppress(Death):
            assert main([*STUDY, "--out", str(out)]) == 0
            break
        alive[0] = False
        now = {t.number: t for t in trials_of(out) if t.state.is_finished()}
        assert {n: now[n] for n in finished} == finished
        finished = now
    names = ["create_new_trial", "sample", "rename", "append", "set_trial_intermediate_value", "tidy"]
    late = ["append", "set_trial_intermediate_value", "tell", "tidy"]
    expected = [*names, *(f"{name} late" for name in late)]
    assert set(deaths) >= {f"{when} {name}" for when in ("before", "after") for name in expected}
    assert sorted(told) == list(range(6))
    assert (out / "trials.csv").read_bytes() == (study[0] / "trials.csv").read_bytes()
    assert (out / "best.toml").read_bytes() == (study[0] / "best.toml").read_bytes()


def in_a_process(*words, **options):
    return subprocess.Popen([sys.executable, "-m", "dac", *map(str, words)], **options)


def wait_for(condition, process):
    end = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, "the other process ended"
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_what_is_left_of_a_killed_process_is_gone_on_with(study, tmp_path):
    """A real `kill -9`; the test above acts it at every moment."""
    out = tmp_path / "study"
    process = in_a_process(*STUDY, "--out", out)
    wait_for((out / POPULATIONS / "rung-0-001" / "progress.json").exists, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main([*STUDY, "--out", str(out)]) == 0
    assert (out / "trials.csv").read_bytes() == (study[0] / "trials.csv").read_bytes()


def share(tmp_path, storage, capfd):
    """Two processes work on one study; returns which populations each of them trained, and the trials."""
    out = tmp_path / "study"
    words = [*STUDY, "--storage", storage, "--out", str(out)]
    words.remove("--quiet")
    with open(tmp_path / "other.txt", "w") as log:
        other = in_a_process(*words, stdout=log, stderr=log)
        wait_for((out / POPULATIONS / "rung-0-000").exists, other)
        assert main(words) == 0
        assert other.wait(400) == 0, (tmp_path / "other.txt").read_text()
    texts = [capfd.readouterr().err, (tmp_path / "other.txt").read_text()]
    shares = [[Path(line.split()[-1]).name for line in text.splitlines() if " of 4: " in line] for text in texts]
    return shares, trials_of(out, storage)


@pytest.mark.parametrize("kind", ["journal", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_two_processes_share_a_study(kind, tmp_path, capfd):
    with server() if kind == "postgresql" else contextlib.nullcontext(str(tmp_path / "journal.log")) as storage:
        shares, trials = share(tmp_path, storage, capfd)
    names = ["rung-0-000", "rung-0-001", "rung-0-002", "rung-1-000"]
    assert sorted(shares[0] + shares[1]) == names  # each was trained once
    assert all(shares)
    assert [trial.number for trial in trials] == list(range(6))
    assert sum(trial.state == TrialState.COMPLETE for trial in trials) == 2
    assert sum(trial.state == TrialState.PRUNED for trial in trials) == 4


def test_a_study_is_kept_in_postgresql(study, tmp_path, capsys):
    """The same settings as in SQLite, and no password is written down."""
    out = tmp_path / "study"
    with server() as url:
        url = url.replace("dac@", "dac:secret@")
        words = [*STUDY, "--trials", "2", "--storage", url, "--out", str(out)]
        assert main(words) == 0
        assert [t.params for t in trials_of(out, url)] == [t.params for t in trials_of(study[0])][:2]
        assert "secret" not in (out / "tune.toml").read_text() + capsys.readouterr().out
        assert main([*words, "--storage", url.replace("/postgres", "/nowhere"), "--out", f"{out}-2"]) == 2
    assert 'database "nowhere" does not exist' in capsys.readouterr().err
    assert not Path(f"{out}-2").exists()


def test_a_storage_without_the_trials_of_the_folder_is_refused(study, tmp_path, capsys):
    shutil.copytree(study[0], tmp_path / "study")
    (tmp_path / "study/study.db").unlink()
    assert main([*STUDY, "--out", str(tmp_path / "study")]) == 2
    assert "does not have trial 0 of" in capsys.readouterr().err


def test_a_folder_that_is_planned_in_elsewhere_is_waited_for(study, monkeypatch):
    """Another process holds the lock for a while; this one neither fails nor goes on without it."""
    held = Lock(study[0])
    held.__enter__()
    moments = []

    def release(seconds):
        moments.append(seconds)
        if len(moments) == 3:
            held.__exit__(None, None, None)

    monkeypatch.setattr(tuner.time, "sleep", release)
    assert main([*STUDY, "--out", str(study[0])]) == 0
    assert len(moments) >= 3


def test_the_population_of_a_lost_machine_is_taken_over(study, tmp_path, monkeypatch, capsys):
    """Its lock names another machine, which gives no sign of life; there is nothing else to do."""
    out = tmp_path / "study"
    words = [*STUDY, "--trials", "2", "--out", str(out)]
    with monkeypatch.context() as patch:
        interrupt_at(patch, 120)
        assert main(words) == 130
    population = out / POPULATIONS / "rung-0-000"
    foreign = {"pid": 1, "host": "elsewhere", "boot": "another", "lease": 0.5, "beat": "000000000007"}
    (population / "lock").write_text(json.dumps(foreign))
    monkeypatch.setattr(tuner, "PATIENCE", 0.0)
    words.remove("--quiet")
    assert main(words) == 0
    assert "waiting for rung-0-000, which other processes train" in capsys.readouterr().err
    assert {trial.state for trial in trials_of(out)} == {TrialState.COMPLETE}
    assert [t.params for t in trials_of(out)] == [t.params for t in trials_of(study[0])][:2]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--space", "alpha=0.1:2"], "the range 0.1:2.0 of alpha is not possible: alpha is from 0 to 1"),
        (["--space", "alpha=0.5:0.5"], "bad range '0.5:0.5' of alpha (accepted: LOW:HIGH or log:LOW:HIGH"),
        (["--space", "alpha=lin:0.1:1"], "bad range 'lin:0.1:1' of alpha"),
        (["--space", "beta=log:0.1:inf"], "bad range 'log:0.1:inf' of beta"),
        (["--space", "gamma=log:0:0.9"], "the range 'log:0:0.9' of gamma is logarithmic, so it must begin above 0"),
        (["--space", "alpha"], "bad space 'alpha' (accepted: NAME=LOW:HIGH or log:LOW:HIGH, or a file"),
        (["--space", "hidden=8:16"], "dac has hidden, which is part of the program and not a float"),
        (["--space", "noise=0:1"], "dac has no float setting 'noise' (accepted: alpha, beta,"),
        (["--space", "beta_rate=0.1:1"], "dac does not use beta_rate with these settings"),
        (["--space", "alpha=0:1", "--space", "alpha=0:0.5"], "alpha has two ranges in the space"),
        (["--space", "alpha=0:1", "--alpha", "0.5"], "alpha is given a value and a range in the space"),
        (["--space", "nowhere.toml"], "no such file: nowhere.toml"),
        (["--alpha", "0.5,0.6"], "alpha is a list; fix it at one number, or tune it with --space alpha=LOW:HIGH"),
        (["--slots", "5"], "slots must be a multiple of the 2 seeds per trial, not 5"),
        (["--eta", "1"], "eta must be at least 2, not 1"),
        (["--trials", "0"], "trials must be at least 1, not 0"),
        (["--trials", "500"], "6 rungs do not fit into 180 steps"),
        (
            ["--last", "2"],
            "the first one with 1 evaluations (every 60 steps) after learning has begun (at 40), of which",
        ),
        (["--checkpoint-every", "0"], "--checkpoint-every 0 is not possible"),
        (["--on-nan", "stop"], "--on-nan stop would end all trials for one"),
        (["--combine", "zip"], "--combine zip is how populations of trials are made"),
        (["--algorithm", "nothing"], "argument --algorithm: invalid choice: 'nothing'"),
        (["--algorithm", "sac", "--alpha", "0.5"], "unknown argument '--alpha'"),
        (["--storage", "sqlite:////proc/nowhere/study.db"], "cannot create /proc/nowhere"),
        (["--storage", "oracle9://x"], "cannot open the storage oracle9://x: "),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(words, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*STUDY, *words, "--out", "study"]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main([*STUDY, "--out", str(tmp_path)]) == 2
    assert "exists already and is no study" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_dry_run_shows_the_plan_and_makes_nothing(tmp_path, capsys):
    assert main([*STUDY, "--trials", "11", "--steps", "540", "--out", str(tmp_path / "study"), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "12 trials instead of 11: populations of 2 are filled" in text
    assert "alpha in 0.1:1.0, beta in log:0.01:10.0" in text
    assert not (tmp_path / "study").exists()


def test_ranges_are_read_from_words_and_files(tmp_path):
    (tmp_path / "space.toml").write_text('[space]\nbeta = "log:0.01:1"\n')
    found = read_space(["alpha=0.2:1", str(tmp_path / "space.toml"), "learning-rate=1e-4:1e-3"], config())
    assert found == {"alpha": Range(0.2, 1), "beta": Range(0.01, 1, True), "learning_rate": Range(1e-4, 1e-3)}
    for text, reason in (
        ('space = "x"', "there is no table"),
        ('[spaces]\na = "0:1"', "unknown key 'spaces'"),
        ("[space]\nalpha = 3", "bad range 3 of alpha"),
    ):
        (tmp_path / "space.toml").write_text(text)
        with pytest.raises(UsageError, match=reason):
            read_space([str(tmp_path / "space.toml")], config())


def test_every_algorithm_has_a_space_that_holds_its_defaults():
    for name in dac.algorithms.ALGORITHMS:
        run = resolve(name, "HalfCheetah")
        space = default_space(run)
        assert len(space) >= 2, name
        assert read_space([], run) == space
        assert Tuning(run, space, 8, 8).defaults() is not None, name


def test_what_is_learnt_or_given_is_not_tuned():
    assert "alpha" not in default_space(config(alpha="adapt"))
    assert "beta" not in default_space(config(temperature="adapt"))
    assert "gamma" not in read_space([], config(gamma=0.9), ["gamma"])


@pytest.mark.parametrize(
    ("trials", "at_once", "eta", "counts", "steps"),
    [
        (32, 8, 3, (4, 1), (6000, 18000)),
        (32, 8, 2, (4, 2, 1), (4000, 9000, 18000)),
        (72, 8, 3, (9, 3, 1), (2000, 6000, 18000)),
        (100, 8, 3, (13, 4, 1), (2000, 6000, 18000)),
        (5, 8, 3, (1,), (18000,)),
    ],
)
def test_rungs_are_filled_and_end_after_evaluations(trials, at_once, eta, counts, steps):
    run = resolve("dac", "maze", 0, {"steps": 18000, "eval_every": 1000})
    ladder = make_ladder(run, trials, at_once, eta, 1)
    assert (ladder.counts, ladder.steps) == (counts, steps)
    for rung in range(ladder.last):  # every population of a rung is in one block
        assert sum(ladder.block(rung, number) for number in range(counts[rung + 1])) == counts[rung]
    assert ladder.begin(0) == 0


def test_the_sampler_learns_from_trials_that_wait():
    """One that waits for others to be compared with is no bad one, although it is still running in the storage."""
    span = {"alpha": optuna.distributions.FloatDistribution(0.0, 1.0)}

    def proposals(good):
        trials = []
        for number in range(24):
            alpha = (number * 7 % 24 + 0.5) / 24
            values = {60: -abs(alpha - good)}
            trials.append(
                optuna.trial.create_trial(
                    state=TrialState.RUNNING, params={"alpha": alpha}, distributions=span, intermediate_values=values
                )
            )
        studies = (Tuning(config(), {"alpha": Range(0.0, 1.0)}, 64, 8, sampler_seed=seed) for seed in range(9))
        return [sample(tuning, trials)["alpha"] for tuning in studies]

    assert np.median(proposals(0.2)) == pytest.approx(0.2, abs=0.1)
    assert np.median(proposals(0.8)) == pytest.approx(0.8, abs=0.1)
    assert proposals(0.8) == proposals(0.8)  # they follow from the trials alone


def test_passwords_stay_out_of_sight():
    assert without_password("postgresql+psycopg://me:secret@host:1/db") == "postgresql+psycopg://me@host:1/db"
    assert without_password("postgresql+psycopg://me@host/db") == "postgresql+psycopg://me@host/db"
    assert without_password("/shared/journal.log") == "/shared/journal.log"
    assert storage_text("postgresql://me@host/db", Path()) == "postgresql+psycopg://me@host/db"


def test_the_settings_of_a_study_can_be_read_again(study):
    found = tomllib.loads((study[0] / "tune.toml").read_text())
    assert found["tune"]["at_once"] == 2
    assert found["space"]["beta"] == "log:0.01:10.0"
    assert resolve(found["run"]["algorithm"], found["run"]["task"], found["run"]["seeds"]).task == "maze"
