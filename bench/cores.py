"""What it gives to make the cores of a CPU devices of their own: a process for each way, in turns.

python bench/cores.py [--task SparseHalfCheetah] [--members 10] [--rounds 7] [--steps 60]
    [--algorithm sac] [--hidden 256,256] [--batch-size 256] [--ways 1:float32,2:float32,2:bf16]

A way is a number of devices and the precision of matrix products; each is compared with the first.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import numpy as np
from common import options_in_turns, report

from dac.algorithms import make_algorithm
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from dac.training.devices import choose_devices, divide_cpu
from dac.training.host import HostLoop
from dac.training.loop import AbstractLoop


def make_loop(task: str, algorithm: str, settings: dict, members: int, devices: int) -> AbstractLoop:
    divide_cpu(devices)
    mesh, _ = choose_devices(devices, members)
    schedule, found = Schedule(10**9, 1, 200, 200, 1, 10_000, 1000), find_task(task)
    made, everyone = make_algorithm(algorithm, settings=settings), grid(range(members), {})
    if found.device is not None:
        return DeviceLoop(made, found.device(), everyone, schedule, mesh=mesh)
    assert found.host is not None
    return HostLoop(made, found.host, everyone, schedule, mesh=mesh)


def work(pipe: Connection, steps: int, *how) -> None:
    """Train for some steps whenever asked; answer with the seconds."""
    loop = make_loop(*how)
    loop.advance(200 + steps)  # compiles
    loop.wait()
    pipe.send(None)
    while pipe.recv():
        start = time.perf_counter()
        loop.advance(loop.step + steps)
        loop.wait()
        pipe.send(time.perf_counter() - start)
    loop.close()


def main() -> None:
    parser = options_in_turns(__doc__, members=10, rounds=7, steps=60)
    parser.add_argument("--algorithm", default="sac")
    parser.add_argument("--hidden", default="256,256")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--ways", default="1:float32,2:float32,2:bf16")
    options = parser.parse_args()
    ways = [way.split(":") for way in options.ways.split(",")]
    spawn, pipes = multiprocessing.get_context("spawn"), []
    for devices, precision in ways:
        hidden = tuple(int(size) for size in options.hidden.split(","))
        settings = {"hidden": hidden, "batch_size": options.batch_size, "precision": precision}
        how = options.task, options.algorithm, settings, options.members, int(devices)
        ours, theirs = spawn.Pipe()
        spawn.Process(target=work, args=(theirs, options.steps, *how), daemon=True).start()
        ours.recv()
        pipes.append(ours)
    seconds = np.zeros((options.rounds, len(ways)))
    for number in range(options.rounds):
        order = range(len(ways)) if number % 2 else reversed(range(len(ways)))
        for which in order:
            pipes[which].send(True)
            seconds[number, which] = pipes[which].recv()
    for pipe in pipes:
        pipe.send(False)
    for which, (devices, precision) in enumerate(ways):
        # by round, since what else the machine does changes from one to the next
        low, gain, high = np.quantile(seconds[:, 0] / seconds[:, which], [0.25, 0.5, 0.75])
        report(
            f"cores {options.task} {options.algorithm} x{options.members}",
            devices=int(devices),
            products=precision,
            hidden=options.hidden,
            batch_size=options.batch_size,
            agent_steps_per_second=options.members * options.steps / float(np.median(seconds[:, which])),
            gain=float(gain),
            quartiles=[round(float(low), 3), round(float(high), 3)],
            rounds=options.rounds,
        )


if __name__ == "__main__":
    main()
