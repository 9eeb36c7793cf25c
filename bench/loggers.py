"""What a logger costs a run: training with one, with one that blocks for ever, with one that fails, and without.

python bench/loggers.py [--task SparseHalfCheetah] [--members 1] [--rounds 120] [--steps 5]

A run hands a logger one evaluation per `eval_every` steps. Here it gets one after every few steps, hundreds of times as
often, so that what it costs stands out of the noise; every round is paired with one without a logger beside it, in
changing order. What an evaluation costs is the median difference of the pairs, in processor time of the whole process
(all threads, the logger's too) and by the clock. As a share it is divided by what training takes for `eval_every`
steps. `low` and `high` are the ends of a 95% bootstrap interval of the median; where the clock is too noisy for 1%,
they say so.
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


CLOCKS = {"cpu": time.process_time, "clock": time.perf_counter}


def main() -> None:
    options = options_in_turns(__doc__, members=1, rounds=120, steps=5).parse_args()
    config = resolve("dac", options.task, range(options.members), {})
    task, members = find_task(options.task), grid(range(options.members), {})
    schedule = Schedule(10**9, 1, 1000, 1000, 1, 1_000_000, 1000)
    algorithm = config.make_algorithm()
    if task.device is not None:
        loop = DeviceLoop(algorithm, task.device(), members, schedule)
    else:
        loop = HostLoop(algorithm, task.host, members, schedule)
    loop.advance(1000 + 20 * options.steps)
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "tensorboard": make_loggers(["tensorboard"])[0],
            "blocking": Background("blocking", Blocking()),
            "failing": Background("failing", Failing()),
        }
        for name, watcher in kinds.items():
            watcher.on_start(Start(config, Path(folder) / name, config.members()))
        found = {kind: compare(loop, watcher, rows(loop), options) for kind, watcher in kinds.items()}
        for watcher in kinds.values():
            watcher.on_end(None)
    loop.close()
    for kind, (with_one, without) in found.items():
        figures = {}
        for column, clock in enumerate(CLOCKS):
            each = np.median(without[:, column]) / options.steps  # seconds that training takes for a step
            more = with_one[:, column] - without[:, column]
            share = more / (each * Training.eval_every)
            low, high = interval(share)
            figures |= {f"{clock}_milliseconds_per_step": 1e3 * each}
            figures |= {f"{clock}_milliseconds_per_evaluation": 1e3 * float(np.median(more))}
            figures |= {f"{clock}_share": float(np.median(share)), f"{clock}_low": low, f"{clock}_high": high}
        report(
            f"logger {kind} on {options.task} x{options.members}",
            evaluations=options.rounds,
            steps_per_evaluation=options.steps,
            eval_every=Training.eval_every,
            **figures,
        )


def compare(loop, watcher: Background, made_up: list[dict], options) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of rounds with a logger and of those beside them without, (round, clock)."""
    found: dict[bool, list[list[float]]] = {True: [], False: []}
    for turn in range(options.rounds):
        for logging in (True, False) if turn % 2 else (False, True):
            loop.wait()
            evaluation = Evaluation(loop.step, [row | {"step": loop.step} for row in made_up])
            before = [clock() for clock in CLOCKS.values()]
            if logging:
                watcher.on_evaluation(evaluation)
            loop.advance(loop.step + options.steps)
            loop.wait()
            if logging:
                watcher.on_progress(Position(loop.step, None, {}))
            found[logging].append([clock() - start for clock, start in zip(CLOCKS.values(), before, strict=True)])
    return np.array(found[True]), np.array(found[False])


def interval(values: np.ndarray) -> tuple[float, float]:
    """A 95% bootstrap interval of the median."""
    draws = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(np.median(values[draws], axis=1), [0.025, 0.975])
    return float(low), float(high)


def rows(loop) -> list[dict]:
    """The rows of an evaluation, with as many columns as DAC's has."""
    names = ["return", "return_std", "length", *loop.metric_names()]
    known = [{"member": k, "seed": m.seed, "step": loop.step, "frozen": 0} for k, m in enumerate(loop.members)]
    return [row | dict.fromkeys(names, 1.0) for row in known]


if __name__ == "__main__":
    main()
