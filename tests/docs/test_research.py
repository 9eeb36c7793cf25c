"""The tables of the laboratory log come out of the raw data again."""

import csv
import shlex
from collections import defaultdict
from pathlib import Path

import numpy as np

from dac.config import parse_text, resolve
from dac.config.text import parse_seeds
from dac.experiments.stats import mean_interval, probability_of_improvement

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "research"
RAW = ROOT / "results" / "research"


def page(name):
    return (PAGES / f"{name}.md").read_text()


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def interval(values):
    return "{:.0f} [{:.0f}, {:.0f}]".format(*mean_interval(np.array(values, float)))


def test_why_it_flattens():
    visited, paid = defaultdict(list), defaultdict(list)
    for row in read(RAW / "frontier" / "visited.csv"):
        visited[row["setting"], int(row["step"])].append(int(row["visited"]))
    for row in read(RAW / "frontier" / "paid.csv"):
        paid[row["setting"]].append([float(row[name]) for name in ("visits", "paid", "expected")])
    text = page("why-it-flattens")
    assert len(paid) == 11
    for setting, rows in paid.items():
        cells = [interval(visited[setting, step]) for step in (1000, 2000, 4000)]
        visits, pay, expected = np.mean(rows, axis=0)
        assert f"| {setting} | {' | '.join(cells)} | {visits:.0f} | {pay:.3f} | {expected:.4f} |" in text
        assert len(rows) == 20


def test_noise_instead_of_entropy():
    found = defaultdict(list)
    for row in read(RAW / "frontier" / "noise.csv"):
        found[row["setting"], int(row["step"])].append(int(row["visited"]))
    text = page("why-it-flattens")
    for setting, _ in found:
        assert len(found[setting, 4000]) == 10
        assert f"| {setting} | {' | '.join(interval(found[setting, step]) for step in (1000, 2000, 4000))} |" in text
    last = [row for row in read(RAW / "frontier" / "visited.csv") if (row["setting"], row["step"]) == ("DAC 1", "4000")]
    same_seeds = [int(row["visited"]) for row in last if int(row["seed"]) < 10]
    assert f"DAC 1 ({np.mean(same_seeds):.0f} on" in text


def test_how_much_entropy_was_left_in_the_published_maze():
    rows = [row for row in read(ROOT / "results" / "maze" / "metrics.csv") if row["alpha"] == "0.5"]
    for step, share in ((5000, 96), (300_000, 94)):
        measured = [float(row["mixture_entropy"]) for row in rows if int(row["step"]) == step]
        assert len(measured) == 30
        assert round(100 * np.mean(measured) / (2 * np.log(2))) == share
        assert f"{share}%" in page("why-it-flattens")


def cells(path, setting):
    """Visited cells of every seed by (value of the setting, step)."""
    found = defaultdict(list)
    for row in read(path / "cells.csv"):
        found[float(row[setting]), int(row["step"])].append(float(row["visited"]))
    return found


def rooms(path, setting, value):
    """How many seeds entered the room to the right, the one above, and the upper right one."""
    rows = [row for row in read(path / "rooms.csv") if float(row[setting]) == value]
    return [sum(int(row[name]) >= 0 for row in rows) for name in ("right", "up", "far")], len(rows)


def better(one, other):
    return "{:.2f} [{:.2f}, {:.2f}]".format(*probability_of_improvement(np.array(one), np.array(other)))


def check_signs(raw, text, found, weights, seeds):
    """Every row of a table of weights: cells on the way, the probability against weight 1, and the far rooms."""
    for weight in weights:
        row = [interval(found[weight, step]) for step in (10_000, 20_000, 30_000)]
        row.append("" if weight == 1 else better(found[weight, 30_000], found[1.0, 30_000]))
        entered, count = rooms(raw, "value_entropy", weight)
        assert count == seeds
        line = f"| {weight:g} | {' | '.join(row)} | {', '.join(map(str, entered))} |"
        assert line.replace("|  |", "| |") in text, line


def test_the_sign_of_the_entropy():
    raw, text = RAW / "entropy-sign" / "sac", page("entropy-sign")
    found = cells(raw, "value_entropy")
    check_signs(raw, text, found, (1.0, 0.0, -0.25, -0.5, -1.0, -2.0), 5)
    for weight in (-0.5, -1.0):
        assert round(np.mean(found[weight, 30_000]) / np.mean(found[1.0, 30_000]), 1) == 1.5
    neighbours = [
        [int(row[name]) >= 0 for name in ("right", "up")]
        for row in read(raw / "rooms.csv")
        if float(row["value_entropy"]) >= 0
    ]
    assert (sum(map(all, neighbours)), sum(map(any, neighbours))) == (1, 5)


