"""Reading a run directory."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from dac.config import RunConfig, resolve
from dac.core.types import UsageError
from dac.rundir.names import CONFIG, METRICS, POLICY, SUMMARY
from dac.rundir.visits import read_visits


class RunDirectory:
    """What a run directory holds: its configuration, curves, summary and visit counts."""

    def __init__(self, directory: Path | str):
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise UsageError(f"no such run directory: {self.directory}")
        if not (self.directory / CONFIG).is_file():
            raise UsageError(f"{self.directory} is not a run directory: it has no {CONFIG}")
        self.config: RunConfig = resolve(file=self.directory / CONFIG)
        self.members = self.config.members()

    @property
    def finished(self) -> bool:
        """Whether the run has reached its last step."""
        return (self.directory / SUMMARY).is_file()

    def last_checkpoint(self) -> int:
        """Environment steps per member at the latest checkpoint, 0 if there is none; it is not opened."""
        steps = [int(path.stem.removeprefix("step-")) for path in self.directory.glob("checkpoint/step-*.json")]
        return max(steps, default=0) * self.config.training.envs

    def policy_file(self) -> Path:
        """Return where the policies are, those of the last checkpoint while the run is not finished."""
        path = self.directory / POLICY
        if not path.is_file():
            more = "" if self.finished else "; a run writes its policies with its first checkpoint"
            raise UsageError(f"no such file: {path}{more}")
        return path

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds: versions, duration, warnings and the end of every member; only of a finished run."""
        path = self.directory / SUMMARY
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{self.directory} is not finished: it has no {SUMMARY}") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
        number = int | float
        kinds = {"members": list, "versions": dict, "seconds": number, "agent_steps_per_second": number | None}
        for name, kind in kinds.items():
            if not isinstance(found, dict) or not isinstance(found.get(name, ...), kind):
                raise UsageError(f"{path} is damaged: {name!r} is missing or not what it should be")
        return found

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Every column of metrics.csv as an array (evaluation, member)."""
        path = self.directory / METRICS
        try:
            with open(path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            count = len(self.members)
            complete = len(rows) // count * count
            columns = {n: np.array([float(r[n]) for r in rows[:complete]]) for n in (rows[0] if rows else {})}
        except FileNotFoundError:
            raise UsageError(f"{self.directory} has no {METRICS} yet") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged: {error}") from None
        return {name: column.reshape(-1, count) for name, column in columns.items()}

    @property
    def visits(self) -> dict[str, np.ndarray]:
        """Visit counts by snapshot (`visits_5000`, ...) and `first_visit`, each (member, cell)."""
        return {name: array for name, array in read_visits(self.directory).items() if name not in ("grid", "walls")}
