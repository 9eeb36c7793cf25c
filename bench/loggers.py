"""What a logger costs: training with one, with one that blocks, with one that fails, and with none, in turns.

python bench/loggers.py [--task SparseHalfCheetah] [--members 3] [--rounds 12] [--steps 500]

A round is an evaluation's worth of training after which the rows of an evaluation are handed to the logger, as a run
does. The logger writes on its thread while the next round trains. Each kind is compared with the rounds without one
beside it, so that what else the machine does falls on both. Where that is too noisy, `share_at_most` says what there is
to lose: the processor time of handing rows over and of TensorBoard's own thread, against that of training for
`eval_every` steps.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from common import options_in_turns, report

from dac.config import Training, resolve
from dac.core.population import grid
from dac.core.schedule import Schedule
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from dac.training.loggers import make_loggers
from dac.training.loggers.background import AbstractLogger, Background
from dac.training.watchers import Evaluation, Position, Start


class Blocking(AbstractLogger):
    """Never returns from its first row."""

    def open(self, start, groups):
        return None

    def restore(self, step):
        pass

    def write(self, record):
        threading.Event().wait()

    def close(self):
        pass


class Failing(Blocking):
    """As on a disk that is full."""

    def write(self, record):
        raise OSError(28, "No space left on device")


def main() -> None:
    options = options_in_turns(__doc__, members=3, rounds=12, steps=500).parse_args()
    config = resolve("dac", options.task, range(options.members), {})
    task, members = find_task(options.task), grid(range(options.members), {})
    schedule = Schedule(10**9, 1, 1000, 1000, 1, 1_000_000, 1000)
    algorithm = config.make_algorithm()
    if task.device is not None:
        loop = DeviceLoop(algorithm, task.device(), members, schedule)
    else:
        loop = HostLoop(algorithm, task.host, members, schedule)
    loop.advance(1000 + options.steps)
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "tensorboard": make_loggers(["tensorboard"])[0],
            "blocking": Background("blocking", Blocking()),
            "failing": Background("failing", Failing()),
        }
        for name, watcher in kinds.items():
            watcher.on_start(Start(config, Path(folder) / name, config.members()))
        made_up = rows(loop)
        handing, writing = list[float](), list[float]()
        board = kinds["tensorboard"]._logger
        real_write = board.write

        def timed_write(record):
            before = time.thread_time()
            real_write(record)
            writing.append(time.thread_time() - before)

        board.write = timed_write
        names = [name for kind in kinds for name in (kind, "none")]
        seconds: dict[str, list[float]] = {name: [] for name in names}
        pairs: dict[str, list[float]] = {name: [] for name in kinds}
        for turn in range(options.rounds):
            # the order changes, since the second of two rounds is not always as fast as the first
            for kind, watcher in kinds.items():
                times = {}
                for name in (kind, "none") if turn % 2 else ("none", kind):
                    loop.wait()
                    evaluation = Evaluation(loop.step, [row | {"step": loop.step} for row in made_up])
                    start = time.perf_counter()
                    if name == kind:
                        before = time.thread_time()
                        watcher.on_evaluation(evaluation)
                        handing.append(time.thread_time() - before)
                    loop.advance(loop.step + options.steps)
                    loop.wait()
                    if name == kind:
                        watcher.on_progress(Position(loop.step, None, {}))
                    times[name] = time.perf_counter() - start
                    seconds[name].append(times[name])
                pairs[kind].append(times[kind] / times["none"])
        for watcher in kinds.values():
            watcher.on_end(None)
        cost = float(np.median(handing) + np.median(writing[1:]))
        report(
            f"loggers on {options.task} x{options.members}",
            steps_per_second=options.steps / float(np.median(seconds["none"])),
            handing_over_microseconds=1e6 * float(np.median(handing)),
            writing_milliseconds=1e3 * float(np.median(writing[1:])),
            share_at_most=cost / (float(np.median(seconds["none"])) * Training.eval_every / options.steps),
            **{f"time_with_{kind}": float(np.median(ratios)) for kind, ratios in pairs.items()},
            **{f"spread_{kind}": float(np.std(ratios) / np.sqrt(len(ratios))) for kind, ratios in pairs.items()},
        )
    loop.close()


def rows(loop) -> list[dict]:
    """The rows of an evaluation, with as many columns as DAC's has."""
    names = ["return", "return_std", "length", *loop.metric_names()]
    known = [{"member": k, "seed": m.seed, "step": loop.step, "frozen": 0} for k, m in enumerate(loop.members)]
    return [row | dict.fromkeys(names, 1.0) for row in known]


if __name__ == "__main__":
    main()
