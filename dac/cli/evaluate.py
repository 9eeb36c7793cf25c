"""`dac evaluate`: fresh episodes with a run's policies, without exploration."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dac.api import Run
from dac.cli.summary import find_frozen, print_frozen
from dac.config.text import whole_number
from dac.tasks import find_task
from dac.training.compilation import enable_compilation_cache


def add_arguments(command: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    del arguments
    command.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    command.add_argument("--episodes", type=whole_number, default=10, help="episodes per member (default: 10)")


def run(options: argparse.Namespace) -> int:
    enable_compilation_cache()
    run = Run(options.run)
    result, frozen = run.evaluate(options.episodes), find_frozen(run)
    table = Table(
        title=f"{run.config.algorithm} on {run.config.task}: {options.episodes} episodes", title_justify="left"
    )
    varied, mark = run.config.varied(), ["frozen"] if frozen else []
    success = [] if result.successes is None else ["success"]
    for column in ("seed", *varied, *mark, "mean return", "std", "mean length", *success):
        table.add_column(column, justify="right")
    for index, (member, returns, lengths) in enumerate(zip(run.members, result.returns, result.lengths, strict=True)):
        cells = [str(member.seed), *(f"{member.hyper[name]:g}" for name in varied)]
        cells += [("yes" if index in frozen else "no") for _ in mark]
        cells += [f"{returns.mean():.2f}", f"{returns.std():.2f}", f"{lengths.mean():.0f}"]
        if result.successes is not None:
            cells.append(f"{result.successes[index].mean():.0%}")
        table.add_row(*cells)
    Console().print(table)
    limit = run.config.training.eval_limit
    if find_task(run.config.task).device is None and (result.lengths == limit).any():
        print(f"episodes are cut after {limit:,} steps (the setting eval_limit of the run)")
    print_frozen(run, frozen, "; it was evaluated with its last good policy")
    return 0
