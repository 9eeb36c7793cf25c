"""Does a CPU update a population faster in groups, whose numbers fit its cache, than all at once? Both in turns.

    python bench/groups.py [--members 10] [--groups 4,3,3] [--algorithm dac] [--rounds 12] [--updates 5]

By the clock, and by processor time, which what else the machine does changes less. A figure is how many times as fast
groups are: the median over rounds, with its quartiles.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
from common import report
from update import updater


def spent(functions: list) -> tuple[float, float]:
    """Seconds by the clock and of processor time that calls take one after the other."""
    clock, processor = time.perf_counter(), time.process_time()
    for function in functions:
        jax.block_until_ready(function())
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--groups", default="4,3,3")
    parser.add_argument("--algorithm", default="dac")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--updates", type=int, default=5, help="updates per round")
    options = parser.parse_args()
    sizes = [int(size) for size in options.groups.split(",")]
    assert sum(sizes) == options.members, "the groups are all members"
    together = [updater(options.algorithm, options.members, options.updates)]
    groups = [updater(options.algorithm, size, options.updates) for size in sizes]
    for function in (*together, *groups):  # compiles
        jax.block_until_ready(function())
    rounds = []
    for number in range(options.rounds):
        order = (together, groups) if number % 2 else (groups, together)
        found = {id(functions): spent(functions) for functions in order}
        rounds.append((*found[id(together)], *found[id(groups)]))
    whole, parts = np.array(rounds)[:, :2], np.array(rounds)[:, 2:]
    for column, name in enumerate(("clock", "processor time")):
        low, median, high = np.percentile(whole[:, column] / parts[:, column], (25, 50, 75))
        each = 1e3 / (options.members * options.updates)
        report(
            f"groups by {name}",
            algorithm=options.algorithm,
            members=options.members,
            groups=options.groups,
            rounds=options.rounds,
            times_as_fast=float(median),
            low_quartile=float(low),
            high_quartile=float(high),
            milliseconds_together=float(np.median(whole[:, column])) * each,
            milliseconds_in_groups=float(np.median(parts[:, column])) * each,
        )


if __name__ == "__main__":
    main()
