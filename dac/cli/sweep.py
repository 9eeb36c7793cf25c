"""`dac sweep`: a study of many populations, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from dac.cli.engine_options import add_engine_options, choose_fits, repeat_engine_options
from dac.cli.plan_bar import PlanBar, describe
from dac.cli.reproduce import print_plan
from dac.cluster.driver import Follower, Outcome, drive
from dac.cluster.engines import make_engine, read_options
from dac.cluster.engines.local import share_machine
from dac.cluster.study import read_study
from dac.core.errors import UsageError
from dac.experiments.budget import Queue
from dac.experiments.estimate import estimate
from dac.experiments.plan import Plan, find_runs, make_plan
from dac.rundir.files import make_directory, write_atomically
from dac.rundir.lock import Lock

STUDY = "study.toml"
"""The copy of the study file in the study's folder."""


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.description = (
        "Train a study: tasks x algorithms x seeds x grids of settings, packed into as few populations as fit into "
        "memory, each in a process of its own. Stop it at any time: the same command goes on."
    )
    command.epilog = "example: dac sweep study.toml --dry-run"
    command.add_argument("file", type=Path, metavar="FILE", help="a study file; docs/studies.md says what it holds")
    add_engine_options(command)
    command.add_argument(
        "--jobs", type=int, metavar="N", help="populations at a time (default: one, or one for each GPU)"
    )
    command.add_argument("--dry-run", action="store_true", help="print the plan and an estimate of the time only")
    command.add_argument("--out", type=Path, metavar="DIR", help="the study's folder (default: runs/NAME-OF-THE-FILE)")
    command.add_argument("--quiet", action="store_true", help="show no progress")


def run(options: argparse.Namespace) -> int:
    study = read_study(options.file)
    store = Path("runs") / options.file.stem if options.out is None else options.out
    if store.exists() and not store.is_dir():
        raise UsageError(f"{store} is not a folder; give another `out=`")
    fits = choose_fits(options.engine, options.memory)
    settings = read_options(options.option)
    with contextlib.closing(make_engine(options.engine, options.jobs, options.address, settings)) as engine:
        here = options.engine == "local"
        at_once = engine.room() if here else max(1, min(engine.room(), 1000))
        with share_machine(at_once) if here else contextlib.nullcontext():
            runs, problems = find_runs([store] if store.is_dir() else [])
            for problem in problems:
                print(f"not counted: {problem}", file=sys.stderr)
            plan = make_plan(study.cells, store, runs, fits=fits, at_most=study.at_most)
            seconds, basis = estimate(plan.jobs, runs)
            if not plan.jobs:
                print(f"{plan.found} of {plan.wanted} members are finished: the study is complete in {store}")
                return 0
            if at_once > 1:  # the longest first, so that none is left alone at the end
                order = sorted(range(len(seconds)), key=lambda n: -seconds[n])
                plan = Plan(tuple(plan.jobs[n] for n in order), plan.found, plan.wanted)
                seconds = [seconds[n] for n in order]
            if options.dry_run or not options.quiet:
                print_plan(plan, seconds, basis, None, at_once)
            if options.dry_run:
                return 0
            make_directory(store)
            with Lock(store):
                write_atomically(store / STUDY, study.text.encode())
                with PlanBar(plan.jobs, seconds, options.quiet, at_once) as bar:
                    outcome = drive(
                        plan.jobs,
                        engine,
                        queue=Queue(len(plan.jobs)),
                        follower=Follower(plan.jobs, bar.part),
                        say=bar.say,
                        describe=bar.label,
                        command=_again(options),
                    )
    return _report(plan, outcome, store)


def _report(plan: Plan, outcome: Outcome, store: Path) -> int:
    """Say how the study ended, and return the exit code: 1 where populations failed."""
    done = plan.found + sum(len(plan.jobs[number].serves) for number in outcome.finished)
    print(f"{done} of {plan.wanted} members are finished in {store}")
    for number, why in outcome.failed.items():
        print(f"failed: {describe(plan.jobs[number])} in {plan.jobs[number].directory}: {why}", file=sys.stderr)
    return 1 if outcome.failed else 0


def _again(options: argparse.Namespace) -> str:
    """The command that goes on where this one ends."""
    command = shlex.join(["dac", "sweep", str(options.file)]) + repeat_engine_options(options)
    command += f" --jobs {options.jobs}" if options.jobs is not None else ""
    return command + (f" --out {shlex.quote(str(options.out))}" if options.out is not None else "")
