"""The table at the end of a run, and how frozen members are named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dac.rundir.names import METRICS
from dac.rundir.reading import RunDirectory


def print_summary(run: RunDirectory) -> None:
    """Print one row per combination of hyperparameters, the frozen members, and where everything is.

    Means are over the members that were trained to the end; a frozen member stopped learning on the way.
    """
    summary, frozen = run.summary, find_frozen(run)
    table = Table(title=f"{summary['algorithm']} on {summary['task']}", title_justify="left")
    varied = run.config.varied()
    columns = {"final return": "final_return", "max return": "max_return"}
    if "final_success" in summary["members"][0]:
        columns["final success"] = "final_success"
    if "visited_cells" in summary["members"][0]:
        columns["visited cells"] = "visited_cells"
    for column in [*varied, "members", *(["frozen"] if frozen else []), *columns]:
        table.add_column(column, justify="right")
    groups: dict[tuple[float, ...], list[int]] = {}
    for index, member in enumerate(run.members):
        groups.setdefault(tuple(member.hyper[name] for name in varied), []).append(index)
    for values, indices in groups.items():
        healthy = [index for index in indices if index not in frozen]
        cells = [*(f"{value:g}" for value in values), str(len(indices))]
        cells += [str(len(indices) - len(healthy))] if frozen else []
        for name in columns.values():
            digits = 2 if name == "final_success" else 1  # a rate from 0 to 1
            cells.append(_mean_std((summary["members"][index].get(name) for index in healthy), digits))
        table.add_row(*cells)
    Console().print(table)
    print_frozen(run, frozen, "; not in the means")
    rate = summary["agent_steps_per_second"]
    speed = "" if rate is None else f" at {rate:,.0f} agent-steps/s"
    speed += f" on {count} devices" if (count := summary.get("devices", 1)) > 1 else ""
    print(f"{summary['seconds']:.0f} s{speed}; everything is in {run.directory}")


def find_frozen(run: RunDirectory) -> dict[int, str]:
    """Return the cause and step of every frozen member, by its index."""
    if run.finished:
        found = {index: member.get("frozen") for index, member in enumerate(run.summary["members"])}
        return {i: f"{failure['cause']}, found at step {failure['step']}" for i, failure in found.items() if failure}
    if not (run.directory / METRICS).exists():  # interrupted before its first evaluation
        return {}
    marks = run.metrics.get("frozen", np.zeros((0, len(run.members))))  # no summary yet, or no longer
    return {int(index): "see metrics.csv" for index in np.flatnonzero(marks[-1:].any(axis=0))}


def print_frozen(run: RunDirectory, frozen: dict[int, str], more: str = "") -> None:
    """Print a line for every frozen member: its seed, what varies, the cause and the step."""
    for index, cause in frozen.items():
        print(f"frozen: member {index} ({run.members[index].label()}): {cause}{more}")


def _mean_std(values: Iterable[Any], digits: int) -> str:
    """Format the mean of what is finite; a summary has null for NaN and a string for an infinite number."""
    numbers = [number for value in values if value is not None and math.isfinite(number := float(value))]
    return f"{np.mean(numbers):.{digits}f} ± {np.std(numbers):.{digits}f}" if numbers else "-"
