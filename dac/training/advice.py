"""What a run says about itself where a setting, or more room, would serve it better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dac.config import RunConfig
from dac.envs.host import usable_cores
from dac.rundir.checkpoints import disk_bytes, free_bytes
from dac.tasks import find_task
from dac.training.evaluate import Evaluation as Episodes
from dac.training.loop import AbstractLoop
from dac.training.memory import replay_bytes
from dac.training.speedometer import Speedometer

SLOW_AFTER = 5.0
"""Seconds of training after which it is judged whether the environments take most of the time."""


def describe_cut(config: RunConfig, loop: AbstractLoop, results: Sequence[Episodes]) -> str | None:
    """A line where episodes end though the environment would go on."""
    cut = loop.cut_at
    if cut is None or not any((episodes.lengths >= cut).any() for episodes in results):
        return None
    return (
        f"{config.task} has no time limit below {cut:,} steps, after which evaluations cut an episode "
        "(the setting eval_limit)"
    )


def describe_slow_envs(config: RunConfig, loop: AbstractLoop, clock: Speedometer) -> str | None:
    """A line where most of the time goes into stepping environments in turn and worker processes would help."""
    if clock.seconds < SLOW_AFTER or clock.stepping < clock.seconds / 2:
        return None
    count = min(len(loop.members) * loop.schedule.envs, usable_cores())
    if count <= 1 or config.training.workers or not find_task(config.task).takes_workers:
        return None
    return (
        f"{clock.stepping / clock.seconds:.0%} of the time goes into stepping the environments one after the "
        f"other; the setting workers spreads them over processes (--workers {count})"
    )


def describe_disk(config: RunConfig, loop: AbstractLoop, directory: Path) -> tuple[str, bool]:
    """A line on the room that the checkpoints need, and whether there is too little."""
    buffer = replay_bytes(len(loop.members), loop.schedule, loop.spec)
    need, free = disk_bytes(loop.snapshot(), buffer), free_bytes(directory)
    more = "; THAT IS NOT ENOUGH" if need > free else ""
    line = (
        f"checkpoints: every {config.training.checkpoint_every:,} steps, up to {need / 2**30:.2f} GiB "
        f"of the {free / 2**30:.1f} GiB free in {directory}{more}"
    )
    return line, need > free
