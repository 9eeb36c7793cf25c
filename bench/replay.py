"""Replay in host memory beside replay on the device: two loops in one process, in turns.

python bench/replay.py [--task SparseHalfCheetah] [--members 1] [--rounds 15] [--steps 80]
"""

from __future__ import annotations

import time

import numpy as np
from common import options_in_turns, report

from dac.algorithms import make_algorithm
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.tasks import find_task
from dac.training.host import HostLoop


def main() -> None:
    parser = options_in_turns(__doc__, members=1, rounds=15, steps=80)
    options = parser.parse_args()
    task, members = find_task(options.task), grid(range(options.members), {})
    if task.host is None:
        parser.error(f"{options.task} does not run on the host")
    schedule = Schedule(10**9, 1, 1000, 1000, 1, 1_000_000, 1000)
    loops = [
        HostLoop(make_algorithm("dac"), task.host, members, schedule, host_replay=host_replay)
        for host_replay in (False, True)
    ]
    for loop in loops:
        loop.advance(1000 + options.steps)  # compiles
        loop.wait()
    seconds: list[list[float]] = [[], []]
    for number in range(options.rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            loop, start = loops[which], time.perf_counter()
            loop.advance(loop.step + options.steps)
            loop.wait()
            seconds[which].append(time.perf_counter() - start)
    device, host = (float(np.median(times)) for times in seconds)
    report(
        f"replay {options.task} dac x{options.members}",
        device_steps_per_second=options.steps / device,
        host_steps_per_second=options.steps / host,
        # by round, since what else the machine does changes from one to the next
        host_over_device=float(np.median(np.array(seconds[0]) / np.array(seconds[1]))),
    )
    for loop in loops:
        loop.close()


if __name__ == "__main__":
    main()
