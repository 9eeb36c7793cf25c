"""What an experiment still needs, against runs that are there, half there or elsewhere."""

import argparse
import dataclasses
import shutil

import jax
import pytest

import dac
from dac.api import Run
from dac.cli import main
from dac.cli.reproduce import _again, add_arguments
from dac.config import resolve, with_steps
from dac.core.types import UsageError
from dac.experiments.estimate import estimate, matrix_flops
from dac.experiments.paper import EXPERIMENTS, Experiment, Method, find_experiment, published
from dac.experiments.plan import cells_of, find_runs, fits_into, make_plan
from dac.rundir.reading import RunDirectory
from dac.training.memory import SHARE, replay_bytes
from dac.training.run import run as train
from tests.common import interrupt_at

SMALL = {"hidden": (8, 8), "batch_size": 16, "steps": 60, "update_after": 20, "random_steps": 20, "eval_every": 20}


def method(name, algorithm="dac", **settings):
    return Method(name, algorithm, SMALL | settings)


HALF, MOST, SAC = method("half", alpha=0.5), method("most", alpha=0.8), method("SAC", alpha=1.0)


def experiment(*methods, seeds=3, tasks=("maze",)):
    return Experiment("small", "Small", "none", tuple((task, methods) for task in tasks), seeds=seeds)


def plan_for(store, *experiments, sources=(), scale=1.0):
    runs, problems = find_runs([folder for folder in (store, *sources) if folder.is_dir()])
    assert not problems
    return make_plan([cell for e in experiments for cell in cells_of(e, scale)], store, runs)


def do(plan):
    for job in plan.jobs:
        if job.resume:
            dac.resume(job.directory, job.config.training.steps)
        else:
            train(job.config, job.directory, [])


def contents(plan):
    return [
        (job.config.algorithm, job.config.seeds, {n: job.config.hyper[n] for n in job.config.varied()})
        for job in plan.jobs
    ]


def test_every_experiment_of_the_paper_can_be_planned():
    names = """
        fig1-maze fig2-sparse fig3-divergence fig4-delayed fig5-adaptation fig6-q-speed table-sparse table-delayed
        table-state-exploration table-other-algorithms ablation-c ablation-beta ablation-js ablation-clip fast-start
    """
    assert list(EXPERIMENTS) == names.split()
    for whole in EXPERIMENTS.values():
        cells = cells_of(whole)
        for cell in cells:
            sparse = whole.name in ("fig2-sparse", "fig3-divergence", "table-sparse")
            many = sparse and cell.task in ("SparseHalfCheetah", "SparseHopper") and cell.method.name != "SAC-Div"
            assert cell.config.seeds == tuple(range(30 if many else whole.seeds))
        names = [(cell.task, cell.method.name) for cell in cells]
        assert len(set(names)) == len(names)
        members = [name for cell in cells for name in cell.members()]
        assert len(set(members)) == len(members), f"two methods of {whole.name} are the same"
        assert find_experiment(f"{whole.name}/{cells[-1].task}").panels == (whole.panels[-1],)
        for cell in cells_of(whole, 0.01):
            assert len(cell.config.seeds) == 2
            assert cell.config.training.steps == max(
                2000, cells_of(whole)[cells_of(whole, 0.01).index(cell)].config.training.steps // 100
            )


def test_the_settings_are_those_of_the_paper():
    """Tables D.1 and D.2, Han & Sung 2021, and the training lengths of the authors' code."""
    betas = {"SparseHalfCheetah": 0.02, "SparseHopper": 0.04, "SparseWalker2d": 0.02, "SparseAnt": 0.01}
    betas |= dict.fromkeys(["DelayedHalfCheetah", "DelayedHopper", "DelayedWalker2d", "DelayedAnt"], 0.2)
    betas["HumanoidStandup"] = 1.0
    million = 1_000_000
    for name in ("fig2-sparse", "fig4-delayed"):
        for cell in cells_of(EXPERIMENTS[name]):
            config = cell.config
            assert config.hyper["beta"] == betas[cell.task]
            assert config.hyper["gamma"] == 0.99
            assert config.hyper["learning_rate"] == 3e-4
            assert config.hyper["batch_size"] == 256
            assert config.hyper["hidden"] == (256, 256)
            assert config.training.capacity == million
            long = {"SparseAnt": 3, "DelayedHopper": 3, "HumanoidStandup": 10}
            assert config.training.steps == long.get(cell.task, 1 if "Sparse" in cell.task else 5) * million
            if config.algorithm == "dac":
                assert config.hyper["clip"] == 1.0
    assert published("SparseHopper", "DAC 0.5") == (900.30, 3.93)
    assert published("maze", "DAC 0.5") is None


