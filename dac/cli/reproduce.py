"""`dac reproduce`: the experiments of the paper."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dac.cli.engine_options import add_engine_options, choose_fits, repeat_engine_options
from dac.cli.plan_bar import PlanBar, describe
from dac.cli.reproduce_status import print_status
from dac.cluster.driver import train
from dac.cluster.engines import check_engine, make_engine, read_options
from dac.cluster.engines.local import share_machine
from dac.config.text import parse_seeds
from dac.core.errors import UsageError
from dac.experiments.budget import Budget, Queue, order_by_value, what_fits
from dac.experiments.estimate import estimate
from dac.experiments.paper import EXPERIMENTS, Experiment, find_experiment
from dac.experiments.plan import Plan, cells_of
from dac.experiments.reproduce import Reproduction, steps_made
from dac.experiments.text import duration, short


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = (
        "Run what is missing of an experiment of the paper, then write its figures, table and report. "
        "Stop it at any time: the same command goes on."
    )
    command.epilog = "example: dac reproduce fig2-sparse/SparseHopper --dry-run"
    command.add_argument("names", nargs="*", metavar="NAME", help="see --list; NAME/TASK for one task, or `all`")
    command.add_argument("--list", action="store_true", help="name every experiment")
    instead = command.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print the plan and an estimate of the time only")
    instead.add_argument("--draw", action="store_true", help="run nothing: figures, table and report of what there is")
    instead.add_argument(
        "--status", action="store_true", help="run nothing: how far each experiment is (default: all of them)"
    )
    command.add_argument("--scale", type=float, default=1.0, metavar="X", help="a try: this share of steps and seeds")
    command.add_argument("--seeds", metavar="SEEDS", help="other seeds than the experiment's: 7, 0:30 or 1,5,9")
    command.add_argument(
        "--steps", type=int, metavar="N", help="environment steps per member, if not the experiment's own"
    )
    command.add_argument(
        "--budget", type=float, metavar="MINUTES", help="do what fits into this time, best value first, then stop"
    )
    command.add_argument(
        "--envs", type=int, metavar="N", help="environments per member: faster on a GPU, where the paper has one"
    )
    command.add_argument("--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper")
    command.add_argument(
        "--from",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        dest="sources",
        metavar="DIR",
        help="count finished runs in here too",
    )
    command.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="train N populations at a time, sharing cores and GPU (default: 1, or what the engine has room for)",
    )
    add_engine_options(command)
    command.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    if options.list:
        list_experiments()
        return 0
    if not options.names and not options.status:
        raise UsageError(f"an experiment is needed (accepted: {', '.join(EXPERIMENTS)}, each also with /TASK, or all)")
    if options.budget is not None and (options.draw or options.status):
        raise UsageError("--budget is for training: it does not go with --draw or --status")
    if options.steps is not None and options.scale != 1:
        raise UsageError("--steps and --scale both say how many steps there are: give one of them")
    names = list(EXPERIMENTS) if options.names in ([], ["all"]) else options.names
    experiments = [find_experiment(name) for name in dict.fromkeys(names)]
    if options.steps is not None:
        experiments = [dataclasses.replace(experiment, steps=options.steps) for experiment in experiments]
    seeds = None if options.seeds is None else parse_seeds(options.seeds)
    if options.status:
        work = Reproduction(
            experiments, options.out, options.sources, scale=options.scale, envs=options.envs, seeds=seeds
        )
        print_status(work)
        return 0
    reports = reproduce(
        experiments,
        options.out,
        options.sources,
        scale=options.scale,
        envs=options.envs,
        seeds=seeds,
        dry_run=options.dry_run,
        draw=options.draw,
        jobs=options.jobs,
        quiet=options.quiet,
        budget=options.budget,
        command=_again(options),
        engine=options.engine,
        address=options.address,
        memory=options.memory,
        engine_options=read_options(options.option),
    )
    for path in reports:
        print(path)
    return 0


def _again(options: argparse.Namespace) -> str:
    """The command that goes on where this one ends, without its budget."""
    command = shlex.join(["dac", "reproduce", *options.names, "--out", str(options.out)])
    command += f" --scale {options.scale:g}" if options.scale != 1 else ""
    command += f" --seeds {shlex.quote(options.seeds)}" if options.seeds is not None else ""
    command += f" --steps {options.steps}" if options.steps is not None else ""
    command += f" --envs {options.envs}" if options.envs is not None else ""
    command += f" --jobs {options.jobs}" if options.jobs is not None else ""
    command += repeat_engine_options(options)
    command += " --from " + shlex.join(map(str, options.sources)) if options.sources else ""
    return command + (" --draw" if options.draw else "")


def list_experiments() -> None:
    """Print every experiment with its tasks, members and steps."""
    table = Table(box=None, pad_edge=False)
    for column in ("experiment", "tasks (NAME/TASK for one)", "members", "agent-steps"):
        table.add_column(column, justify="right" if column in ("members", "agent-steps") else "left")
    for experiment in EXPERIMENTS.values():
        cells = cells_of(experiment)
        members = sum(len(cell.config.seeds) for cell in cells)
        steps = sum(len(cell.config.seeds) * cell.config.training.steps for cell in cells)
        tasks = "\n".join(task for task, _ in experiment.panels)
        table.add_row(experiment.name, tasks, str(members), short(steps))
    Console().print(table)


def reproduce(
    experiments: Sequence[Experiment],
    store: Path,
    sources: Sequence[Path] = (),
    *,
    scale: float = 1.0,
    envs: int | None = None,
    seeds: Sequence[int] | None = None,
    dry_run: bool = False,
    draw: bool = False,
    jobs: int | None = None,
    quiet: bool = False,
    budget: float | None = None,
    command: str = "",
    engine: str = "local",
    address: str | None = None,
    memory: float | None = None,
    engine_options: Mapping[str, str] | None = None,
) -> list[Path]:
    """Show the plan, train what is missing with bars, and write every artefact; returns the reports.

    `draw` trains nothing, `dry_run` does nothing but show the plan. `jobs` populations train at a time (one
    here, or what another engine has room for), for `budget` minutes at most.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, not {jobs}")
    at_once = 1 if jobs is None else jobs
    check_engine(engine, address, engine_options)
    fits = choose_fits(engine, memory)
    limit = None if budget is None else Budget(budget)
    with share_machine(at_once):  # also while it plans, since that asks for the memory there is
        work = Reproduction(experiments, store, sources, scale=scale, envs=envs, seeds=seeds)
        for problem in work.problems:
            print(f"not counted: {problem}", file=sys.stderr)
        if draw:
            return work.draw(command)
        plan = work.plan(fits)
        seconds, basis = estimate(plan.jobs, work.runs)
        if limit is not None:
            order = order_by_value(work.needs(plan), seconds, limit.seconds, at_once)
            plan = dataclasses.replace(plan, jobs=tuple(plan.jobs[number] for number in order))
            seconds = [seconds[number] for number in order]
        if dry_run or not quiet:
            print_plan(plan, seconds, basis, limit, at_once)
        if dry_run:
            return []
        elsewhere = None
        if engine != "local" and plan.jobs:
            elsewhere = make_engine(engine, jobs, address, engine_options)
            at_once = max(1, elsewhere.room() if jobs is None else jobs)
        with PlanBar(plan.jobs, seconds, quiet, at_once, limit) as bar:
            again = command if limit is None or not command else f"{command} --budget {budget:g}"
            train(plan.jobs, bar.part, at_once, again, Queue(len(plan.jobs), seconds, limit), elsewhere)
    reports = work.draw(command)
    if limit is not None and plan.jobs:
        print(describe_end(plan, seconds, limit, command))
    return reports


