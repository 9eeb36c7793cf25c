"""What it gives that the C library keeps freed memory: two processes, with and without, in turns.

python bench/heap.py [--task SparseHalfCheetah] [--members 10] [--rounds 9] [--steps 20]
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from multiprocessing.connection import Connection

import numpy as np
from common import options_in_turns, report

from dac.algorithms import make_algorithm
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.tasks import find_task
from dac.training.host import HostLoop

DEFAULT = {"MALLOC_TOP_PAD_": "131072"}
"""glibc's own default: changes nothing but that `keep_freed_memory`, which `common` calls, lets things be."""


def work(pipe: Connection, task: str, members: int, steps: int) -> None:
    """Train for some steps whenever asked; answer with the seconds and the pages that were handed out."""
    make = find_task(task).host
    assert make is not None
    schedule = Schedule(10**9, 1, 200, 200, 1, 10_000, 1000)
    loop = HostLoop(make_algorithm("dac"), make, grid(range(members), {}), schedule)
    loop.advance(200 + steps)  # compiles
    loop.wait()
    pipe.send(None)
    while pipe.recv():
        pages, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        loop.advance(loop.step + steps)
        loop.wait()
        pipe.send((time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages))
    loop.close()


def main() -> None:
    parser = options_in_turns(__doc__, members=10, rounds=9, steps=20)
    options = parser.parse_args()
    spawn, pipes = multiprocessing.get_context("spawn"), []
    for variables in ({}, DEFAULT):
        ours, theirs = spawn.Pipe()
        os.environ.update(variables)
        spawn.Process(target=work, args=(theirs, options.task, options.members, options.steps), daemon=True).start()
        ours.recv()
        pipes.append(ours)
    seconds, pages = np.zeros((options.rounds, 2)), np.zeros((options.rounds, 2))
    for number in range(options.rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            pipes[which].send(True)
            seconds[number, which], pages[number, which] = pipes[which].recv()
    for pipe in pipes:
        pipe.send(False)
    report(
        f"heap {options.task} dac x{options.members}",
        agent_steps_per_second=options.members * options.steps / float(np.median(seconds[:, 0])),
        with_glibcs_defaults=options.members * options.steps / float(np.median(seconds[:, 1])),
        # by round, since what else the machine does changes from one to the next
        gain=float(np.median(seconds[:, 1] / seconds[:, 0])),
        pages_per_step=float(np.median(pages[:, 0])) / options.steps,
        pages_per_step_with_glibcs_defaults=float(np.median(pages[:, 1])) / options.steps,
    )


if __name__ == "__main__":
    main()