def test_members_that_can_share_a_program_do(tmp_path):
    plan = plan_for(tmp_path, experiment(HALF, MOST, SAC, method("adapt", adapt=True), method("div", "sac-div")))
    assert contents(plan) == [
        ("dac", (0, 1, 2), {"alpha": (0.5, 0.8, 1.0)}),
        ("dac", (0, 1, 2), {}),
        ("sac-div", (0, 1, 2), {}),
    ]
    assert (plan.found, plan.wanted, plan.agent_steps) == (0, 15, 15 * 60)


def members_of(plan):
    """Seed and float settings of every member of every population."""
    return [[(m.seed, tuple(m.hyper.items())) for m in job.config.members()] for job in plan.jobs]


def test_sixty_members_are_one_population_per_algorithm(tmp_path):
    """Three alphas, two betas and ten seeds share a program; another algorithm has its own."""
    grid = [method(f"{a} {b}", alpha=a, beta=b) for a in (0.2, 0.5, 0.8) for b in (0.1, 0.3)]
    other = [method(f"SAC-Div {b}", "sac-div", beta=b) for b in (0.1, 0.3)]
    plan = plan_for(tmp_path, experiment(*grid, *other, seeds=10))
    assert contents(plan) == [
        ("dac", tuple(range(10)), {"alpha": (0.2, 0.5, 0.8), "beta": (0.1, 0.3)}),
        ("sac-div", tuple(range(10)), {"beta": (0.1, 0.3)}),
    ]
    assert [len(job.config.members()) for job in plan.jobs] == [60, 20]
    wanted = {name for cell in cells_of(experiment(*grid, seeds=10)) for name in cell.members()}
    assert plan.jobs[0].serves == wanted


def test_what_is_no_grid_is_one_population_as_well(tmp_path):
    """SAC beside three clips at alpha = 1/2: a grid of both would train members nobody asked for."""
    clips = [method(f"clip {clip}", alpha=0.5, clip=clip) for clip in (1.0, 2.0, 4.0)]
    plan = plan_for(tmp_path, experiment(*clips, method("SAC", alpha=1.0, clip=1.0)))
    (job,) = plan.jobs
    assert job.config.training.combine == "zip"
    assert plan.wanted == len(job.config.members()) == len(job.serves) == 12
    pairs = {(m.hyper["alpha"], m.hyper["clip"]) for m in job.config.members()}
    assert pairs == {(0.5, 1.0), (0.5, 2.0), (0.5, 4.0), (1.0, 1.0)}


def test_a_method_may_have_more_seeds_than_the_others(tmp_path):
    many = experiment(dataclasses.replace(HALF, seeds=5), SAC)
    plan = plan_for(tmp_path, many)
    (job,) = plan.jobs
    assert job.config.seeds == (0, 1, 2, 3, 4, 0, 1, 2)
    assert job.config.hyper["alpha"] == (0.5,) * 5 + (1.0,) * 3
    assert [len(cell.config.seeds) for cell in cells_of(many, 0.4)] == [2, 2]
    assert [len(cell.config.seeds) for cell in cells_of(many, 0.8)] == [4, 2]
    # finished and begun, its members are found again
    do(plan)
    assert plan_for(tmp_path, many).jobs == ()
    half = experiment(dataclasses.replace(HALF, seeds=4))
    assert plan_for(tmp_path / "new", half, sources=[tmp_path]).found == 4
    (job.directory / "summary.json").unlink()
    (again,) = plan_for(tmp_path, many).jobs
    assert (again.directory, again.done, len(again.serves)) == (job.directory, 60, 8)


