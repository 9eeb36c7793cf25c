"""The parser of `dac`, and what every command shares: errors of one line, exit codes, hints."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

from dac._version import __version__
from dac.cli.text import with_options
from dac.core.errors import UsageError, did_you_mean
from dac.core.streams import lasting

COMMANDS = {
    "train": "train a population: seeds and lists of hyperparameters in one compiled program",
    "resume": "continue a run from its last checkpoint, exactly or with more steps",
    "evaluate": "run fresh episodes with a run's policies, without exploration",
    "video": "film one episode, without exploration, as an mp4",
    "export": "write a policy as ONNX, StableHLO or NumPy, or a replay buffer as a Minari dataset",
    "reproduce": "run an experiment of the paper: a figure or a table, with statistics and a report",
    "sweep": "train a study from a file: tasks x algorithms x seeds x grids, here or on a cluster",
    "tune": "search for good settings: Optuna proposes, populations try, the best ones go on",
    "status": "one table of all runs below a folder: running, finished, stopped or broken, and how far",
    "report": "one self-contained page over runs: curves, verdicts, commands",
    "list": "name every task or every algorithm",
    "completion": "print a script with which bash, zsh or fish completes all of this",
}
"""Every command with its line in `dac --help`; each has a module of its name in this package.

The module is imported only when its command is asked for, so that a help text does not wait for JAX.
"""


class _Parser(argparse.ArgumentParser):
    """A parser with errors of one line and no abbreviations, so that a new option never breaks a script."""

    def __init__(self, **arguments):
        super().__init__(**arguments, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0 if all went well, or 2, with one line on stderr, if the request was wrong.

    That nobody reads what it prints, as in `dac train dac maze | head -1`, changes nothing.
    """
    _import_from_here()
    with contextlib.redirect_stdout(lasting(sys.stdout)), contextlib.redirect_stderr(lasting(sys.stderr)):
        try:
            return _dispatch(list(sys.argv[1:] if arguments is None else arguments))
        except UsageError as error:
            if os.environ.get("DAC_DEBUG"):
                traceback.print_exc()
            print(f"dac: {with_options(str(error))}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as interruption:
            print(f"dac: {interruption or 'interrupted'}", file=sys.stderr)
            return getattr(interruption, "exit_code", 130)
        finally:  # Python would do so at its end, and fail
            sys.stdout.flush()
            sys.stderr.flush()


def _import_from_here() -> None:
    """Let a task name a module of the current folder, which the script `dac` leaves out and `python -m dac` does not.

    It comes last, so that no file of the folder takes the place of an installed package.
    """
    with contextlib.suppress(OSError):  # the folder was removed
        if os.getcwd() not in sys.path and "" not in sys.path:
            sys.path.append(os.getcwd())


def _dispatch(arguments: list[str]) -> int:
    parser = _Parser(prog="dac", description="Diversity Actor-Critic: exploration where reward is rare.")
    parser.add_argument("--version", action="version", version=f"dac {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    if asked is not None and asked == arguments[0] and asked not in COMMANDS:
        hint = did_you_mean(asked, COMMANDS)
        raise UsageError(f"unknown command {asked!r}{hint} (accepted: {', '.join(COMMANDS)})")
    explain = _no_explanation
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name == asked:
            module = importlib.import_module(f"dac.cli.{name}")
            module.add_arguments(command, arguments)
            command.set_defaults(function=module.run)
            explain = getattr(module, "explain_unknown", _no_explanation)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        raise UsageError(_unknown_option(unknown[0], arguments, commands.choices, explain(unknown[0], options)))
    if options.command is None:
        parser.print_help()
        return 0
    return options.function(options)


def _no_explanation(option: str, options: argparse.Namespace) -> str:
    """Explain nothing: stands in where a command's module has no `explain_unknown`."""
    del option, options
    return ""


def _unknown_option(
    option: str, arguments: list[str], commands: Mapping[str, argparse.ArgumentParser], explanation: str
) -> str:
    command = next((name for name in arguments if name in commands), None)
    if command is None:
        hint = did_you_mean(option, ["--help", "--version"])
        return f"unknown argument {option!r}{hint} (accepted: a command, one of {', '.join(commands)})"
    accepted = [o for o in commands[command]._option_string_actions if o.startswith("--")]
    hint = explanation or did_you_mean(option.split("=")[0], [o for o in accepted if o != "--help"])
    return f"unknown argument {option!r} of `dac {command}`{hint} (accepted: {', '.join(accepted)})"
