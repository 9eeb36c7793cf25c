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
