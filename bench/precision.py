"""What products of bf16 numbers gain: the same update in float32 and in bf16, in turns.

python bench/precision.py [--members 1,10] [--algorithm dac] [--rounds 15] [--updates 3]

Processor time is reported beside the time on the clock, since it is steadier where others use the machine too.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
from common import report
from update import updater


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="1")
    parser.add_argument("--algorithm", default="dac,sac")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=3)
    options = parser.parse_args()
    for members in (int(m) for m in options.members.split(",")):
        for algorithm in options.algorithm.split(","):
            runs = [updater(algorithm, members, options.updates, precision=p) for p in ("float32", "bf16")]
            for run in runs:
                jax.block_until_ready(run())  # compiles
            taken = np.zeros((options.rounds, 2, 2))
            for number in range(options.rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    clock, processor = time.perf_counter(), time.process_time()
                    jax.block_until_ready(runs[which]())
                    taken[number, which] = time.perf_counter() - clock, time.process_time() - processor
            # by round, since what else the machine does changes from one to the next
            gain = np.quantile(taken[:, 0] / taken[:, 1], [0.25, 0.5, 0.75], axis=0)
            report(
                f"precision {algorithm} x{members}",
                bf16_over_float32=float(gain[1, 0]),
                quartiles=[round(float(value), 3) for value in gain[::2, 0]],
                by_processor_time=float(gain[1, 1]),
                processor_time_quartiles=[round(float(value), 3) for value in gain[::2, 1]],
                float32_processor_ms=float(np.median(taken[:, 0, 1])) * 1e3 / members / options.updates,
                bf16_processor_ms=float(np.median(taken[:, 1, 1])) * 1e3 / members / options.updates,
            )


if __name__ == "__main__":
    main()
