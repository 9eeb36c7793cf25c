"""How far each experiment is: which members are complete, which are begun, and what the rest would take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dac.experiments.collect import Shelf, Standing
from dac.experiments.estimate import estimate
from dac.experiments.overview import State
from dac.experiments.paper import Experiment
from dac.experiments.plan import Plan, make_plan
from dac.experiments.reproduce import Reproduction


@dataclasses.dataclass(frozen=True)
class Row:
    """Methods on one task of an experiment that are equally far."""

    experiment: str
    task: str
    methods: tuple[str, ...]
    among: int
    """How many methods the experiment has on this task."""
    seeds: int
    """Members that each method is to have."""
    complete: int
    """Members of each method that have all their steps."""
    partial: tuple[int, ...]
    """Environment steps of the members of each method that are begun."""
    steps: int
    """Environment steps that each member is to have."""
    envs: tuple[int, ...]
    """Environments per member, where it is another number than was asked for; else empty."""
    agent_steps: int
    """Agent-steps that are left."""
    seconds: float
    """The time that they are estimated to take."""

    @property
    def missing(self) -> int:
        """Members of each method that are not begun."""
        return self.seeds - self.complete - len(self.partial)

    @property
    def state(self) -> State:
        if self.complete == self.seeds:
            return "complete"
        return "partial" if self.complete or self.partial else "missing"


@dataclasses.dataclass(frozen=True)
class Status:
    """The state of some experiments."""

    rows: tuple[Row, ...]
    agent_steps: int
    """Agent-steps that are left in all: what several experiments share counts once."""
    seconds: float
    """The time that they are estimated to take, one population after the other."""
    basis: str
    """Where the estimates of time come from."""


def find_status(work: Reproduction) -> Status:
    """Compare what the experiments ask for with the runs there are.

    Members count as they do in reports: a run with another number of environments per member stands for one with the
    number asked for.
    """
    shelf = Shelf(work.runs)
    groups: list[tuple[Experiment, list[Standing]]] = []
    for experiment, cells in zip(work.experiments, work.cells, strict=True):
        alike: dict[tuple, list[Standing]] = {}
        for standing in shelf.stand(cells):
            key = standing.cell.task, standing.cell.config.seeds, tuple(standing.done.items()), standing.envs
            alike.setdefault(key, []).append(standing)
        groups += [(experiment, group) for group in alike.values()]
    plans = [_plan(work, group) for _, group in groups]
    whole = _plan(work, [standing for _, group in groups for standing in group])
    seconds, basis = estimate([job for plan in [*plans, whole] for job in plan.jobs], work.runs)
    times = iter(seconds)
    rows = [
        _row(experiment, group, plan, sum(next(times) for _ in plan.jobs))
        for (experiment, group), plan in zip(groups, plans, strict=True)
    ]
    return Status(tuple(rows), whole.agent_steps, sum(times), basis)


def _plan(work: Reproduction, standings: Sequence[Standing]) -> Plan:
    """The populations that complete some methods; whether they fit into this machine's memory is not asked."""
    done, left = set[str](), set[str]()
    for standing in standings:
        for name, single in standing.cell.members().items():
            (done if single.seeds[0] in standing.complete else left).add(name)
    cells = [standing.cell for standing in standings]
    # one that is complete for a short experiment may be too short for another
    return make_plan(cells, work.store, work.runs, left_out=done - left, fits=None)


def _row(experiment: Experiment, group: Sequence[Standing], plan: Plan, seconds: float) -> Row:
    first = group[0]
    training, complete = first.cell.config.training, first.complete
    return Row(
        experiment=experiment.name.partition("/")[0],
        task=first.cell.task,
        methods=tuple(standing.cell.method.name for standing in group),
        among=len(dict(experiment.panels)[first.cell.task]),
        seeds=len(first.cell.config.seeds),
        complete=len(complete),
        partial=tuple(steps for seed, steps in first.done.items() if seed not in complete),
        steps=training.steps,
        envs=first.envs if first.envs != (training.envs,) else (),
        agent_steps=plan.agent_steps,
        seconds=seconds,
    )
