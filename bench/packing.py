"""What packing is worth: a study of 60 members in one process, against one process for each member.

Both are trained by the driver of `dac sweep`: three alphas, two betas and ten seeds of DAC. Of the processes with one
member each some are run, as many at a time as there are cores, or as `--at-once` says on a GPU, half of them before
the packed population and half after it. Agent-steps per second are counted three times: over everything, with the
start of Python and the compilation; in training alone; and per second of processor time, which other work on the
machine disturbs least.

    python bench/packing.py                                                  # small networks, 2 cores
    python bench/packing.py --hidden 256,256 --batch-size 256 --steps 20000 --at-once 4   # the paper's, on a GPU
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import report

from dac.cluster.driver import drive
from dac.cluster.engines.local import LocalEngine, share_machine
from dac.cluster.study import read_study
from dac.experiments.plan import Job, make_plan

STUDY = """
tasks = ["{task}"]
algorithms = ["dac"]
seeds = "0:10"
members = {members}

[settings]
steps = {steps}
hidden = [{hidden}]
batch_size = {batch_size}
eval_every = {steps}
checkpoint_every = 0
alpha = [0.2, 0.5, 0.8]
beta = [0.1, 0.3]
"""


def jobs_of(options: argparse.Namespace, members: int, folder: Path) -> Sequence[Job]:
    """The populations of the study, with so many members each."""
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY.format(**vars(options), members=members))
    study = read_study(folder / "study.toml")
    return make_plan(study.cells, folder, [], at_most=study.at_most).jobs


def processor_seconds() -> float:
    """The processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(jobs: Sequence[Job], at_once: int) -> tuple[float, float, list[float]]:
    """Train populations, `at_once` at a time.

    Return the seconds by the clock and by the processor, and the agent-steps per second of each in training.
    """
    start, used = time.perf_counter(), processor_seconds()
    with share_machine(at_once):
        outcome = drive(jobs, LocalEngine(at_once))
    seconds, used = time.perf_counter() - start, processor_seconds() - used
    assert len(outcome.finished) == len(jobs), outcome
    summaries = [json.loads((job.directory / "summary.json").read_text()) for job in jobs]
    return seconds, used, [summary["agent_steps_per_second"] for summary in summaries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="maze")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--hidden", default="16,16")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--alone", type=int, default=8, help="how many members are trained alone")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="processes with one member at a time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone = jobs_of(options, 1, Path(folder) / "alone")
        packed = jobs_of(options, 60, Path(folder) / "packed")
        assert (len(alone), len(packed)) == (60, 1)
        half = options.alone // 2
        before, used_before, rates = train(alone[:half], options.at_once)
        whole, used, (rate,) = train(packed, 1)
        after, used_after, more = train(alone[half : options.alone], options.at_once)
    single = options.alone * options.steps / (before + after)
    single_training = statistics.fmean([*rates, *more]) * min(options.at_once, half)
    report(
        f"packing {options.task} dac x60",
        agent_steps_per_second=60 * options.steps / whole,
        one_process_per_member=single,
        ratio=60 * options.steps / whole / single,
        in_training=rate,
        one_process_per_member_in_training=single_training,
        ratio_in_training=rate / single_training,
        per_processor_second=60 * options.steps / used,
        one_process_per_member_per_processor_second=options.alone * options.steps / (used_before + used_after),
        ratio_per_processor_second=60 / options.alone * (used_before + used_after) / used,
        hidden=options.hidden,
        batch_size=options.batch_size,
        steps=options.steps,
        alone=options.alone,
        at_once=options.at_once,
    )


if __name__ == "__main__":
    main()
