"""How wide a run's policies are in cells of the maze, by how often they were entered.

python bench/maze_entropy.py RUN OUT.csv        RUN has one setting that differs between members, and is finished
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dac
from dac.envs.maze import free_cells
from dac.rundir.visits import read_visits

SAMPLES = 32
GROUPS = {"never": (0, 1), "1-2": (1, 3), "3-9": (3, 10), "10+": (10, np.inf)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    run = dac.load(options.run)
    (setting,) = run.config.varied()
    visits = read_visits(options.run)
    last = max((name for name in visits if name.startswith("visits_")), key=lambda name: int(name.split("_")[1]))
    free = free_cells()
    counts = visits[last].reshape(-1, *free.shape)[:, free]
    centres = jnp.array(np.argwhere(free) + 0.5, jnp.float32)
    noise = jax.random.normal(jax.random.key(0), (SAMPLES, 2))

    @jax.jit
    def entropies(policies, member):
        policy = jax.tree.map(lambda x: x[member], policies)
        return jax.vmap(lambda o: -jnp.mean(jax.vmap(lambda n: policy(o).squash(n)[1])(noise)))(centres)

    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([setting, "seed", *GROUPS, "correlation"])
        for number, member in enumerate(run.members):
            entropy, count = np.asarray(entropies(run.policies(), number)), counts[number]
            means = [entropy[(count >= low) & (count < high)].mean() for low, high in GROUPS.values()]
            correlation = np.corrcoef(entropy, np.log1p(count))[0, 1]
            table.writerow([member.hyper[setting], member.seed, *(f"{x:.4f}" for x in (*means, correlation))])


if __name__ == "__main__":
    main()
