"""Every command of `dac` with its options, from the parsers themselves."""

from __future__ import annotations

import argparse
import importlib

from dac.cli.main import COMMANDS, _Parser
from dacdocs.settings import table


def commands() -> str:
    """Return one section per command."""
    return "\n\n".join(command(name, summary) for name, summary in COMMANDS.items())


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of one command."""
    parser = _Parser(prog=f"dac {name}")
    importlib.import_module(f"dac.cli.{name.replace('-', '_')}").add_arguments(parser, [name])
    return parser


def command(name: str, summary: str) -> str:
    """Return what a command is for, its usage and its options; settings of `train` have a page of their own."""
    parser = parser_of(name)
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS and not a.dest.startswith("set_")]
    text = [f"## dac {name}", summary[0].upper() + summary[1:] + "."]
    if parser.description:
        text.append(parser.description)
    text.append(table(["argument", "meaning"], [[label(action), meaning(action)] for action in actions]))
    if len(actions) < len(parser._actions):
        text.append("Every [setting](options.md) is an option too: `--eval-every 500` sets `eval_every`.")
    if parser.epilog:
        text.append("```sh\n" + parser.epilog.removeprefix("example: ") + "\n```")
    return "\n\n".join(text)


def label(action: argparse.Action) -> str:
    """Name an argument with its value."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value}`"
    flags = ", ".join(action.option_strings)
    return f"`{flags}`" if action.nargs == 0 else f"`{flags} {value}`"


def meaning(action: argparse.Action) -> str:
    """Explain an argument, with its default where the text does not name it."""
    text = (action.help or "").replace("%%", "%")
    default = action.default
    if "default" in text or default in (None, False, argparse.SUPPRESS) or default == []:
        return text
    return f"{text} (default: {default})" if str(default) not in text else text
