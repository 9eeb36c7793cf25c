"""Agent-steps per second on MuJoCo: one update per step, 2 x 256, batch 256, beside the update-only rate.

python bench/robots.py [--task SparseHalfCheetah] [--members 1] [--algorithm dac] [--steps 500] [--envs 1]
"""

from __future__ import annotations

import argparse
import math
import time

import jax
from common import report

from dac.algorithms import ALGORITHMS, make_algorithm
from dac.population import grid
from dac.tasks import find_task
from dac.training.host import HostLoop
from dac.training.schedule import Schedule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SparseHalfCheetah")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--algorithm", default="dac", choices=sorted(ALGORITHMS))
    parser.add_argument("--steps", type=int, default=500, help="steps of the loop, each of them of every environment")
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--envs", type=int, default=1, help="environments per member")
    options = parser.parse_args()
    make = find_task(options.task).host
    if make is None:
        parser.error(f"{options.task} does not run on the host")
    warm_up = math.ceil(1000 / options.envs) + max(20, options.steps // 4)
    schedule = Schedule(10**9, options.envs, 1000, 1000, 1, options.capacity, 1000)
    members = grid(range(options.members), {})
    algorithm = make_algorithm(options.algorithm, ALGORITHMS[options.algorithm].bonus)
    loop = HostLoop(algorithm, make, members, schedule)
    loop.advance(warm_up)  # compiles
    loop.wait()
    start = time.perf_counter()
    loop.advance(warm_up + options.steps)
    loop.wait()
    rate = options.envs * options.steps / (time.perf_counter() - start)

    # the same update dispatches without environments: what is the loop's share of what the device can do?
    packed = jax.device_put(loop._packed)
    start = time.perf_counter()
    for _ in range(options.steps):
        loop._update(packed)
    loop.wait()
    update_only = options.envs * options.steps / (time.perf_counter() - start)
    stats = jax.local_devices()[0].memory_stats() or {}
    report(
        f"{options.task} {options.algorithm} x{options.members}",
        steps_per_second_per_member=rate,
        agent_steps_per_second=rate * options.members,
        update_only_per_member=update_only,
        share_of_update_only=rate / update_only,
        envs=options.envs,
        peak_device_gib=stats.get("peak_bytes_in_use", 0) / 2**30,
    )
    loop.close()


if __name__ == "__main__":
    main()
