"""Agent-steps per second in the maze, environment, replay and one update per step included, full-size networks.

python bench/maze.py [--members 60] [--steps 3000] [--capacity 300000]
"""

from __future__ import annotations

import argparse
import time

import jax
from common import report

from dac.algorithms import DAC
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.envs.maze import FourRoomMaze
from dac.training.device import DeviceLoop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--capacity", type=int, default=300_000)
    options = parser.parse_args()
    warm_up = 1000 + options.steps
    schedule = Schedule(warm_up + options.steps, 1, 1000, 1000, 1, options.capacity, options.steps)
    loop = DeviceLoop(DAC(gamma=0.999), FourRoomMaze(), grid(range(options.members), {"alpha": [0.5]}), schedule)
    loop.advance(warm_up)  # compiles both programs
    loop.wait()
    start = time.perf_counter()
    loop.advance(warm_up + options.steps)
    loop.wait()
    rate = options.members * options.steps / (time.perf_counter() - start)
    stats = jax.local_devices()[0].memory_stats() or {}
    memory = stats.get("peak_bytes_in_use", 0) / 2**30
    report(f"maze x{options.members}", agent_steps_per_second=rate, peak_device_gib=memory)


if __name__ == "__main__":
    main()
