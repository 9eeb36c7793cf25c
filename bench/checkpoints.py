"""What a checkpoint costs: training with and without one, in turns, in one process.

python bench/checkpoints.py [--task SparseHalfCheetah] [--members 1] [--rounds 10] [--steps 500]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from common import options_in_turns, report

from dac.algorithms import make_algorithm
from dac.config import Training
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.rundir.checkpoints import Checkpointer
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop


def main() -> None:
    parser = options_in_turns(__doc__, members=1, rounds=10, steps=500)
    options = parser.parse_args()
    task, members = find_task(options.task), grid(range(options.members), {})
    schedule = Schedule(10**9, 1, 1000, 1000, 1, 1_000_000, 1000)
    loop = (
        DeviceLoop(make_algorithm("dac"), task.device(), members, schedule)
        if task.device is not None
        else HostLoop(make_algorithm("dac"), task.host, members, schedule)
    )
    loop.advance(1000 + options.steps)
    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(Path(folder), "bench")
        checkpointer.save(loop, {}, {})
        checkpointer.wait()
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * options.rounds):
            saving = number % 2 == 1
            loop.wait()
            start = time.perf_counter()
            if saving:
                checkpointer.save(loop, {}, {})
            loop.advance(loop.step + options.steps)
            loop.wait()
            seconds[saving].append(time.perf_counter() - start)
            checkpointer.wait()  # what is still being written would fall on the next round
        assert checkpointer.problem() is None
    plain, with_one = (float(np.median(seconds[saving])) for saving in (False, True))
    every = Training.checkpoint_every
    report(
        f"checkpoint of {options.task} x{options.members}",
        steps_per_second=options.steps / plain,
        seconds_per_checkpoint=with_one - plain,
        loss_at_the_default=(with_one - plain) / (plain * every / options.steps),
    )
    loop.close()


if __name__ == "__main__":
    main()
