"""`dac tune`: search for good settings."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dac.algorithms import ALGORITHMS
from dac.cli.plan_bar import PlanBar
from dac.cli.train import add_settings
from dac.cluster.tuning.folder import (
    OBJECTIVES,
    POPULATIONS,
    SETTINGS,
    Population,
    Tuning,
    name_of,
    read_populations,
    write_settings,
)
from dac.cluster.tuning.results import BEST, ranked, write_results
from dac.cluster.tuning.sampling import SAMPLERS
from dac.cluster.tuning.space import FORM, read_space
from dac.cluster.tuning.storage import (
    close_storage,
    dashboard_command,
    open_storage,
    open_study,
    storage_text,
    without_password,
)
from dac.cluster.tuning.tuner import Tuner
from dac.config import parse_text, resolve, with_steps
from dac.config.text import parse_seeds, whole_number
from dac.core.types import UsageError
from dac.experiments.estimate import PROGRAM, estimate
from dac.experiments.plan import Job
from dac.experiments.text import duration, short
from dac.training.compilation import enable_compilation_cache
from dac.training.signals import Interrupted
from dac.training.watchers import AbstractWatcher

AT_ONCE = 8
"""Trials in one population, unless slots are given."""


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the options; beside them stand the settings of the algorithm that is asked for."""
    command.description = (
        "Search for good settings with Optuna. Trials are trained together as populations, and successive halving "
        "keeps the best ones of each rung. Stop it at any time: the same command goes on."
    )
    command.epilog = "example: dac tune maze --objective visited --trials 32 --seeds-per-trial 2"
    command.add_argument("task", metavar="TASK", help="see `dac list tasks`")
    command.add_argument("--algorithm", choices=list(ALGORITHMS), default="dac", help="what is tuned")
    command.add_argument(
        "--trials",
        type=whole_number,
        default=32,
        metavar="N",
        help="settings to try (default: 32)",
    )
    command.add_argument(
        "--seeds-per-trial",
        type=whole_number,
        default=3,
        metavar="N",
        help="members of a trial, with the seeds 0 to N - 1 (default: 3)",
    )
    command.add_argument(
        "--slots",
        type=whole_number,
        metavar="N",
        help=f"members of a population (default: those of {AT_ONCE} trials)",
    )
    command.add_argument(
        "--eta",
        type=whole_number,
        default=3,
        metavar="N",
        help="one of so many trials goes on to the next rung, which is so many times as long (default: 3)",
    )
    command.add_argument(
        "--space",
        action="append",
        default=[],
        metavar="X",
        help=f"a setting and its range, NAME={FORM}, or a file FILE.toml with a table [space]; may be repeated",
    )
    command.add_argument("--objective", choices=OBJECTIVES, default="return", help="what is to be large")
    command.add_argument(
        "--last",
        type=whole_number,
        default=3,
        metavar="N",
        help="evaluations at a rung's end that count (default: 3)",
    )
    command.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="what proposes settings")
    command.add_argument(
        "--sampler-seed", type=whole_number, default=0, metavar="N", help="seed of what proposes settings (default: 0)"
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="the study's folder (default: runs/tune-TASK-ALGORITHM)"
    )
    command.add_argument(
        "--storage",
        metavar="X",
        help="where Optuna keeps the trials: postgresql://USER@HOST/NAME, sqlite:///FILE, or the path of a journal, "
        "for several machines (default: study.db in the folder)",
    )
    command.add_argument("--study", metavar="NAME", help="name of the study in the storage (default: TASK-ALGORITHM)")
    command.add_argument("--dry-run", action="store_true", help="print the plan and an estimate of the time only")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    add_settings(command, _algorithm_in(arguments), sweep=False)