def test_a_population_has_no_more_members_than_asked_for(tmp_path):
    """Sixty members in parts of at most 25 are three of 20: each a value of beta or alpha with all its seeds."""
    grid = [method(f"{a} {b}", alpha=a, beta=b) for a in (0.2, 0.5, 0.8) for b in (0.1, 0.3)]
    plan = make_plan(cells_of(experiment(*grid, seeds=10)), tmp_path, [], at_most=25)
    assert [(len(job.config.members()), job.config.training.combine) for job in plan.jobs] == [(20, "grid")] * 3
    members = [member for population in members_of(plan) for member in population]
    assert len(set(members)) == len(members) == 60
    assert len({job.directory for job in plan.jobs}) == 3


def test_other_seeds_and_steps(tmp_path, capsys):
    """They take the place of the experiment's own, for every method, whatever the scale."""
    many = experiment(dataclasses.replace(HALF, seeds=5), SAC)
    for scale in (1.0, 0.5):
        assert [cell.config.seeds for cell in cells_of(many, scale, seeds=(7, 3))] == [(7, 3), (7, 3)]
    start = ["reproduce", "fig2-sparse/SparseHopper", "--dry-run", "--out", str(tmp_path / "x")]
    assert main([*start, "--seeds", "4:7", "--steps", "20000"]) == 0
    assert "0 of 9 members are finished; 180,000 agent-steps to go" in capsys.readouterr().out
    # the command that goes on has them too
    again = "dac reproduce fig1-maze --out runs --seeds 1,5 --steps 500 --jobs 2 --memory 80"
    parser = argparse.ArgumentParser()
    add_arguments(parser, [])
    assert _again(parser.parse_args(again.split()[2:])) == again


def test_only_what_is_missing_is_run(tmp_path):
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    dac.train("dac", "maze", seeds=[1], out=elsewhere / "one", **SMALL | {"alpha": [0.5, 0.8]})
    plan = plan_for(store, experiment(HALF, SAC), sources=[elsewhere])
    assert contents(plan) == [("dac", (0, 2, 0, 1, 2), {"alpha": (0.5, 0.5, 1.0, 1.0, 1.0)})]
    assert (plan.found, plan.wanted) == (1, 6)
    do(plan)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("metrics.csv")}
    again = plan_for(store, experiment(HALF, SAC), sources=[elsewhere])
    assert (again.jobs, again.found) == ((), 6)
    # another figure that shares them wants the rest only
    more = plan_for(store, experiment(SAC, MOST), sources=[elsewhere])
    assert contents(more) == [("dac", (0, 2), {})]
    assert before == {path: path.stat().st_mtime_ns for path in store.rglob("metrics.csv")}


def test_an_unfinished_run_goes_on_and_a_short_one_gets_longer(tmp_path, monkeypatch):
    small = experiment(method("half", checkpoint_every=20))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 60)
        with pytest.raises(KeyboardInterrupt):
            do(plan_for(tmp_path, small))
    (job,) = plan_for(tmp_path, small).jobs
    assert (job.resume, job.done, job.agent_steps) == (True, 40, 3 * 20)
    # the same directory read as a source is not ours to continue
    assert not any(job.resume for job in plan_for(tmp_path / "new", small, sources=[tmp_path]).jobs)
    # nor is one that lies beside our own, as published results do
    assert not any(job.resume for job in plan_for(tmp_path / "runs", small).jobs)
    do(plan_for(tmp_path, small))
    assert Run(job.directory).finished
    longer = experiment(method("half", checkpoint_every=20, steps=100))
    (job,) = plan_for(tmp_path, longer).jobs
    assert (job.resume, job.done, job.config.training.steps) == (True, 60, 100)
    do(plan_for(tmp_path, longer))
    assert plan_for(tmp_path, longer).jobs == plan_for(tmp_path, small).jobs == ()


def test_a_schedule_that_follows_the_length_is_not_continued(tmp_path):
    """PPO's step size falls to 0 over the run: its first half is not a shorter run."""
    settings = {"hidden": (8, 8), "rollout": 20, "minibatches": 2, "epochs": 1, "random_steps": 0, "eval_every": 20}
    short, long = (Method("PPO", "ppo", settings | {"steps": steps}) for steps in (40, 80))
    configs = [resolve("ppo", "maze", [0], dict(m.settings)) for m in (short, long)]
    assert configs[0].fingerprint() == configs[1].fingerprint()
    assert not configs[1].covers(configs[0])
    assert configs[0].covers(configs[0])
    do(plan_for(tmp_path, experiment(long, seeds=2)))
    (job,) = plan_for(tmp_path, experiment(short, seeds=2)).jobs
    assert not job.resume
    do(plan_for(tmp_path, experiment(short, seeds=2)))
    assert (
        plan_for(tmp_path, experiment(short, seeds=2)).jobs == plan_for(tmp_path, experiment(long, seeds=2)).jobs == ()
    )


