"""`dac train`: train a population."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from dac.algorithms import ALGORITHMS, BONUSES, owners
from dac.cli.summary import print_summary
from dac.config import Training, describe, parse_text, read_toml, resolve
from dac.config.schema import owners_of
from dac.config.text import to_toml
from dac.rundir.writing import check_new
from dac.training.compilation import enable_compilation_cache
from dac.training.run import run as train
from dac.training.watchers.log import Log
from dac.training.watchers.progress import ProgressBar


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the options of the algorithm asked for; while none is chosen, those of all algorithms."""
    command.description = (
        "Train a population. Every number marked * may be a comma-separated list: "
        "the run then holds every combination with every seed."
    )
    command.epilog = "example: dac train dac maze --seeds 0:30 --alpha 0.5,0.8,1.0"
    _add_options(command, _algorithm_in(arguments))


def _algorithm_in(arguments: Sequence[str]) -> str | None:
    """Return the algorithm named on the command line, found by a parser that knows the options of all of them.

    Only a parser can tell `dac train --out sac dac maze` from `dac train sac maze`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    _add_options(parser, None)
    with contextlib.suppress(argparse.ArgumentError, SystemExit):  # what is wrong is said by the real parser
        words = [word for word in arguments[arguments.index("train") + 1 :] if word not in ("-h", "--help")]
        found, _ = parser.parse_known_intermixed_args(words)
        return found.algorithm if found.algorithm in ALGORITHMS else None
    return None


def _add_options(parser: argparse.ArgumentParser, algorithm: str | None) -> None:
    parser.add_argument("algorithm", nargs="?", metavar="ALGORITHM", help=f"one of {', '.join(ALGORITHMS)}")
    parser.add_argument("task", nargs="?", metavar="TASK", help="see `dac list tasks`")
    parser.add_argument("--seeds", help="7, 0:30 (30 not included) or 1,5,9 (default: 0)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a config.toml; options given here come before it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="new run directory (default: runs/TASK-ALGORITHM-NNN)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")

    add_settings(parser, algorithm)


def add_settings(parser: argparse.ArgumentParser, algorithm: str | None, *, sweep: bool = True) -> None:
    """Add an option for every setting of the training loop and of an algorithm, or of all of them."""

    def add(title: str, owners: Sequence[type], starred: bool) -> None:
        group = parser.add_argument_group(title)
        for name, default, text, is_float in itertools.chain.from_iterable(map(describe, owners)):
            flag = "--" + name.replace("_", "-")
            if flag in parser._option_string_actions:  # shared by two algorithms, while none is chosen
                continue
            star = "* " if starred and is_float else ""
            shown = to_toml(default).strip('[]"').replace(" ", "")
            group.add_argument(flag, dest=f"set_{name}", metavar="X", help=f"{star}{text} (default: {shown})")

    add("training", [Training], False)
    for name in ALGORITHMS:
        if algorithm in (None, name):
            add(f"settings of {name}", owners(name), sweep)
    for name, bonus in BONUSES.items():
        if algorithm is None or ALGORITHMS[algorithm].bonus in (name, "none"):
            add(f"settings of --bonus {name}", [bonus], sweep)


def explain_unknown(option: str, options: argparse.Namespace) -> str:
    """Say whose setting an option is where the chosen algorithm does not have it."""
    flag = option.split("=")[0]
    others = owners_of(flag.removeprefix("--").replace("-", "_"))
    known = isinstance(options.algorithm, str) and options.algorithm in ALGORITHMS
    return f": {flag} is a setting of {', '.join(others)}, not of {options.algorithm}" if others and known else ""


def run(options: argparse.Namespace) -> int:
    algorithm, task = options.algorithm, options.task
    if algorithm is None and options.config is not None:
        algorithm = read_toml(options.config).get("algorithm")
    texts = {name[4:]: value for name, value in vars(options).items() if name.startswith("set_") and value is not None}
    known = isinstance(algorithm, str) and algorithm in ALGORITHMS
    settings = {name: parse_text(name, text, algorithm) for name, text in texts.items()} if known else {}
    config = resolve(algorithm, task, options.seeds, settings, options.config)
    check_new(options.out)
    enable_compilation_cache()
    finished = train(config, options.out, [Log() if options.quiet else ProgressBar()])
    if not options.quiet:
        print_summary(finished)
    return 0
