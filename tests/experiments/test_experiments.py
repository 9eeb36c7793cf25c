"""Statistics against closed forms, figures against the data they show, the demo from start to page."""

import csv
from pathlib import Path

import numpy as np
import pytest

from dac.api import Run
from dac.cli.demo import main as demo
from dac.experiments.collect import Shelf, far_room
from dac.experiments.figures import visited_curve
from dac.experiments.paper import EXPERIMENTS, find_experiment, published
from dac.experiments.plan import cells_of, find_runs
from dac.experiments.report import result_table, verdicts
from dac.experiments.stats import mean_interval, probability_of_improvement, ratio_interval


def test_bootstrap_interval_against_the_normal_one():
    values = np.random.default_rng(0).normal(10, 2, 400)
    mean, low, high = mean_interval(values)
    error = 1.96 * values.std() / np.sqrt(400)
    assert mean == pytest.approx(values.mean())
    assert low == pytest.approx(mean - error, abs=0.03)
    assert high == pytest.approx(mean + error, abs=0.03)


def test_ratio_interval_covers_the_truth():
    """Of 100 intervals of 80%, about 80 hold the true ratio 2."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(100):
        _, low, high = ratio_interval(rng.normal(20, 3, 30), rng.normal(10, 2, 30), level=0.8)
        inside += low <= 2 <= high
    assert 68 <= inside <= 92


def test_visited_curve_by_hand():
    first = np.array([[5, -1, 3, 9], [-1, -1, -1, 1]])
    np.testing.assert_array_equal(visited_curve(first, np.array([0, 1, 3, 5, 100])), [[0, 0, 1, 2, 3], [0, 1, 1, 1, 1]])


def test_far_room():
    first = np.full((2, 100, 100), -1)
    first[0, 60, 60] = 7
    first[0, 99, 53] = 5
    first[1, 52, 60] = 3  # inside the wall's door, not in the room
    np.testing.assert_array_equal(far_room(first.reshape(2, -1)), [5, -1])


def test_demo_writes_everything(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["demo", "--out", str(tmp_path), "--steps", "1500", "--seeds", "2"])
    monkeypatch.setattr("dac.cli.demo.SETTINGS", {"hidden": (8, 8), "batch_size": 16, "eval_every": 500})
    assert demo() == 0
    (run,) = find_runs([tmp_path])[0]
    visited = [m["visited_cells"] for m in run.summary["members"]]
    out = capsys.readouterr().out
    assert f"DAC 0.5  visited {np.mean(visited[:2]):.0f} ± {np.std(visited[:2]):.0f} cells" in out
    assert f"SAC      visited {np.mean(visited[2:]):.0f} ± {np.std(visited[2:]):.0f} cells" in out
    page = (tmp_path / "maze" / "report.html").read_text()
    assert f"{np.mean(visited[:2]) / np.mean(visited[2:]):.2f} [" in page
    assert 'src="http' not in page
    for name in ("visited.png", "visits.png"):
        assert (tmp_path / "maze" / name).read_bytes().startswith(b"\x89PNG")
    assert demo() == 0  # nothing left to do
    assert "4 of 4 members are finished" in capsys.readouterr().out


def test_the_published_maze_numbers_are_those_of_the_raw_data():
    """README and results/README.md quote these; they are recomputed from results/maze."""
    root = Path(__file__).parents[2]
    runs, _ = find_runs([root / "results"])
    experiment = EXPERIMENTS["fig1-maze"]
    curves = Shelf(runs).gather(cells_of(experiment))
    quoted = (root / "results" / "README.md").read_text()
    assert [len(found.seeds) for found in curves] == [30] * 6
    for row in result_table(experiment, curves)[1]:
        low, high = row[4].strip("[]").split(", ")
        assert f"| {row[1]} | {row[3]} | {low} to {high} | {row[6]} | {row[7]} |" in quoted
    for found in curves:
        assert f"{(found.first_visit >= 0).sum(axis=1).mean():.0f} ±" in quoted
    _, line = verdicts(curves[:2], "visited")[0]
    ratio = line.split("; ")[1].split(" [")[0]
    assert f"DAC visits {ratio} times as many cells" in quoted
    assert float(ratio) >= 1.4
    for each in {run for found in curves for run in found.runs}:
        members = each.summary["members"]
        assert [m["steps"] for m in members] == [300_000] * len(members)
        assert sorted(m["seed"] for m in members) == sorted([*range(30)] * (len(members) // 30))
        assert (each.visits["first_visit"] >= 0).sum(axis=1).tolist() == [m["visited_cells"] for m in members]


def test_the_other_published_numbers_are_those_of_the_raw_data():
    results = Path(__file__).parents[2] / "results"
    quoted = (results / "README.md").read_text()
    with open(results / "maze-clip" / "visited.csv", newline="") as file:
        table = list(csv.DictReader(file))
    none = np.inf
    q1 = [("first", *row) for row in ((0.5, 1), (0.5, 2), (0.5, none), (1, 1), (0.8, none), (0.2, none))]
    for policy_q, alpha, clip in [*q1, ("min", 0.5, 1), ("min", 0.5, none), ("min", 1, 1)]:
        last = [
            int(row["step_100000"])
            for row in table
            if row["policy_q"] == policy_q and float(row["alpha"]) == alpha and float(row["clip"]) == clip
        ]
        assert len(last) == 10
        assert f"{np.mean(last):.0f} ± {np.std(last):.0f}" in quoted
    cheetah = Run(results / "halfcheetah").metrics
    assert cheetah["step"][-1, 0] == 300_000
    for members in (slice(0, 5), slice(5, 10)):
        assert f" {cheetah['return'][-1, members].mean():.0f}" in quoted
    assert cheetah["return"][-1].min() > 6500
    pendulum = Run(results / "pendulum").metrics
    for members in (slice(0, 5), slice(5, 10)):
        means = pendulum["return"][:, members].mean(axis=1)
        assert f"{means[-1]:.1f}" in quoted
        assert (means[pendulum["step"][:, 0] >= 8000] > -200).all()


def test_the_published_sparse_numbers_are_those_of_the_raw_data():
    """The tables of results/README.md: Figure 2 and the ablation of the clip."""
    results = Path(__file__).parents[2] / "results"
    quoted = (results / "README.md").read_text()
    shelf = Shelf(find_runs([results])[0])

    def rows(name):
        return shelf.gather(cells_of(find_experiment(name)))

    tasks = {
        task: find_experiment(f"fig2-sparse/{task}") for task in ("SparseHalfCheetah", "SparseHopper", "SparseWalker2d")
    }
    short = "SparseHopper"  # thirty seeds are wanted there, ten have been run
    manual = (results.parent / "docs" / "reproduction.md").read_text().splitlines()
    for task in tasks:
        lines = [
            next(line for line in page if line.startswith(f"| {task} |") and "±" in line)
            for page in (quoted.splitlines(), manual)
        ]
        for found in rows(f"fig2-sparse/{task}"):
            scores = found.scores("return")
            mean, low, high = mean_interval(scores)
            wanted = 30 if task != "SparseWalker2d" and found.name != "SAC-Div" else 10
            there = 10 if task == short else wanted
            partly = None if there == wanted else f"{found.name} on {task}: {there} of {wanted} seeds"
            assert found.missing() == partly
            assert found.seeds == tuple(range(there))
            for line in lines if found.name != "SAC-Div" else lines[:1]:
                assert f"| {mean:.1f} ± {scores.std():.1f} [{low:.1f}, {high:.1f}] |" in line
    for task, experiment in tasks.items():
        (line,) = (line for line in quoted.splitlines() if line.startswith(f"| P on {task} |"))
        at_best = [row[-1] for row in result_table(experiment, shelf.gather(cells_of(experiment)))[1]][1:]
        curves = [found.values["return"] for found in rows(f"fig2-sparse/{task}")]
        last = [curve[-len(curve) // 10 :].mean(axis=0) for curve in curves]
        late = [probability_of_improvement(last[0], other) for other in last[1:]]
        cells = [*at_best, *(f"{p:.2f} [{low:.2f}, {high:.2f}]" for p, low, high in late)]
        assert line == f"| P on {task} | {' | '.join(cells)} |"
        (line,) = (line for line in quoted.splitlines() if line.startswith(f"| on {task} |"))
        for found in rows(f"fig3-divergence/{task}"):
            divergence, visited = found.scores("js_divergence"), found.scores("visited")
            assert f" {divergence.mean():.2f} ± {divergence.std():.2f} |" in line
            assert f" {visited.mean():.0f} ± {visited.std():.0f} |" in line
    for found in rows("fast-start"):
        scores = found.scores("return")
        mean, low, high = mean_interval(scores)
        assert found.missing() is None
        assert f" | {mean:.1f} ± {scores.std():.1f} [{low:.1f}, {high:.1f}] |" in quoted
    for task, measure in (
        ("maze", "visited"),
        *((f"Sparse{r}", "return") for r in ("HalfCheetah", "Hopper", "Walker2d")),
    ):
        # a head of another table has no intervals, and other tables of theirs have a spread
        lines = [line for line in quoted.splitlines() if line.startswith(f"| {task}") and "[" in line]
        (line,) = (line for line in lines if "±" not in line)
        for found in rows(f"ablation-clip/{task}"):
            assert found.missing() is None
            mean, low, high = mean_interval(found.scores(measure))
            assert f"| {mean:.0f} |" in line or f"| {mean:.0f} [{low:.0f}, {high:.0f}] |" in line


def with_settings(run, **hyper):
    """Which of a run's members have these settings."""
    return [i for i, member in enumerate(run.members) if all(member.hyper[n] == v for n, v in hyper.items())]


