"""What Weights & Biases and trackio share: one of their runs per population, whose series are told apart by their keys.

`return/mean`, `return/low` and `return/high` are of the group, `return/seed 3` of a member; where hyperparameters vary,
their values come between: `return/alpha 0.5/mean`. These services cannot take a row back. Rows that a resumed run makes
again are not sent twice: a small file remembers the last one. They are equal to those that were sent, but for
environments that cannot be saved, of which metrics.csv has the newer rows.
"""

from __future__ import annotations

import abc
import contextlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

from dac.rundir.files import write_atomically
from dac.training.loggers.background import AbstractLogger
from dac.training.loggers.series import Group, Record
from dac.training.watchers import Start


class AbstractKeyedLogger(AbstractLogger):
    """Sends one dictionary per evaluation."""

    name: str

    @abc.abstractmethod
    def begin(self, start: Start, identity: str, resumed: bool) -> str | None:
        """Begin a run of that identity, or go on with it."""

    @abc.abstractmethod
    def send(self, values: dict[str, Any], step: int) -> None:
        """Send the values of one step."""

    def open(self, start: Start, groups: Sequence[Group]) -> str | None:
        self._start, self._groups = start, groups
        self._notes = start.directory / f"{self.name}.json"
        self._sent, identity, resumed = -1, uuid.uuid4().hex[:8], False
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(self._notes.read_bytes())
            self._sent, identity, resumed = int(found["step"]), str(found["id"]), True
        self._identity = identity
        return self.begin(start, identity, resumed)

    def restore(self, step: int) -> None:
        """Do nothing: rows up to the last one sent are left out, wherever the run goes on."""

    def write(self, record: Record) -> None:
        if record.step <= self._sent:
            return
        self.send(self._keyed(record), record.step)
        self._sent = record.step
        content = json.dumps({"id": self._identity, "step": record.step}) + "\n"
        write_atomically(self._notes, content.encode(), sync=False)

    def _keyed(self, record: Record) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for group, spreads in zip(self._groups, record.groups, strict=True):
            among = f"/{group.name}" if len(self._groups) > 1 else ""
            for name, spread in spreads.items():
                values[f"{name}{among}/mean"] = spread.mean
                if spread.low is not None:
                    values |= {f"{name}{among}/low": spread.low, f"{name}{among}/high": spread.high}
            for index in group.members:
                seed = self._start.members[index].seed
                values |= {f"{name}{among}/seed {seed}": value for name, value in record.members[index].items()}
        return values