def print_plan(plan: Plan, seconds: Sequence[float], basis: str, limit: Budget | None = None, at_once: int = 1) -> None:
    """Print each population, its size and time; then the whole, and what fits into the budget."""
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width: no line is broken
        console.width = 400
    fits = [] if limit is None else what_fits(range(len(seconds)), seconds, limit.seconds, at_once)
    if plan.jobs:
        table = Table(box=None, pad_edge=False)
        for column in ("population", "members", "steps", "agent-steps", "about", *(["fits"] if limit else [])):
            table.add_column(column, justify="left" if column == "population" else "right", min_width=5)
        for number, (job, time_needed) in enumerate(zip(plan.jobs, seconds, strict=True)):
            steps = short(job.config.training.steps)
            row = [
                describe(job),
                str(len(job.config.members())),
                f"{short(job.done)} to {steps}" if job.done else steps,
                short(job.agent_steps),
                duration(time_needed),
            ]
            table.add_row(*row, *(["yes" if number in fits else "no"] if limit else []))
        console.print(table)
    print(f"{plan.found} of {plan.wanted} members are finished", end="; " if plan.jobs else "\n")
    if plan.jobs:
        print(f"{short(plan.agent_steps)} agent-steps to go, about {duration(sum(seconds))} ({basis})")
    if plan.jobs and limit is not None:
        print(f"{len(fits)} of {len(plan.jobs)} populations fit into the budget of {duration(limit.seconds)}")


def describe_end(plan: Plan, seconds: Sequence[float], limit: Budget, command: str) -> str:
    """What was done within a budget, what is left, and the command that goes on."""
    made = [steps_made(job) for job in plan.jobs]
    whole = [job.config.training.steps for job in plan.jobs]
    left = [number for number, (so_far, wanted) in enumerate(zip(made, whole, strict=True)) if so_far < wanted]
    done, count = len(plan.jobs) - len(left), len(plan.jobs)
    if not left:
        return f"all {count} populations are done within the budget of {duration(limit.seconds)}"
    begun = [number for number in left if made[number] > plan.jobs[number].done]
    parts = [f"{done} of {count} populations are done"]
    parts += [f"{describe(plan.jobs[n])} is saved at {made[n]:,} of {whole[n]:,} steps" for n in begun]
    parts += [f"{len(left) - len(begun)} not begun"] if len(left) > len(begun) else []
    minutes = limit.seconds / 60
    if not done and not begun:
        shortest = min(seconds[number] for number in left)
        minutes = max(minutes, math.ceil(shortest / 60))
        parts[0] = f"no population fits, the shortest takes about {duration(shortest)}"
    text = f"budget of {duration(limit.seconds)}: {', '.join(parts)}"
    return f"{text}; go on with: {command} --budget {minutes:g}" if command else text