def laboratory_log(root):
    """The pages of docs/research, one after another."""
    return "\n".join(page.read_text() for page in sorted((root / "docs" / "research").glob("*.md")))


def test_the_log_of_what_was_tried_is_that_of_the_raw_data():
    """docs/research: mean return at 60,000 steps, and the best after 10,000, of each setting that was tried."""
    root = Path(__file__).parents[2]
    lines = laboratory_log(root).replace("**", "").splitlines()
    start = root / "results" / "sparse" / "start"

    def cell(folder, **hyper):
        run = Run(start / folder)
        group = with_settings(run, **hyper)
        mean = run.metrics["return"][:, group].mean(axis=1)
        assert len(group) == len(run.config.seeds)
        return f"{mean[-1]:.0f} ({mean[run.metrics['step'][:, 0] > 10_000].max():.0f})"

    def row(name, *cells):
        assert f"| {name} | {' | '.join(cells)} |" in lines

    for alpha in (0.1, 0.2, 0.3):
        grid = [(beta, clip) for beta in (0.02, 0.005) for clip in (1, 2, 4)]
        row(f"alpha {alpha}", *(cell("alpha-clip-beta", alpha=alpha, beta=b, clip=c) for b, c in grid))
    for name, rate in (("1000 random steps", 1), ("the same, ratio rate 0.3", 0.3), ("the same, ratio rate 3", 3)):
        row(name, *(cell("ratio-rate", ratio_rate=rate, clip=clip) for clip in (1, 4, np.inf)))
    late = [cell("late", clip=clip) for clip in (1, np.inf)]
    row("10,000 random steps, updates after them", late[0], "-", late[1])
    text = " ".join(lines)
    assert f"at 0.3 {cell('alpha', alpha=0.3, clip=1)} with clip 1 and {cell('alpha', alpha=0.3, clip=np.inf)}" in text
    assert f"at 0.8 {cell('alpha', alpha=0.8, clip=1)} and {cell('alpha', alpha=0.8, clip=np.inf)}" in text
    assert f"at 1 (SAC) {cell('alpha', alpha=1, clip=1)}" in text