def test_the_sign_on_fresh_seeds():
    raw, text = RAW / "entropy-sign" / "fresh", page("entropy-sign").split("## On fresh seeds")[1].split("\n## ")[0]
    found = cells(raw, "value_entropy")
    check_signs(raw, text, found, (1.0, -0.5), 10)
    assert f"{np.mean(found[-0.5, 30_000]) / np.mean(found[1.0, 30_000]):.1f} times" in text
    assert f"the worst of its seeds has {min(found[-0.5, 30_000]):.0f}" in text
    above = sum(value > min(found[-0.5, 30_000]) for value in found[1.0, 30_000])
    assert above == 3
    assert "three of ten" in text


def test_the_sign_with_the_mixture():
    text, at_the_end = page("entropy-sign"), {}
    for name, column in (("DAC", "mixture_entropy"), ("SAC", "policy_entropy")):
        rows = [row for row in read(RAW / "entropy-sign" / name.lower() / "cells.csv") if int(row["seed"]) < 4]
        for weight in (1.0, -0.5):
            mine = [row for row in rows if float(row["value_entropy"]) == weight]
            of = {step: [row for row in mine if row["step"] == step] for step in ("5000", "10000")}
            shown = [interval([float(r["visited"]) for r in of[step]]) for step in of]
            entropy = np.mean([float(r[column]) for r in of["10000"]])
            assert f"| {name} {weight:g} | {' | '.join(shown)} | {entropy:.2f} |" in text
            at_the_end[name, weight] = [float(r["visited"]) for r in of["10000"]]
    assert f"is {better(at_the_end['DAC', -0.5], at_the_end['SAC', -0.5])}" in text
    assert f"DAC 1 {better(at_the_end['DAC', -0.5], at_the_end['DAC', 1.0])}" in text


def test_where_the_policy_is_narrow():
    found = defaultdict(list)
    for row in read(RAW / "entropy-sign" / "sac" / "entropy.csv"):
        found[row["value_entropy"]].append([float(row[n]) for n in ("never", "1-2", "3-9", "10+", "correlation")])
    text = page("entropy-sign").split("## Where the policy is narrow")[1]
    for weight, rows in found.items():
        assert f"| {float(weight):g} | {' | '.join(f'{x:.2f}' for x in np.mean(rows, axis=0))} |" in text
        never, seldom, _, often, _ = np.mean(rows, axis=0)
        assert never < seldom < often


def test_what_is_to_be_run_next_is_accepted():
    """Each command resolves to a run, on seeds below 2000, and nothing in it is an unknown setting."""
    lines = [line for line in page("next").splitlines() if line.startswith("dac train ")]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[2:]
        algorithm, task, options = words[0], words[1], words[2:]
        pairs = [part for word in options for part in (word.split("=", 1) if word.startswith("--") else [word])]
        given = {flag[2:].replace("-", "_"): value for flag, value in zip(pairs[::2], pairs[1::2], strict=True)}
        seeds = parse_seeds(given.pop("seeds"))
        config = resolve(algorithm, task, seeds, {n: parse_text(n, text, algorithm) for n, text in given.items()})
        assert max(config.seeds) < 2000
        assert len(config.members()) <= 120


def test_both_together():
    raw, text = RAW / "both-together", page("both-together")
    found, alone = cells(raw, "value_entropy"), cells(RAW / "entropy-sign" / "sac", "value_entropy")
    for weight in (1.0, 0.0, -0.5):
        row = [interval(found[weight, step]) for step in (5000, 10_000, 15_000)]
        row += [interval(alone[weight, 15_000]), better(found[weight, 15_000], alone[weight, 15_000])]
        entered, seeds = rooms(raw, "value_entropy", weight)
        assert seeds == 5
        assert f"| {weight:g} | {' | '.join(row)} | {', '.join(map(str, entered))} |" in text
    assert f"P {better(found[-0.5, 15_000], found[0.0, 15_000])}" in text
    last = [row for row in read(raw / "cells.csv") if row["step"] == "15000"]
    assert all(0.13 < float(row["bonus_mean"]) < 0.155 and 0.015 < float(row["bonus_std"]) < 0.03 for row in last)
    lag = defaultdict(list)
    for row in read(RAW / "frontier" / "lag.csv"):
        lag[row["every"], row["gamma"], int(row["step"])].append(int(row["visited"]))
    for every, gamma, _ in lag:
        row = [interval(lag[every, gamma, step]) for step in (800, 2000, 4000)]
        assert f"| {every} | {gamma} | {' | '.join(row)} |" in text


