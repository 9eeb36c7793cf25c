"""The options of `dac sweep` and `dac reproduce` that say where to train, and the words that repeat them."""

from __future__ import annotations

import argparse
import shlex

from dac.cluster.engines import ENGINES
from dac.core.errors import UsageError
from dac.experiments.plan import Fits, fits_into
from dac.training.preparation import place_of


def add_engine_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--engine", default="local", choices=list(ENGINES), help="where to train (default: local)")
    command.add_argument("--address", metavar="X", help="where the cluster of the engine is, if it needs one")
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the engine needs, such as gpus=0.5; as often as needed (docs/cluster.md)",
    )
    command.add_argument(
        "--memory", type=float, metavar="GIB", help="of the devices that train, where they are not this machine's"
    )


def repeat_engine_options(options: argparse.Namespace) -> str:
    """Return what a command that goes on has to say of its engine, with a space before each word."""
    words = f" --engine {shlex.quote(options.engine)}" if options.engine != "local" else ""
    words += f" --address {shlex.quote(options.address)}" if options.address is not None else ""
    words += "".join(f" --option {shlex.quote(option)}" for option in options.option)
    return words + (f" --memory {options.memory:g}" if options.memory is not None else "")


def choose_fits(engine: str, memory: float | None) -> Fits | None:
    """What decides how large populations may be: the memory that is said, or this machine's if it trains them."""
    if memory is None:
        return place_of if engine == "local" else None
    if not 0 < memory < 1e6:
        raise UsageError(f"memory must be above 0 GiB, not {memory:g}")
    return fits_into(int(memory * 2**30))
