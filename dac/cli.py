"""The command line: `dac train`, `resume`, `evaluate`, `video`, `reproduce`, `report`, `list`."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from dac.types import UsageError


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of one line and without abbreviations, so that a new option never breaks a script."""

    def __init__(self, **arguments):
        super().__init__(**arguments, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if all went well, 2 with one line on stderr if the request was wrong."""
    try:
        return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except UsageError as error:
        print(f"dac: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `dac list tasks | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as interruption:
        print(f"dac: {interruption or 'interrupted'}", file=sys.stderr)
        return getattr(interruption, "exit_code", 130)


def _dispatch(arguments: list[str]) -> int:
    from dac._version import __version__

    parser = _Parser(prog="dac", description="Diversity Actor-Critic: exploration where reward is rare.")
    parser.add_argument("--version", action="version", version=f"dac {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_train(commands, arguments)

    resume = commands.add_parser("resume", help="continue a run from its last checkpoint, exactly or with more steps")
    resume.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    resume.add_argument("--steps", type=int, metavar="N", help="train to so many steps per member instead")
    resume.add_argument("--quiet", action="store_true", help="show no progress")
    resume.set_defaults(function=_resume)

    evaluate = commands.add_parser("evaluate", help="run fresh episodes with a run's policies, without exploration")
    evaluate.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    evaluate.add_argument("--episodes", type=int, default=10, help="episodes per member (default: 10)")
    evaluate.set_defaults(function=_evaluate)

    video = commands.add_parser("video", help="film one episode, without exploration, as an mp4")
    video.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    video.add_argument("--member", type=int, metavar="K", help="which one (default: the best)")
    video.add_argument("--steps", type=int, metavar="N", help="stop after so many steps (default: the whole episode)")
    video.add_argument("--out", type=Path, metavar="FILE", help="default: RUN/video.mp4")
    video.set_defaults(function=_video)

    reproduce = commands.add_parser(
        "reproduce",
        help="run an experiment of the paper: a figure or a table, with statistics and a report",
        description="Run what is missing of an experiment of the paper, then write its figures, table and report. "
        "Stop it at any time: the same command goes on.",
        epilog="example: dac reproduce fig2-sparse/SparseHopper --dry-run",
    )
    reproduce.add_argument("names", nargs="*", metavar="NAME", help="see --list; NAME/TASK for one task, or `all`")
    reproduce.add_argument("--list", action="store_true", help="name every experiment")
    instead = reproduce.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print the plan and an estimate of the time only")
    instead.add_argument("--draw", action="store_true", help="run nothing: figures, table and report of what there is")
    reproduce.add_argument("--scale", type=float, default=1.0, metavar="X", help="a try: this share of steps and seeds")
    reproduce.add_argument(
        "--envs", type=int, metavar="N", help="environments per member: faster on a GPU, where the paper has one"
    )
    reproduce.add_argument("--out", type=Path, default=Path("runs/paper"), metavar="DIR", help="default: runs/paper")
    reproduce.add_argument(
        "--from",
        type=Path,
        nargs="+",
        default=[],
        dest="sources",
        metavar="DIR",
        help="count finished runs in here too",
    )
    reproduce.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="train N populations at a time, sharing cores and GPU (default: 1)",
    )
    reproduce.add_argument("--quiet", action="store_true", help="show no progress")
    reproduce.set_defaults(function=_reproduce)

    report = commands.add_parser("report", help="one self-contained page over runs: curves, verdicts, commands")
    report.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="run directories, or folders of them")
    report.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="report.html")
    report.set_defaults(function=_report)

    listing = commands.add_parser("list", help="name every task or every algorithm")
    listing.add_argument("what", choices=["tasks", "algorithms"])
    listing.set_defaults(function=_list)

    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(_unknown_option(unknown[0], arguments, commands.choices))
    if options.command is None:
        parser.print_help()
        return 0
    return options.function(options)


def _unknown_option(option: str, arguments: list[str], commands: Mapping[str, argparse.ArgumentParser]) -> str:
    command = next((name for name in arguments if name in commands), None)
    if command is None:
        return f"unknown argument {option!r} (accepted: a command, one of {', '.join(commands)})"
    accepted = [o for o in commands[command]._option_string_actions if o.startswith("--")]
    close = difflib.get_close_matches(option.split("=")[0], accepted, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"unknown argument {option!r} of `dac {command}`{hint} (accepted: {', '.join(accepted)})"


def _add_train(commands, arguments: list[str]) -> None:
    """The options of `train` are those of the algorithm asked for, which has to be known before parsing."""
    from dac.algorithms import ALGORITHMS, BONUSES
    from dac.config import Training, describe

    before = ["", *arguments]  # some names are a bonus too
    asked = [a for b, a in zip(before, arguments, strict=False) if a in ALGORITHMS and b != "--bonus"][:1]
    train = commands.add_parser(
        "train",
        help="train a population: seeds and lists of hyperparameters in one compiled program",
        description="Train a population. Every number marked * may be a comma-separated list: "
        "the run then holds every combination with every seed.",
        epilog="example: dac train dac maze --seeds 0:30 --alpha 0.5,0.8,1.0",
    )
    train.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=f"one of {', '.join(ALGORITHMS)}")
    train.add_argument("task", nargs="?", metavar="TASK", help="see `dac list tasks`")
    train.add_argument("--seeds", help="7, 0:30 (30 not included) or 1,5,9 (default: 0)")
    train.add_argument("--config", type=Path, metavar="FILE", help="a config.toml; options given here come before it")
    train.add_argument("--out", type=Path, metavar="DIR", help="new run directory (default: runs/TASK-ALGORITHM-NNN)")
    train.add_argument("--quiet", action="store_true", help="show no progress")
    train.set_defaults(function=_train)

    def add(group, owner: type, sweep: bool) -> None:
        for name, default, text, is_float in describe(owner):
            flag = "--" + name.replace("_", "-")
            if flag in train._option_string_actions:  # shared by two algorithms, while none is chosen
                continue
            star = "* " if sweep and is_float else ""
            default = default.strip('[]"').replace(" ", "")
            group.add_argument(flag, dest=f"set_{name}", metavar="X", help=f"{star}{text} (default: {default})")

    add(train.add_argument_group("training"), Training, sweep=False)
    for name, entry in ALGORITHMS.items():
        if not asked or name in asked:
            add(train.add_argument_group(f"settings of {name}"), entry.algorithm, sweep=True)
    for name, bonus in BONUSES.items():
        if not asked or ALGORITHMS[asked[0]].bonus in (name, "none"):
            add(train.add_argument_group(f"settings of --bonus {name}"), bonus, sweep=True)


def _train(options: argparse.Namespace) -> int:
    from dac.config import parse_text, read_toml, resolve
    from dac.progress import ProgressBar
    from dac.training.record import choose_directory
    from dac.training.run import Silence, run

    algorithm, task = options.algorithm, options.task
    if algorithm is None and options.config is not None:
        algorithm = read_toml(options.config).get("algorithm")
    from dac.algorithms import ALGORITHMS

    texts = {name[4:]: value for name, value in vars(options).items() if name.startswith("set_") and value is not None}
    known = isinstance(algorithm, str) and algorithm in ALGORITHMS
    settings = {name: parse_text(name, text, algorithm) for name, text in texts.items()} if known else {}
    config = resolve(algorithm, task, options.seeds, settings, options.config)
    directory = choose_directory(options.out, config.task, config.algorithm)
    enable_compilation_cache()
    finished = run(config, directory, Silence() if options.quiet else ProgressBar(config))
    if not options.quiet:
        _print_summary(finished)
    return 0


def _resume(options: argparse.Namespace) -> int:
    from dac.progress import ProgressBar
    from dac.training.run import Silence, continue_run

    enable_compilation_cache()
    finished = continue_run(options.run, options.steps, (lambda _: Silence()) if options.quiet else ProgressBar)
    if not options.quiet:
        _print_summary(finished)
    return 0


def _print_summary(run) -> None:
    summary = run.summary
    console = Console()
    table = Table(title=f"{summary['algorithm']} on {summary['task']}", title_justify="left")
    varied = run.config.varied()
    visited = "visited_cells" in summary["members"][0]
    for column in [*varied, "members", "final return", "max return", *(["visited cells"] if visited else [])]:
        table.add_column(column, justify="right")
    groups: dict[tuple, list[dict]] = {}
    for member in summary["members"]:
        groups.setdefault(tuple(member["hyper"][n] for n in varied), []).append(member)
    for values, members in groups.items():
        cells = [f"{v:g}" if isinstance(v, float) else str(v) for v in values] + [str(len(members))]
        cells += [_mean_std([m["final_return"] for m in members]), _mean_std([m["max_return"] for m in members])]
        if visited:
            cells.append(_mean_std([m["visited_cells"] for m in members]))
        table.add_row(*cells)
    console.print(table)
    rate = summary["agent_steps_per_second"]
    speed = "" if rate is None else f" at {rate:,.0f} agent-steps/s"
    print(f"{summary['seconds']:.0f} s{speed}; everything is in {run.directory}")


def _mean_std(values: Sequence[float | None]) -> str:
    import numpy as np

    numbers = [v for v in values if v is not None]
    return f"{np.mean(numbers):.1f} ± {np.std(numbers):.1f}" if numbers else "-"


def _evaluate(options: argparse.Namespace) -> int:
    from dac.runs import Run

    enable_compilation_cache()
    run = Run(options.run)
    result = run.evaluate(options.episodes)
    table = Table(
        title=f"{run.config.algorithm} on {run.config.task}: {options.episodes} episodes", title_justify="left"
    )
    for column in ("seed", *run.config.varied(), "mean return", "std", "mean length"):
        table.add_column(column, justify="right")
    for member, returns, lengths in zip(run.members, result.returns, result.lengths, strict=True):
        varied = [f"{member.hyper[name]:g}" for name in run.config.varied()]
        table.add_row(
            str(member.seed), *varied, f"{returns.mean():.2f}", f"{returns.std():.2f}", f"{lengths.mean():.0f}"
        )
    Console().print(table)
    return 0


def _video(options: argparse.Namespace) -> int:
    from dac.runs import Run
    from dac.video import record_video

    path = options.out or options.run / "video.mp4"
    length, total = record_video(Run(options.run), path, options.member, options.steps)
    print(f"{path}: {length} steps, return {total:.1f}")
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    from dac.experiments.jobs import share_machine
    from dac.experiments.paper import EXPERIMENTS, find_experiment
    from dac.experiments.reproduce import list_experiments, reproduce

    if options.jobs > 1:
        share_machine(options.jobs)  # this process too, whose estimate asks the device
    if options.list:
        list_experiments()
        return 0
    if not options.names:
        raise UsageError(f"an experiment is needed (accepted: {', '.join(EXPERIMENTS)}, each also with /TASK, or all)")
    names = list(EXPERIMENTS) if options.names == ["all"] else options.names
    experiments = [find_experiment(name) for name in dict.fromkeys(names)]
    command = shlex.join(["dac", "reproduce", *options.names, "--out", str(options.out)])
    command += f" --scale {options.scale:g}" if options.scale != 1 else ""
    command += f" --envs {options.envs}" if options.envs is not None else ""
    command += f" --jobs {options.jobs}" if options.jobs != 1 else ""
    command += " --from " + shlex.join(map(str, options.sources)) if options.sources else ""
    command += " --draw" if options.draw else ""
    reports = reproduce(
        experiments,
        options.out,
        options.sources,
        scale=options.scale,
        envs=options.envs,
        dry_run=options.dry_run,
        draw=options.draw,
        jobs=options.jobs,
        quiet=options.quiet,
        command=command,
    )
    for path in reports:
        print(path)
    return 0


def _report(options: argparse.Namespace) -> int:
    from dac.experiments.report import write_report

    command = shlex.join(["dac", "report", *map(str, options.folders), "-o", str(options.out)])
    for line in write_report(options.folders, options.out, command):
        print(line)
    print(options.out)
    return 0


def _list(options: argparse.Namespace) -> int:
    from dac.algorithms import ALGORITHMS
    from dac.tasks import TASKS

    table = Table(box=None, show_header=False, pad_edge=False)
    if options.what == "tasks":
        for task in TASKS.values():
            table.add_row(task.name, task.summary)
    else:
        for name, entry in ALGORITHMS.items():
            table.add_row(name, entry.summary)
    Console().print(table)
    return 0


def enable_compilation_cache() -> None:
    """Keep compiled programs between runs; a population compiles once per machine, not once per run."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir") is None:  # noqa: B009 - set at run time, unknown to mypy
        home = os.environ.get("XDG_CACHE_HOME", os.path.join(os.path.expanduser("~"), ".cache"))
        jax.config.update("jax_compilation_cache_dir", os.path.join(home, "dac", "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