def _algorithm_in(arguments: Sequence[str]) -> str:
    """Return the algorithm named on the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--algorithm", default="dac")
    with contextlib.suppress(argparse.ArgumentError, SystemExit):  # what is wrong is said by the real parser
        found, _ = parser.parse_known_args(list(arguments))
        return found.algorithm if found.algorithm in ALGORITHMS else "dac"
    return "dac"


def run(options: argparse.Namespace) -> int:
    tuning, out, storage = read_options(options)
    if options.dry_run:
        print_plan(tuning, *_estimate(_jobs(tuning, out)))
        return 0
    new = write_settings(out, tuning)  # first, so that a folder with a storage is always known as a study's
    try:
        opened = open_storage(storage)
    except UsageError:
        if new:  # another storage may be given the next time
            (out / SETTINGS).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                out.rmdir()
        raise
    try:
        study = open_study(opened, tuning.study)
        train(Tuner(out, tuning, opened, study), quiet=options.quiet)
        trials = study.get_trials(deepcopy=False)
    finally:
        close_storage(opened)
    files = write_results(out, tuning, trials, read_populations(out))
    print_end(tuning, trials, files, out, storage)
    return 0


def train(tuner: Tuner, *, quiet: bool) -> None:
    """Show the plan, and work until the study is at its end; interrupted, say that the same command goes on."""
    enable_compilation_cache()
    tuning, out = tuner.tuning, tuner.directory
    jobs = _jobs(tuning, out)
    populations = read_populations(out)
    seconds, basis = _estimate(jobs)
    if not quiet:
        print_plan(tuning, seconds, basis)
        if populations:
            done = sum(_steps_made(tuning, p, populations) == p.step for p in populations)
            print(f"goes on in {out}: {done} of {len(jobs)} populations are trained")
    with PlanBar(jobs, seconds, quiet) as bar:

        def watch(population: Population) -> AbstractWatcher:
            now = read_populations(out)  # others may have trained some of them
            for other in now:
                bar.advance(_place(tuning, other), _steps_made(tuning, other, now), None)
            return bar.part(_place(tuning, population))

        try:
            tuner.run(watch, (lambda text: None) if quiet else bar.say)
        except KeyboardInterrupt as interruption:
            said = str(interruption).split(";")[0] or "interrupted"
            if isinstance(interruption, Interrupted):
                raise Interrupted(f"{said}; the same command goes on", interruption.exit_code - 128) from None
            raise KeyboardInterrupt(f"{said}; the same command goes on") from None


def read_options(options: argparse.Namespace) -> tuple[Tuning, Path, str]:
    """The study that is asked for, its folder and its storage; refuses what cannot be before anything is made."""
    for name, low in (("trials", 1), ("seeds_per_trial", 1), ("eta", 2), ("last", 1), ("sampler_seed", 0)):
        if getattr(options, name) < low:
            raise UsageError(f"{name} must be at least {low}, not {getattr(options, name)}")
    algorithm, seeds = options.algorithm, options.seeds_per_trial
    texts = {name[4:]: value for name, value in vars(options).items() if name.startswith("set_") and value is not None}
    known = algorithm in ALGORITHMS
    settings = {name: parse_text(name, text, algorithm) for name, text in texts.items()} if known else {}
    config = resolve(algorithm, options.task, parse_seeds(range(seeds)), settings)
    lists = config.varied()
    if lists:
        raise UsageError(f"{lists[0]} is a list; fix it at one number, or tune it with `space={lists[0]}={FORM}`")
    if config.training.combine != "grid":
        raise UsageError("`combine=zip` is how populations of trials are made; leave it out")
    if not config.training.checkpoint_every:
        raise UsageError("trials go on from checkpoints, so `checkpoint_every=0` is not possible")
    if config.training.on_nan == "stop":
        raise UsageError("`on_nan=stop` would end all trials for one; leave it out, and members that break are frozen")
    slots = options.slots if options.slots is not None else seeds * min(AT_ONCE, options.trials)
    if slots < seeds or slots % seeds:
        raise UsageError(f"slots must be a multiple of the {seeds} seeds per trial, not {slots}")
    name = f"{options.task.replace(':', '-').replace('/', '-')}-{algorithm}"
    out = options.out or Path("runs") / f"tune-{name}"
    storage = storage_text(options.storage, out)
    tuning = Tuning(
        config,
        read_space(options.space, config, [*settings]),
        options.trials,
        slots // seeds,
        options.eta,
        options.last,
        options.objective,
        options.sampler,
        options.sampler_seed,
        options.study or name,
        "the folder" if options.storage is None else without_password(storage),
    )
    tuning.ladder  # noqa: B018 - refuses rungs that do not fit
    return tuning, out, storage


def _jobs(tuning: Tuning, out: Path) -> list[Job]:
    """Every population of the study, in the order in which `_place` numbers them."""
    ladder, given = tuning.ladder, tuning.config
    members = range(tuning.at_once * len(given.seeds))
    config = resolve(given.algorithm, given.task, members, {**given.hyper, **dataclasses.asdict(given.training)})
    jobs = []
    for rung, (count, step) in enumerate(zip(ladder.counts, ladder.steps, strict=True)):
        label = f"rung {rung} of 0 to {ladder.last}, {tuning.at_once} trials of {given.algorithm}"
        parts = [out / POPULATIONS / name_of(rung, number) for number in range(count)]
        jobs += [Job(with_steps(config, step), part, (label,), ladder.begin(rung)) for part in parts]
    return jobs


def _place(tuning: Tuning, population: Population) -> int:
    return sum(tuning.ladder.counts[: population.rung]) + population.number


def _steps_made(tuning: Tuning, population: Population, populations: Sequence[Population]) -> int:
    """How far a population is; one whose best trials have gone on has made all of its steps."""
    gone_on = {name for other in populations for name in other.chosen_from}
    if population.name in gone_on:
        return population.step
    return min(population.step, max(population.steps_made(), tuning.ladder.begin(population.rung)))


def _estimate(jobs: Sequence[Job]) -> tuple[list[float], str]:
    """Estimate the seconds that each population takes; all of them share the programs that the first one compiles."""
    seconds, basis = estimate(jobs, [])
    return [seconds[0], *(each - PROGRAM for each in seconds[1:])], basis


def print_plan(tuning: Tuning, seconds: Sequence[float], basis: str) -> None:
    """Print the space, the rungs, and what all of it costs."""
    ladder, seeds, config = tuning.ladder, len(tuning.config.seeds), tuning.config
    table = Table(box=None, pad_edge=False)
    for column in ("rung", "populations", "trials", "members", "steps"):
        table.add_column(column, justify="right")
    for rung, (count, step) in enumerate(zip(ladder.counts, ladder.steps, strict=True)):
        trials = count * tuning.at_once
        steps = f"{short(ladder.begin(rung))} to {short(step)}"
        table.add_row(str(rung), str(count), str(trials), str(trials * seeds), steps)
    print(f"{config.algorithm} on {config.task}: " + ", ".join(f"{n} in {span}" for n, span in tuning.space.items()))
    Console().print(table)
    if tuning.total() != tuning.trials:
        print(f"{tuning.total()} trials instead of {tuning.trials}: populations of {tuning.at_once} are filled")
    made = [
        (end - ladder.begin(rung)) * count * tuning.at_once * seeds
        for rung, (count, end) in enumerate(zip(ladder.counts, ladder.steps, strict=True))
    ]
    whole = tuning.total() * seeds * ladder.steps[-1]
    print(f"{short(sum(made))} agent-steps, {sum(made) / whole:.0%} of all trials to the end, ", end="")
    print(f"about {duration(sum(seconds))} ({basis})")


def print_end(tuning: Tuning, trials: Sequence, files: Sequence[Path], out: Path, storage: str) -> None:
    """Print the best trials, the files, and what to do with them."""
    best = ranked(trials)
    table = Table(box=None, pad_edge=False)
    for column in ("trial", tuning.objective, *tuning.space):
        table.add_column(column, justify="right")
    for trial in best[:5]:
        note = " (the defaults)" if trial.params == tuning.defaults() else ""
        table.add_row(f"{trial.number}{note}", f"{trial.value:.2f}", *(f"{trial.params[n]:.4g}" for n in tuning.space))
    Console().print(table)
    states = [trial.state.name for trial in trials]
    print(f"{len(trials)} trials: {states.count('COMPLETE')} to the end, {states.count('PRUNED')} pruned", end="")
    print(f", {states.count('FAIL')} failed" if "FAIL" in states else "")
    for path in files:
        print(path)
    if best:
        print(f"train with them: {shlex.join(['dac', 'train', '--config', str(out / BEST)])}")
    print(f"look at the study: {dashboard_command(storage)}")
