"""What studies cost: measured seconds per million agent-steps, and the whole paper on so many GPUs by a simulation.

    python -m dac.cluster.capacity results --price 3.5

The first table is read from the summaries of finished runs, the second plans every experiment of the paper and plays
it through with the driver (`dac/cluster/simulation.py`). Where a task was not measured on the device, another one that
was stands for it: the same robot, or a heavier one. Algorithms that were not measured count as DAC, or as so much more
as their update is known to cost. So the plan errs on the expensive side.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from dac.cluster.simulation import Failures, SimulatedEngine, simulate
from dac.core.types import UsageError
from dac.experiments.estimate import WORK
from dac.experiments.paper import EXPERIMENTS
from dac.experiments.plan import Job, cells_of, find_runs, fits_into, make_plan

DEVICE, MEMORY = "NVIDIA H200", 139
"""The device of the published runs, and its memory in GiB."""
PRICE = 3.5
"""Dollars for an hour of one GPU: an assumption about renting one, to be replaced by one's own price."""
OURS = ("ablation-clip", "fast-start")
"""Experiments that are not in the paper."""
HEAVIER = {"Ant": "HumanoidStandup"}
"""Robots that were not measured, with a heavier one that stands for them."""
BENCHES = re.compile(r"(?P<task>\w+) (?P<algorithm>\w+) x(?P<members>\d+)")
FAILURES = Failures(hours_between=500, hours_between_preemptions=24, minutes_away=10)
"""What the last columns assume of the devices: a preemption a day, and a loss in three weeks."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """The speed of one population."""

    device: str
    task: str
    algorithm: str
    members: int
    envs: int
    seconds_per_million: float
    """Of agent-steps, everything included: start, compilation, evaluations, checkpoints."""
    source: str

    @property
    def iteration(self) -> float:
        """Seconds for one environment step of every member."""
        return self.seconds_per_million * 1e-6 * self.members


def read_measured(results: Path) -> list[Measured]:
    """Every finished run below a folder, and what `bench/robots.py` found of training alone."""
    found = []
    runs, _ = find_runs([results])
    for run in runs:
        if not run.finished:
            continue
        summary, training, members = run.summary, run.config.training, len(run.members)
        per_million = summary["seconds"] / (training.steps * members) * 1e6
        source = str(run.directory.relative_to(results))
        kind = summary["versions"].get("device", "?")
        found.append(Measured(kind, run.config.task, run.config.algorithm, members, training.envs, per_million, source))
    bench = results / "bench/h200.jsonl"
    for line in bench.read_text(encoding="utf-8").splitlines() if bench.exists() else []:
        row = json.loads(line)
        if (match := BENCHES.fullmatch(row["benchmark"])) and "agent_steps_per_second" in row and "envs" not in row:
            per_million, members = 1e6 / row["agent_steps_per_second"], int(match["members"])
            where = "bench/h200.jsonl"
            found.append(Measured(row["device"], match["task"], match["algorithm"], members, 1, per_million, where))
    return found


def robot_of(task: str) -> str:
    """What is simulated: a reward that is sparse or delayed costs nothing."""
    return task.removeprefix("Sparse").removeprefix("Delayed")


class Rates:
    """How long an iteration of a population takes on one kind of device, with one environment per member."""

    def __init__(self, measured: Sequence[Measured], device: str = DEVICE):
        self._known: dict[tuple[str, str], dict[int, list[float]]] = {}
        for one in measured:
            if one.device == device and one.envs == 1:
                sizes = self._known.setdefault((robot_of(one.task), one.algorithm), {})
                sizes.setdefault(one.members, []).append(one.iteration)

    def stands_for(self, task: str, algorithm: str) -> tuple[str, str, float]:
        """The robot and the algorithm that were measured in the place of these, and the factor between algorithms."""
        robot = robot_of(task)
        robot = robot if any(known == robot for known, _ in self._known) else HEAVIER.get(robot, robot)
        if (robot, algorithm) in self._known:
            return robot, algorithm, 1.0
        if (robot, "dac") not in self._known:
            raise UsageError(f"nothing like {task} was measured")
        return robot, "dac", max(1.0, WORK.get(algorithm, 1.0))

    def iteration(self, task: str, algorithm: str, members: int) -> float:
        """Seconds for one environment step of every member, between the sizes that were measured.

        A smaller population takes as long as the smallest, a larger one more in proportion.
        """
        robot, of, factor = self.stands_for(task, algorithm)
        sizes = {size: statistics.median(times) for size, times in sorted(self._known[robot, of].items())}
        below = [size for size in sizes if size <= members]
        above = [size for size in sizes if size >= members]
        if not below:
            return factor * sizes[above[0]]
        if not above:
            return factor * sizes[below[-1]] * members / below[-1]
        low, high = below[-1], above[0]
        share = (members - low) / (high - low) if high > low else 0.0
        return factor * (sizes[low] + share * (sizes[high] - sizes[low]))

    def rate(self, job: Job) -> float:
        """Agent-steps per second of a population."""
        members = len(job.config.members())
        return members / self.iteration(job.config.task, job.config.algorithm, members)


def plan_paper(rates: Rates, at_most: int | None = None, memory: int = MEMORY) -> list[Job]:
    """Every experiment of the paper as populations that fit into a device, the longest first."""
    cells = [cell for name, whole in EXPERIMENTS.items() if name not in OURS for cell in cells_of(whole)]
    plan = make_plan(cells, Path("capacity"), [], fits=fits_into(memory * 2**30), at_most=at_most)
    return sorted(plan.jobs, key=lambda job: -job.agent_steps / rates.rate(job))


@dataclasses.dataclass(frozen=True)
class Cost:
    """The paper on so many GPUs."""

    gpus: int
    at_most: int | None
    populations: int
    hours: float
    gpu_hours: float
    """Hours in which GPUs train; those that wait for the last one can be given back."""
    hours_with_failures: float
    gpu_hours_with_failures: float

    def dollars(self, price: float) -> float:
        return self.gpu_hours * price


def cost_of_paper(rates: Rates, gpus: int, at_most: int | None = None) -> Cost:
    """Simulate the paper on so many GPUs, without failures and with them."""
    jobs = plan_paper(rates, at_most)

    def play(failures: Failures | None) -> SimulatedEngine:
        engine, outcome = simulate(jobs, gpus, rates.rate, failures)
        assert len(outcome.finished) == len(jobs), outcome.failed
        return engine

    calm, rough = play(None), play(FAILURES)
    return Cost(gpus, at_most, len(jobs), calm.clock / 3600, calm.busy / 3600, rough.clock / 3600, rough.busy / 3600)


def rows_of_measured(measured: Sequence[Measured], price: float) -> list[Mapping[str, str]]:
    """One row for each task, device, algorithm, size and number of environments; the median where there are several."""
    groups: dict[tuple[str, str, str, int, int], list[float]] = {}
    for one in measured:
        key = (one.task, one.device, one.algorithm, one.envs, one.members)
        groups.setdefault(key, []).append(one.seconds_per_million)
    return [
        {
            "task": task,
            "device": device,
            "algorithm": algorithm,
            "envs": str(envs),
            "members": str(members),
            "s per million agent-steps": f"{statistics.median(found):,.0f}",
            "$ per million": f"{statistics.median(found) / 3600 * price:.3f}" if device == DEVICE else "",
        }
        for (task, device, algorithm, envs, members), found in sorted(groups.items())
    ]


def rows_of_costs(costs: Sequence[Cost], price: float) -> list[Mapping[str, str]]:
    return [
        {
            "GPUs": str(cost.gpus),
            "members at most": "what fits" if cost.at_most is None else str(cost.at_most),
            "populations": str(cost.populations),
            "hours": f"{cost.hours:,.0f}",
            "GPU-hours": f"{cost.gpu_hours:,.0f}",
            "dollars": f"{cost.dollars(price):,.0f}",
            "hours with failures": f"{cost.hours_with_failures:,.0f}",
            "GPU-hours with failures": f"{cost.gpu_hours_with_failures:,.0f}",
        }
        for cost in costs
    ]


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table as Markdown has it."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(row[name] for name in names) + " |" for row in rows)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, and what stands for what."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder of finished runs")
    parser.add_argument("--price", type=float, default=PRICE, help=f"dollars per GPU-hour (default: {PRICE:g})")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--members", type=int, nargs="*", default=[10], help="also with so many members at most")
    options = parser.parse_args(arguments)
    measured = read_measured(options.results)
    rates = Rates(measured)
    print(markdown(rows_of_measured(measured, options.price)))
    jobs = plan_paper(rates)
    members, steps = sum(len(job.serves) for job in jobs), sum(job.agent_steps for job in jobs) / 1e6
    print(f"\nThe paper: {members} members, {steps:,.0f} million agent-steps, {options.price:g} dollars per GPU-hour\n")
    sizes = [None, *options.members]
    costs = [cost_of_paper(rates, gpus, at_most) for at_most in sizes for gpus in options.gpus]
    print(markdown(rows_of_costs(costs, options.price)))
    pairs = sorted({(job.config.task, job.config.algorithm) for job in jobs})
    standing = [(pair, rates.stands_for(*pair)) for pair in pairs]
    print("\nNot measured on this device, and what stands for it:")
    for (task, algorithm), (robot, of, factor) in standing:
        if (robot_of(task), algorithm) != (robot, of):
            print(f"  {algorithm} on {task}: {of} on {robot}{f', x {factor:g}' if factor != 1 else ''}")


if __name__ == "__main__":
    main()