def test_counts():
    raw, text = RAW / "counts", " ".join(page("counts").split())
    fresh, scales, steps = defaultdict(list), defaultdict(list), (10_000, 20_000, 30_000)
    for row in read(raw / "fresh.csv"):
        fresh[int(row["step"])].append(float(row["visited"]))
    sign = cells(RAW / "entropy-sign" / "fresh", "value_entropy")
    entered = [row for row in read(raw / "rooms.csv") if row["run"] == "fresh"]
    far = ", ".join(str(sum(int(row[name]) >= 0 for row in entered)) for name in ("right", "up", "far"))
    last, weight, plain = fresh[30_000], sign[-0.5, 30_000], sign[1.0, 30_000]
    assert len(last) == len(entered) == 10
    row = [*(interval(fresh[step]) for step in steps), better(last, plain), far]
    assert f"| `--bonus count` | {' | '.join(row)} |" in text
    row = [*(interval(sign[-0.5, step]) for step in steps), better(weight, plain)]
    assert f"0.5, no bonus | {' | '.join(row)} |" in text
    assert f"| SAC | {' | '.join(interval(sign[1.0, step]) for step in steps)} |" in text
    assert f"{np.mean(last):.0f} cells, P {better(last, weight)} against the weight" in text
    assert f"{np.mean(last) / np.mean(plain):.1f} times SAC's, and the worst seed ({min(last):.0f})" in text
    assert sum(min(last) > value for value in weight) == 9
    other = [row for row in read(RAW / "reward-noise" / "cells.csv") if row["step"] == "30000"]
    means = {name: np.mean([float(row["visited"]) for row in other if row["run"] == name]) for name in ("dac", "fresh")}
    said = "DAC 0.5 has {:.0f} on these seeds and SAC with the best noise on its rewards {:.0f}"
    assert said.format(means["dac"], means["fresh"]) in text
    for row in read(raw / "scale.csv"):
        scales[float(row["bonus_scale"]), int(row["step"])].append(row)
    for scale in sorted({scale for scale, _ in scales}):
        row = [interval([float(r["visited"]) for r in scales[scale, step]]) for step in steps]
        paid = [np.mean([float(r[name]) for r in scales[scale, 30_000]]) / 0.3 for name in ("bonus_mean", "bonus_std")]
        assert f"| {scale:g} | {scale / 0.3:.2g} | {' | '.join(row)} | {paid[0]:.2f} | {paid[1]:.2f} |" in text
        assert len(scales[scale, 30_000]) == 5
    check_long_counts(raw, text)
    mixed, alone = defaultdict(list), defaultdict(list)
    for row in read(raw / "dac.csv"):
        mixed[float(row["value_entropy"]), int(row["step"])].append(float(row["visited"]))
    for row in read(raw / "fresh.csv"):
        if int(row["seed"]) < 105:
            alone[int(row["step"])].append(float(row["visited"]))
    assert f"| SAC, no entropy in the values | {' | '.join(interval(alone[step]) for step in steps)} |" in text
    for weight, name in ((0.0, "no"), (1.0, "the mixture's")):
        row = [*(interval(mixed[weight, step]) for step in steps), better(mixed[weight, 30_000], alone[30_000])]
        assert f"| DAC 0.5, {name} entropy in the values | {' | '.join(row)} |" in text
        assert max(mixed[weight, 30_000]) < min(alone[30_000])
    prototype = defaultdict(list)
    for row in read(raw / "prototype.csv"):
        if float(row["value_entropy"]) == 0:
            key = row["form"], float(row["beta"]), float(row["bonus_scale"]), int(row["step"])
            prototype[key].append(float(row["visited"]))
    found = [f"{np.mean(prototype[form, 0.3, c, 15_000]):.0f}" for form in ("log n", "1 / sqrt n") for c in (0.1, 0.5)]
    said = "it has {} cells with c = 0.1 and {} with c = 0.5, where the prototype of 1/√n has {} and {}."
    assert said.format(*found) in text
    assert f"with its best ({np.mean(prototype['1 / sqrt n', 0.03, 0.05, 10_000]):.0f})" in text


def check_long_counts(raw, text):
    """100,000 steps by discount and weight; 0.999 is behind 0.99 at every step of the table."""
    found, entered, steps = defaultdict(list), defaultdict(list), range(20_000, 100_001, 20_000)
    for row in [*read(raw / "long.csv"), *read(raw / "gamma.csv")]:
        key = float(row.get("gamma", 0.99)), float(row.get("value_entropy", 0)), int(row["step"])
        found[key].append(float(row["visited"]))
    for row in read(raw / "rooms.csv"):
        if row["run"] != "fresh":
            key = float(row["gamma"]), float(row["value_entropy"])
            entered[key].append([int(row[name]) >= 0 for name in ("right", "up", "far")])
    assert len(entered) == 4
    for (gamma, weight), rows in entered.items():
        row = [interval(found[gamma, weight, step]) for step in steps]
        assert f"| {gamma:g} | {weight:g} | {' | '.join(row)} | {', '.join(map(str, np.sum(rows, axis=0)))} |" in text
    near, far = ([np.mean(found[gamma, 0.0, step]) for step in steps] for gamma in (0.99, 0.999))
    assert all(one > other for one, other in zip(near, far, strict=True))
    assert (round(near[0], -2), round(near[-1] - near[-2], -1)) == (2700, 370)


