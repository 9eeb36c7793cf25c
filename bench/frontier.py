"""What the exact objective explores: `python bench/frontier.py OUT FIGURE` writes four tables and a figure.

Four rooms of cells, exact entropies and values, q counted (`dac/theory/frontier.py`). About two minutes.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np

from dac.theory.frontier import expected_lack, explore, four_rooms, successors

SIDE, STEPS, EVERY = 21, 4000, 100
MOST_VISITED = 20
"""States whose pay is compared with what uniform actions would leave there."""
COUNTS: dict[str, Any] = {"weight": -1.0, "by_counts": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "uniform actions": {"weight": 0.0, "alpha": 1.0},
    "SAC -1": {"weight": -1.0, "alpha": 1.0},
    **{f"DAC {weight:g}": {"weight": weight} for weight in (1.0, 0.0, -0.5, -1.0, -2.0)},
    **{f"DAC {weight:g}, narrow": {"weight": weight, "unseen": "narrow"} for weight in (1.0, 0.0, -1.0)},
    "DAC -1, by counts": COUNTS,
}
LAGS = [(25, 0.99), (100, 0.99), (400, 0.99), (100, 0.9), (100, 0.999)]
"""Steps between two policies, and the discount, for the bonus by counts: is it lag or horizon that holds it back?"""
NOISE: dict[str, dict[str, Any]] = {
    f"{kind}, {scale:g}": {"weight": 0.0, "noise": scale, "stored": kind == "stored"}
    for kind in ("fresh", "stored")
    for scale in (0.03, 0.13, 0.3)
}
"""Noise instead of anything that means something; 0.13 is how far what DAC 1 is paid for its states is spread.

The policy maximises the mixture's entropy as DAC's does.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only-noise", action="store_true", help="write noise.csv alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    after = successors(four_rooms(SIDE))
    noisy = [
        (name, seed, step, walk.visited[step // EVERY], walk.paid.std())
        for name, setting in NOISE.items()
        for seed in range(options.seeds)
        for walk in [explore(after, np.random.default_rng(seed), steps=STEPS, every=EVERY, **setting)]
        for step in (1000, 2000, STEPS)
    ]
    _write(options.out / "noise.csv", ("setting", "seed", "step", "visited", "spread"), noisy)
    if options.only_noise:
        return
    visited, paid, curves = [], [], {}
    for name, setting in SETTINGS.items():
        walks = [
            explore(after, np.random.default_rng(seed), steps=STEPS, every=EVERY, **setting)
            for seed in range(options.seeds)
        ]
        curves[name] = np.array([walk.visited for walk in walks])
        for seed, walk in enumerate(walks):
            visited += [(name, seed, EVERY * i, walk.visited[i]) for i in range(0, len(walk.visited), 5)]
            count = walk.counts.sum(1)
            most = np.argsort(-count, kind="stable")[:MOST_VISITED]
            expected = expected_lack(count[most], after.shape[1], setting.get("alpha", 0.5))
            paid.append((name, seed, count[most].mean(), walk.paid[most].mean(), expected.mean()))
        print(f"{name}: {curves[name][:, -1].mean():.0f} of {len(after)} states")
    lagging = [
        (every, gamma, seed, step, walk.visited[step // every])
        for every, gamma in LAGS
        for seed in range(options.seeds)
        for walk in [explore(after, np.random.default_rng(seed), steps=STEPS, every=every, gamma=gamma, **COUNTS)]
        for step in (800, 2000, STEPS)
    ]
    _write(options.out / "lag.csv", ("every", "gamma", "seed", "step", "visited"), lagging)
    _write(options.out / "visited.csv", ("setting", "seed", "step", "visited"), visited)
    _write(options.out / "paid.csv", ("setting", "seed", "visits", "paid", "expected"), paid)
    _draw(options.figure, curves, len(after))


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        table.writerows([[f"{cell:.5g}" if isinstance(cell, float) else cell for cell in row] for row in rows])


def _draw(path: Path, curves: dict[str, np.ndarray], states: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in ("DAC -1, by counts", "DAC 1", "uniform actions", "DAC -1", "DAC 1, narrow"):
        axes.plot(EVERY * np.arange(curves[name].shape[1]), curves[name].mean(axis=0), label=name)
    axes.axhline(states, color="grey", linewidth=0.8)
    axes.set(xlabel="steps", ylabel=f"states entered, of {states}")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    main()