def test_the_fast_start_is_that_of_the_raw_data():
    """docs/research: one environment against four, and `fast-start` on thirty seeds."""
    root = Path(__file__).parents[2]
    lines = laboratory_log(root).replace("**", "").splitlines()
    text = " ".join(" ".join(lines).split())
    grid = np.arange(2000, 100_001, 2000)

    def returns(*folders, steps=grid, **hyper):
        """(time, seed) of the members with these settings, at these steps."""
        parts = []
        for folder in folders:
            run = Run(root / "results" / "sparse" / folder)
            rows = np.searchsorted(run.metrics["step"][:, 0], steps)
            parts.append(run.metrics["return"][rows][:, with_settings(run, **hyper)])
        return np.concatenate(parts, axis=1)

    def row(*cells):
        assert f"| {' | '.join(cells)} |" in lines

    def better(ours, theirs):
        return "{:.2f} [{:.2f}, {:.2f}]".format(*probability_of_improvement(ours, theirs))

    def compare(name, seeds, one, four):
        assert one.shape == four.shape
        means = f"{one.mean():.0f}", f"{four.mean():.0f}"
        row(name, seeds, *means, better(one.mean(axis=0), four.mean(axis=0)))

    def best(values):
        means = values.mean(axis=1)
        tail = values[-(len(values) // 10) :].mean()
        return *(round(v) for v in mean_interval(values[means.argmax()])), round(tail)

    def course(name, seeds, values):
        mean, low, high, tail = best(values)
        moments = [f"{values[np.flatnonzero(grid == k * 1000)[0]].mean():.0f}" for k in (20, 40, 60, 80, 100)]
        row(name, seeds, *moments, f"{mean} [{low}, {high}]", f"{tail}")

    fast = "alpha 0.1, clip {}, beta 0.005"
    tens = ["fast-start/clip-4", "fast-start/seeds-10-19", "fast-start/seeds-20-29"]
    compare(fast.format(4), "0 to 19", returns(*tens[:2]), returns("fast-start/four-envs", clip=4))
    for clip in (2, 1):
        four = returns("fast-start/four-envs", clip=clip)[:, :10]
        compare(fast.format(clip), "0 to 9", returns("fast-start/other-clips", clip=clip), four)
    rare = np.arange(10_000, 100_001, 10_000)
    for clip, name in ((1, "clip 1, beta 0.02 (paper)"), (4, "clip 4, beta 0.02"), (np.inf, "no clip, beta 0.02")):
        one = returns("halfcheetah-clips-one-env", steps=rare, clip=clip)
        four = returns("halfcheetah-dac" if clip == 1 else "halfcheetah-clips", steps=rare, clip=clip)
        compare(f"alpha 0.5, {name}", "0 to 9", one, four)
    for name, seeds, part in zip(
        (fast.format(4), "the same", "the same"), ("0 to 9", "10 to 19", "20 to 29"), tens, strict=True
    ):
        course(name, seeds, returns(part))
    course("the same", "0 to 29", returns(*tens))
    for name, clip in (("clip 2", 2), ("clip 1", 1), ("no clip", np.inf)):
        course(name, "0 to 9", returns("fast-start/other-clips", clip=clip))
    course("DAC 0.5, the paper's settings", "0 to 9", returns("halfcheetah-clips-one-env", clip=1))
    assert "{} [{}, {}] at their best".format(*best(returns(*tens[1:]))) in text
    ever = returns(*tens) > 500
    held = ever[25:].mean(axis=0) >= 0.5
    assert f"Of all thirty, {ever.any(axis=0).sum()} are above 500 at some of these evaluations" in text
    assert f"and {held.sum()} in at least half of those after 50,000" in text
    moment = returns("fast-start/clip-4")[20]
    assert (moment > 700).all()
    assert f"the five others are as good ({moment[5:].mean():.0f})" in text
    wide = returns("fast-start/four-envs", clip=4)
    assert f"have {best(returns(*tens[:2]))[0]} against {best(wide)[0]}" in text

    few = returns("fast-start/quarter-updates", "fast-start/quarter-updates-5-9")
    means = f"a mean of {few.mean():.0f}, with all updates {wide[:, :10].mean():.0f}"
    assert f"{means} (P {better(few.mean(axis=0), wide[:, :10].mean(axis=0))})" in text
    four, one = returns(tens[0]), returns("fast-start/other-clips", clip=1)
    assert f"4 against 1 has a probability of {better(four.mean(axis=0), one.mean(axis=0))} by the mean" in text
    at_best = better(*(values[values.mean(axis=1).argmax()] for values in (four, one)))
    assert f"of {at_best} at the best moment" in text
    narrow = returns("fast-start/four-envs", clip=1)
    assert f"(20 seeds) {better(wide.mean(axis=0), narrow.mean(axis=0))} by the mean" in text
    off = returns("halfcheetah-clips-one-env", clip=np.inf)
    assert "{} [{}, {}] at the best moment, clip 1 319".format(*best(off)[:3]) in text

    def quoted(folder, **hyper):
        mean, _, _, tail = best(returns(folder, **hyper))
        return f"{mean} ({tail})"

    beta = "fast-start/alpha-beta"
    assert f"alpha 0.05, beta 0.0025, seeds 10 to 19: {quoted(beta, alpha=0.05, beta=0.0025)}" in text
    assert f"no part in that choice: {quoted('fast-start/alpha-0.05')}" in text
    assert f"alpha 0.05, beta 0.01: {quoted(beta, alpha=0.05, beta=0.01)}" in text
    assert f"alpha 0.1, beta 0.0025: {quoted(beta, alpha=0.1, beta=0.0025)}" in text
    assert f"alpha 0.1, beta 0.01: {quoted(beta, alpha=0.1, beta=0.01)}" in text
    four = [quoted("fast-start/four-envs-beta-0.002", alpha=alpha) for alpha in (0.05, 0.1)]
    assert f"seeds 0 to 9: alpha 0.05 {four[0]}, alpha 0.1 {four[1]}" in text
    hopper, walker = ([best(returns(f"fast-start/{r}", clip=c))[0] for c in (1, 4)] for r in ("hopper", "walker2d"))
    assert f"SparseHopper {hopper[0]} with clip 1 and {hopper[1]} with clip 4" in text
    assert f"SparseWalker2d {walker[0]} and {walker[1]} (28)" in text
    assert (Run(root / "results/sparse/fast-start/other-clips").metrics["frozen"][-1] > 0).sum() == 10


def test_the_quoted_entropies_are_those_of_the_raw_data():
    """docs/research: of members without a return since 15,000 steps, how many have found it an evaluation on?"""
    root = Path(__file__).parents[2]
    quoted = laboratory_log(root)
    sparse = root / "results" / "sparse"
    folders = [*sorted((sparse / "start").iterdir()), sparse / "halfcheetah-clips", sparse / "halfcheetah"]
    entropies, found = [], []
    for folder in folders:
        run = Run(folder)
        metrics = run.metrics
        for index, member in enumerate(run.members):
            if folder.name == "alpha" and (member.hyper["alpha"], member.hyper["clip"]) == (1, np.inf):
                continue  # the same to the bit as with clip 1
            rows = (metrics["step"][:, index] >= 15_000) & (metrics["step"][:, index] <= 100_000)
            returns, entropy, frozen = (metrics[name][rows, index] for name in ("return", "policy_entropy", "frozen"))
            for now in range(len(returns) - 1):
                if returns[now] > 0 or frozen[now + 1]:
                    break
                entropies.append(entropy[now])
                found.append(returns[now + 1] > 500)
    counts = {}
    for low, high in ((3, 5), (0, 3), (-5, 0), (-15, -5), (-50, -15)):
        inside = (np.array(entropies) > low) & (np.array(entropies) <= high)
        counts[low] = f"{np.array(found)[inside].sum()} of {inside.sum()}"
    assert f"| above 3 | {counts[3]} |" in quoted
    for low, high in ((0, 3), (-5, 0), (-15, -5), (-50, -15)):
        assert f"| between {low} and {high} | {counts[low]} (" in quoted


def test_the_published_baselines_are_those_of_the_raw_data():
    results = Path(__file__).parents[2] / "results"
    quoted = (results / "README.md").read_text()
    folders = sorted(path.parent for path in (results / "baselines").glob("*/metrics.csv"))
    assert len(folders) == 8
    for folder in folders:
        run = Run(folder)
        metrics = run.metrics
        assert len(run.members) == 5
        mean, deviation = metrics["return"].mean(axis=1), metrics["return"][-1].std()
        digits = 1 if "pendulum" in folder.name else 0
        last = f"{mean[-1]:.{digits}f} ± {deviation:.{digits}f} | {mean.max():.{digits}f}"
        (line,) = [line for line in quoted.splitlines() if line.startswith(f"| `{folder.name}`")]
        assert f"| {metrics['step'][-1, 0]:.0f} | {last} |" in line
        if digits:
            assert mean[-1] > -200
        else:
            assert mean[-1] > float(line.split("|")[-2])
    with open(results / "baselines" / "pendulum-sb3.csv", newline="") as file:
        peers = list(csv.DictReader(file))
    for name in ("td3", "ppo"):
        theirs = np.array([float(row["mean_return"]) for row in peers if row["algorithm"] == name])
        ours = Run(results / "baselines" / f"pendulum-{name}").metrics["return"][-1]
        assert len(theirs) == 5
        assert f"| {ours.mean():.1f} ± {ours.std():.1f} | {theirs.mean():.1f} ± {theirs.std():.1f} |" in quoted
        assert abs(ours.mean() - theirs.mean()) < max(ours.std(), theirs.std())


def test_the_published_soak_is_that_of_the_raw_data():
    root = Path(__file__).parents[2]
    with open(root / "results" / "soak" / "samples.csv", newline="") as file:
        samples = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    full = next(i for i, row in enumerate(samples) if row["steps"] >= 25_000)
    quarter = (len(samples) - full) // 4
    early, late = samples[full : full + quarter], samples[-quarter:]
    memory = [np.mean([row["rss_kib"] for row in part]) / 1024 for part in (early, late)]
    quoted = (root / "docs" / "reliability.md").read_text()
    growth = f"{memory[0]:.1f} MiB | {memory[1]:.1f} MiB (+{100 * (memory[1] / memory[0] - 1):.1f}%)"
    assert f"| resident memory | {growth} |" in quoted
    assert memory[1] / memory[0] < 1.01
    for name in ("descriptors", "threads", "disk_kib"):
        assert max(row[name] for row in late) <= max(row[name] for row in early)
    assert samples[-1]["seconds"] >= 7200
    assert f"{samples[-1]['steps']:,.0f} steps" in quoted


def test_the_published_delayed_runs_are_those_of_the_raw_data():
    root = Path(__file__).parents[2]
    texts = [" ".join((root / page).read_text().split()) for page in ("results/README.md", "docs/reproduction.md")]
    best = {}
    for task, length, at in (("Hopper", 3_000_000, ""), ("HalfCheetah", 1_000_000, " at 5M")):
        for method in ("PPO", "ACKTR"):
            run = Run(root / "results" / "delayed" / f"{task.lower()}-{method.lower()}")
            returns, steps = run.metrics["return"], run.metrics["step"]
            assert returns.shape == (length // 5000, 5)
            assert steps[-1, 0] == length
            now = best[task, method] = returns[returns.mean(axis=1).argmax()]
            expected, deviation = published(f"Delayed{task}", method)
            paper = f"{expected:.0f} ± {deviation:.0f}"
            average, low, high = mean_interval(now)
            own, brackets = f"{average:.0f} ± {now.std():.0f}", f"[{low:.0f}, {high:.0f}]"
            tail = returns[-len(returns) // 10 :].mean(axis=0)
            assert f"| {method} | {own} {brackets} | {paper} | {tail.mean():.0f} ± {tail.std():.0f} |" in texts[0]
            assert f"{method} {average:.0f} {brackets}, paper{at} {paper}" in texts[1]
            if task == "Hopper":
                assert f"{own} for {paper}" in texts[1]
            else:
                assert abs(average - expected) < deviation
    assert (best["Hopper", "PPO"] > 3100).sum() == 4
    assert f"and one has {best['Hopper', 'PPO'].min():.0f}" in texts[0]