def test_a_schedule_that_follows_the_length_is_not_made_longer(tmp_path):
    """PPO's step size is 0 where the short run ends: what goes on from there is not a long run."""
    settings = {"hidden": (8, 8), "rollout": 20, "minibatches": 2, "epochs": 1, "random_steps": 0, "eval_every": 20}
    short, long = (experiment(Method("PPO", "ppo", settings | {"steps": n}), seeds=2) for n in (40, 80))
    do(plan_for(tmp_path, short))
    (job,) = plan_for(tmp_path, long).jobs
    assert (job.resume, job.done) == (False, 0)
    do(plan_for(tmp_path, long))
    assert plan_for(tmp_path, short).jobs == plan_for(tmp_path, long).jobs == ()


def test_a_finished_run_without_checkpoints_is_not_made_again(tmp_path):
    """It would start from the beginning, over what is there."""
    do(plan_for(tmp_path, experiment(HALF)))
    (run,) = find_runs([tmp_path])[0]
    shutil.rmtree(run.directory / "checkpoint")
    (job,) = plan_for(tmp_path, experiment(method("half", steps=100))).jobs
    assert job.directory != run.directory
    assert not job.resume


@pytest.mark.slow
def test_a_run_gets_longer_only_where_that_is_cheaper(tmp_path):
    """One of four clips is wanted for longer: a new run of its own is less work than all four."""
    clips = [method(f"clip {clip}", alpha=0.5, clip=clip) for clip in (1.0, 2.0, 3.0, 4.0)]
    do(plan_for(tmp_path, experiment(*clips)))
    longer = [method(f"clip {clip}", alpha=0.5, clip=clip, steps=100) for clip in (1.0, 2.0)]
    plan = plan_for(tmp_path, experiment(longer[0]))
    assert [(job.resume, job.agent_steps) for job in plan.jobs] == [(False, 3 * 100)]
    plan = plan_for(tmp_path, experiment(*longer))
    assert [(job.resume, job.agent_steps) for job in plan.jobs] == [(True, 12 * 40)]
    assert (plan.found, plan.wanted) == (0, 6)


@pytest.mark.slow
def test_members_finished_elsewhere_count_as_finished(tmp_path):
    """Though the run that goes on for the others holds them too."""
    elsewhere, store = tmp_path / "elsewhere", tmp_path / "store"
    dac.train("dac", "maze", seeds=[0], out=elsewhere / "one", **SMALL | {"alpha": 0.5})
    do(plan_for(store, experiment(HALF)))
    next(store.rglob("summary.json")).unlink()
    plan = plan_for(store, experiment(HALF), sources=[elsewhere])
    assert [job.resume for job in plan.jobs] == [True]
    assert (plan.found, plan.wanted) == (1, 3)


def test_more_environments_are_other_members(tmp_path):
    """They learn from other data, so what was run with one is not counted."""
    do(plan_for(tmp_path, experiment(HALF)))
    runs, _ = find_runs([tmp_path])
    plan = make_plan(cells_of(experiment(HALF), envs=2), tmp_path, runs)
    assert [(job.config.training.envs, job.resume) for job in plan.jobs] == [(2, False)]


