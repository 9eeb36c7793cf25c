"""Steps of the control suite per second of one core, ours beside dm_control's own stepping, in turns in one process.

PYTHONPATH=. .peers-venv/bin/python bench/dmc.py [--tasks cartpole-swingup,...] [--rounds 3] [--envs 30]

dm_control needs the MuJoCo of `make test-peers`, whose environment has both. Each round steps dm_control's environment
and then ours, in one thread, for about as long, and then the simulations of ours alone, without observations, rewards
and episodes: no vector of environments on the same MuJoCo can be faster than these. Rates are of processor time, so
that other work on the machine counts less. `actions` are random, episodes of both end and begin anew. One line of JSON
per task.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import mujoco
import numpy as np
from dm_control import suite

from dac.envs.dmc.envs import make_dmc
from dac.envs.dmc.names import ENTRIES

BENCHMARK = ",".join(name for name, entry in ENTRIES.items() if entry.benchmark) + ",quadruped-run,dog-run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=BENCHMARK)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5, help="processor time of one measurement")
    options = parser.parse_args()
    for name in options.tasks.split(","):
        ways = step_theirs(name), *step_ours(name, options.envs)
        rates = [[rate(way, options.seconds) for way in ways] for _ in range(options.rounds)]
        line = {
            "bench": "dmc",
            "task": name,
            "envs": options.envs,
            "dm_control_per_core_second": round(statistics.median(theirs for theirs, _, _ in rates)),
            "ours_per_core_second": round(statistics.median(ours for _, ours, _ in rates)),
            "ratio": round(statistics.median(ours / theirs for theirs, ours, _ in rates), 2),
            "ratios": [round(ours / theirs, 2) for theirs, ours, _ in rates],
            "simulation_alone": round(statistics.median(alone / theirs for theirs, _, alone in rates), 2),
            "mujoco": mujoco.__version__,
        }
        print(json.dumps(line), flush=True)


def step_theirs(name: str) -> Callable[[], int]:
    """Return a function that makes 20 steps with dm_control and returns how many these are."""
    env = suite.load(*name.split("-"), task_kwargs={"random": 0})
    spec, random = env.action_spec(), np.random.default_rng(0)
    actions = random.uniform(spec.minimum, spec.maximum, (20, *spec.shape))
    env.reset()

    def step() -> int:
        for action in actions:
            env.step(action)
        return len(actions)

    return step


def step_ours(name: str, num: int) -> tuple[Callable[[], int], Callable[[], int]]:
    """Return functions that make 20 steps with all of ours and return how many these are together.

    The second one steps the simulations alone.
    """
    envs = make_dmc(name, num, threads=1)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, num, envs.spec.action_size)).astype(np.float32)
    envs.reset(range(num))

    def step() -> int:
        for action in actions:
            envs.step(action)
        return len(actions) * num

    def simulate() -> int:
        for action in actions:
            envs.world["ctrl"][:] = envs.bounds.stretch(action)
            envs._batch.step(nstep=envs.domain.substeps, stage=envs._stage)
        return len(actions) * num

    return step, simulate


def rate(step: Callable[[], int], seconds: float) -> float:
    """Return steps per second of processor time."""
    step()
    start, steps = time.process_time(), 0
    while time.process_time() - start < seconds:
        steps += step()
    return steps / (time.process_time() - start)


if __name__ == "__main__":
    main()
