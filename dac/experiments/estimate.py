"""Estimates how long a plan takes: from runs timed on such a machine, or roughly from its matrix product."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dac.core.types import UsageError
from dac.experiments.plan import Job
from dac.rundir.reading import RunDirectory

# one update of DAC with 2 x 256 units and batches of 256; on 2 cores and on one H200 an update reaches about this share
# of the machine's own matrix product (results/bench/)
UPDATE_FLOPS, EFFICIENCY = 0.9e9, {"cpu": 0.7, "gpu": 0.5}
WORK = {"dac": 1.0, "sac": 0.65, "sac-div": 1.0, "rnd": 0.9, "maxent-state": 0.8, "td3": 0.6, "sql": 2.0}
"""Cost of an update of each algorithm, in updates of DAC; on-policy algorithms need less than a tenth per step."""
LATENCY = {"cpu": 0.3e-3, "gpu": 0.6e-3}
"""Seconds that an update takes however small the networks are: for each member on a CPU, for all of them on a GPU."""
HOST_STEP = {"cpu": 50e-6, "gpu": 1.2e-3}
"""Seconds to simulate a robot and hand its transition over: for each member on a CPU, for all of them on a GPU."""
PROGRAM = 25.0
"""Seconds to compile a population's programs."""


def estimate(jobs: Sequence[Job], runs: Sequence[RunDirectory]) -> tuple[list[float], str]:
    """Estimate the seconds that each job takes, and say in words where the estimate comes from."""
    known, flops = _timed(runs), 0.0
    seconds, guessed = [], 0
    for job in jobs:
        members, timed = len(job.config.members()), known.get(job.config.work())
        if timed:  # of the population nearest in size
            rate = min(timed, key=lambda found: abs(math.log(found[0] / members)))[1]
        else:
            flops = flops or matrix_flops()
            rate, guessed = _guess(job, flops), guessed + 1
        seconds.append(PROGRAM + job.agent_steps / rate)
    if not guessed:
        return seconds, "from runs timed on this kind of machine"
    measured = len(jobs) - guessed
    also = f", {measured} of {len(jobs)} from runs timed on this kind of machine" if measured else ""
    return seconds, f"a rough guess from this machine's matrix product, {flops / 1e9:,.0f} GFLOP/s{also}"


def _timed(runs: Sequence[RunDirectory]) -> dict[str, list[tuple[int, float]]]:
    """Look up how fast runs on this kind of device were: (members, agent-steps per second) by kind of work."""
    kind = jax.devices()[0].device_kind
    known: dict[str, list[tuple[int, float]]] = {}
    for run in runs:
        try:
            summary = run.summary
        except UsageError:
            continue
        if summary["agent_steps_per_second"] and summary["versions"].get("device") == kind:
            known.setdefault(run.config.work(), []).append((len(run.members), summary["agent_steps_per_second"]))
    return known


def _guess(job: Job, flops: float) -> float:
    """Guess the agent-steps per second of a job from the speed of the machine's matrix product."""
    config, platform = job.config, "cpu" if jax.devices()[0].platform == "cpu" else "gpu"
    members, envs = len(config.members()), config.training.envs
    sizes = [*config.hyper["hidden"], *config.hyper["hidden"][-1:]]
    size = sum(a * b for a, b in itertools.pairwise(sizes)) / (2 * 256**2)
    batch = config.hyper.get("batch_size", 256) / 256
    updates = config.training.update_ratio * envs if not config.schedule().rollout else 0.1 * envs
    work = WORK.get(config.algorithm, 1.0) * UPDATE_FLOPS * size * batch * updates * members
    iteration = work / (flops * EFFICIENCY[platform])
    iteration = iteration + LATENCY["cpu"] * members * updates if platform == "cpu" else max(iteration, LATENCY["gpu"])
    if job.config.task != "maze":
        iteration += HOST_STEP[platform] * (members * envs if platform == "cpu" else 1)
    return members * envs / iteration


def matrix_flops(size: int = 1024) -> float:
    """Measure the floating-point operations per second of a matrix product, and take the best of five."""
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    product(matrix).block_until_ready()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        product(matrix).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