def test_a_population_that_does_not_fit_is_split(tmp_path):
    def place(config):
        if len(config.members()) > 2:
            raise UsageError("too large")
        return "device"

    cells = cells_of(experiment(HALF, seeds=5))
    plan = make_plan(cells, tmp_path, [], fits=place)
    assert [job.config.seeds for job in plan.jobs] == [(0, 1), (2,), (3, 4)]
    plan = make_plan(cells_of(experiment(HALF, MOST, SAC, seeds=1)), tmp_path, [], fits=place)
    assert [job.config.hyper["alpha"] for job in plan.jobs] == [0.5, (0.8, 1.0)]
    # devices that are elsewhere: a transition of the maze is 6 numbers and the flags beside them
    two = replay_bytes(2, cells[0].config.schedule(), cells[0].config.find_task().spec()) / SHARE
    plan = make_plan(cells, tmp_path, [], fits=fits_into(int(two) + 1))
    assert [job.config.seeds for job in plan.jobs] == [(0, 1), (2,), (3, 4)]
    with pytest.raises(UsageError, match=r"of 1 members x 60 transitions needs 0.00 GiB, and a device has 0.00 GiB"):
        make_plan(cells, tmp_path, [], fits=fits_into(100))


def test_a_broken_run_directory_is_named_and_left_out(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.toml").write_text("algorithm = 3")
    runs, problems = find_runs([tmp_path])
    assert runs == []
    assert len(problems) == 1
    assert "an algorithm" in problems[0]


@pytest.mark.parametrize("scale", [1e-9, 0.0005, 0.001, 0.0123457, 0.0999, 0.7071])
@pytest.mark.parametrize("envs", [None, 4])
def test_every_experiment_can_be_tried_at_any_scale(scale, envs):
    """Odd numbers of steps, and rollouts that minibatches and environments have to divide."""
    for whole in EXPERIMENTS.values():
        for full, cell in zip(cells_of(whole), cells_of(whole, scale, envs), strict=True):
            length, rollout = full.config.training.steps, cell.config.schedule().rollout
            assert abs(cell.config.training.steps - max(2000, length * scale)) <= 10
            assert rollout <= max(64, cell.config.training.steps // 10), "fewer than ten rollouts"


@pytest.mark.parametrize("scale", [0, -1, 1.5, float("nan")])
def test_a_bad_scale(scale):
    with pytest.raises(UsageError, match="scale must be above 0 and at most 1"):
        cells_of(experiment(HALF), scale)


def test_the_estimate_prefers_what_was_timed(tmp_path):
    """A run's own speed on this kind of device, the matrix product otherwise; both grow with the steps."""
    plan = plan_for(tmp_path, experiment(HALF))
    guessed, source = estimate(plan.jobs, [])
    assert "rough guess" in source
    assert guessed[0] > 0
    longer = [dataclasses.replace(job, config=with_steps(job.config, 10**6)) for job in plan.jobs]
    assert estimate(longer, [])[0][0] > 2 * guessed[0]
    do(plan)
    runs, _ = find_runs([tmp_path])
    rate = runs[0].summary["agent_steps_per_second"]
    if rate is None:  # too short to be timed: pretend
        path = runs[0].directory / "summary.json"
        path.write_text(path.read_text().replace('"agent_steps_per_second": null', '"agent_steps_per_second": 100.0'))
        rate = 100.0
    timed, source = estimate(longer, runs)
    assert source == "from runs timed on this kind of machine"
    assert timed[0] == pytest.approx(3 * 10**6 / rate + 25)
    # the speed of a small try says nothing of larger networks
    other = dataclasses.replace(longer[0], config=resolve("dac", "maze", [0], SMALL | {"hidden": (16, 16)}))
    assert "rough guess" in estimate([other], runs)[1]
    assert "1 of 2 from runs timed" in estimate([other, *longer], runs)[1]
    (runs[0].directory / "summary.json").write_text("{}")  # not ours
    assert "rough guess" in estimate(longer, runs)[1]
    assert 1e8 < matrix_flops(256) < 1e16


def test_the_estimate_takes_the_population_nearest_in_size(tmp_path, monkeypatch):
    monkeypatch.setattr(RunDirectory, "summary", property(lambda run: summaries[len(run.members)]))
    device = jax.devices()[0].device_kind
    summaries = {n: {"agent_steps_per_second": 10.0 * n, "versions": {"device": device}} for n in (1, 4, 40)}
    for n in summaries:
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "config.toml").write_text(resolve("dac", "maze", range(n), SMALL).to_toml())
    plan = plan_for(tmp_path / "store", experiment(method("half", alpha=0.5, steps=1000)))
    runs, _ = find_runs([tmp_path])
    assert estimate(plan.jobs, runs)[0] == [pytest.approx(25 + 3 * 1000 / 40)]
