"""Agent-steps per second on MuJoCo: one update per step, 2 x 256, batch 256, beside the update-only rate.

python bench/robots.py [--task SparseHalfCheetah] [--members 1] [--algorithm dac] [--steps 500] [--envs 1,4]
    [--precision float32]

On an accelerator also with the updates launched in place, instead of by a second thread.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import jax
from common import report

from dac.algorithms import ALGORITHMS, make_algorithm
from dac.core.population import grid
from dac.core.precision import PRECISIONS
from dac.core.schedule import Schedule
from dac.tasks import find_task
from dac.training.host import HostLoop, MakeEnvs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SparseHalfCheetah")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--algorithm", default="dac", choices=sorted(ALGORITHMS))
    parser.add_argument("--steps", type=int, default=500, help="steps of the loop, each of them of every environment")
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--envs", default="1", help="environments per member")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    options = parser.parse_args()
    make = find_task(options.task).host
    if make is None:
        parser.error(f"{options.task} does not run on the host")
    for envs in (int(number) for number in options.envs.split(",")):
        measure(options, make, envs)


def measure(options: argparse.Namespace, make: MakeEnvs, envs: int) -> None:
    schedule = Schedule(10**9, envs, 1000, 1000, 1, options.capacity, 1000)
    settings = {"precision": options.precision}
    algorithm = make_algorithm(options.algorithm, ALGORITHMS[options.algorithm].bonus, settings)
    members, warm_up = grid(range(options.members), {}), math.ceil(1000 / envs) + max(20, options.steps // 4)
    loop = HostLoop(algorithm, make, members, schedule)
    loop.advance(warm_up)  # compiles

    def rate(work: Callable[[], None]) -> float:
        loop.wait()
        start = time.perf_counter()
        work()
        loop.wait()
        return envs * options.steps / (time.perf_counter() - start)

    def train() -> None:
        loop.advance(loop.step + options.steps)

    figures = {"steps_per_second_per_member": rate(train)}
    figures["agent_steps_per_second"] = figures["steps_per_second_per_member"] * options.members
    # the same update dispatches without environments: what is the loop's share of what the device can do?
    figures["update_only_per_member"] = rate(lambda: loop.learn_only(options.steps))
    figures["share_of_update_only"] = figures["steps_per_second_per_member"] / figures["update_only_per_member"]
    if loop.launches_aside:
        loop.close()
        loop = HostLoop(algorithm, make, members, schedule, launch_aside=False)
        loop.advance(warm_up)
        figures["launched_in_place"] = rate(train)
    stats = jax.local_devices()[0].memory_stats() or {}
    figures["peak_device_gib"] = stats.get("peak_bytes_in_use", 0) / 2**30
    report(f"{options.task} {options.algorithm} x{options.members}", **figures, envs=envs, products=options.precision)
    loop.close()


if __name__ == "__main__":
    main()