def adapted(name, last):
    """Beta and return of every start at the last step, by what beta is: learned in either unit, or fixed."""
    found = defaultdict(list)
    for row in read(RAW / "joint-adaptation" / f"{name}.csv"):
        if int(row["step"]) == last:
            found[row["beta_is"], float(row["start"])].append((row["temperature"], float(row["return"])))
    return found


def geometric(pairs):
    return float(np.exp(np.mean([np.log(float(beta)) for beta, _ in pairs])))


def returns(pairs):
    return np.array([value for _, value in pairs])


def test_joint_adaptation_in_units_of_reward():
    text = " ".join(page("joint-adaptation").split())
    found = adapted("pendulum", 20_000)
    starts = sorted(start for kind, start in found if kind == "fixed")
    assert len(starts) == 9
    assert all(len(pairs) == 10 for pairs in found.values())
    for start in starts:
        learned, paper, fixed = (found[kind, start] for kind in ("reward", "entropy", "fixed"))
        row = [f"{geometric(learned):.3f}", interval(returns(learned)), f"{geometric(paper):.3g}"]
        row += [interval(returns(paper)), interval(returns(fixed))]
        assert f"| {start:g} | {' | '.join(row)} |" in text, row
    ends = [geometric(found["reward", start]) for start in starts]
    assert f"between {min(ends):.2f} and {max(ends):.2f}" in text
    best = max(np.mean(returns(found["fixed", start])) for start in starts)
    near = [np.mean(returns(found["reward", start])) >= 1.1 * best for start in starts]
    assert f"{['', 'seven', 'eight', 'nine'][sum(near) - 6]} of nine returns are within 10%" in text
    assert [start for start in starts if np.mean(returns(found["entropy", start])) >= 1.1 * best] == [2]
    assert "one of nine returns is within 10%, that of the highest start" in text


def test_joint_adaptation():
    text, ends, course = page("joint-adaptation"), defaultdict(list), defaultdict(list)
    for row in read(RAW / "joint-adaptation" / "target.csv"):
        if row["step"] == "8000":
            ends[float(row["beta"])].append(float(row["temperature"]))
            assert float(row["return"]) > -0.01
    means = [np.mean(ends[start]) for start in sorted(ends)]
    assert f"| end | {' | '.join(f'{mean:.4f}' for mean in means)} |" in text
    assert f"factor of {max(means[3:]) / min(means[3:]):.1f} of each other" in text
    assert sum(mean < min(means[3:]) for mean in means[:3]) == 2
    for row in read(RAW / "joint-adaptation" / "choose.csv"):
        key = float(row["entropy_target"]), float(row["beta"])
        course[(*key, int(row["step"]))].append((float(row["temperature"]), float(row["return"])))
    for target, start, _ in list(course):
        betas = [np.mean(course[target, start, step], axis=0)[0] for step in (2000, 4000, 6000, 8000)]
        final = np.mean(course[target, start, 8000], axis=0)[1]
        assert f"| {target:g} | {start:g} | {' | '.join(f'{b:.3g}' for b in betas)} | {final:.0f} |" in text


def test_noise_on_rewards():
    found, text = defaultdict(list), page("reward-noise")
    for row in read(RAW / "reward-noise" / "cells.csv"):
        found[row["run"], float(row["scale"]), int(row["step"])].append(float(row["visited"]))
    plain, dac = ("stored", 0.0), ("dac", 0.0)
    names = {
        "none": plain,
        "stored, 0.1": ("stored", 0.1),
        "stored, 0.3": ("stored", 0.3),
        "stored, 1": ("stored", 1.0),
        "fresh, 0.3": ("fresh", 0.3),
        "*DAC 0.5, no noise*": dac,
    }
    for name, setting in names.items():
        row = [interval(found[*setting, step]) for step in (10_000, 20_000, 30_000)]
        last = found[*setting, 30_000]
        assert len(last) == 10
        row += ["" if setting == other else better(last, found[*other, 30_000]) for other in (dac, plain)]
        assert f"| {name} | {' | '.join(row)} |".replace("|  |", "| |") in text
    for setting in (("fresh", 0.3), dac):
        assert f"{np.mean(found[*setting, 30_000]):.0f}" in text.split("## Prediction")[0]
    signs = cells(RAW / "entropy-sign" / "fresh", "value_entropy")
    assert f"{np.mean(signs[-0.5, 30_000]):.0f} cells ([the sign]" in text
    assert f"have {np.mean(signs[1.0, 30_000]):.0f} in the run" in text
