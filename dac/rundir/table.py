"""metrics.csv read quickly and in part, also while it is written; needs neither JAX nor NumPy.

A row that is still being written, and an evaluation that does not have a row of every member yet, are left out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from dac.core.errors import UsageError

ROW = 512
"""A guess of the bytes of a row; the end of a file is read in pieces that grow until there is an evaluation in one."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Whole evaluations of a metrics.csv, as text until they are asked for."""

    path: Path
    columns: list[str]
    lines: list[bytes]
    members: int

    @property
    def count(self) -> int:
        """Number of evaluations."""
        return len(self.lines) // self.members

    def evaluation(self, index: int) -> list[dict[str, float]]:
        """Return the rows of an evaluation, one per member."""
        index = range(self.count)[index]
        return [self._row(line) for line in self.lines[index * self.members : (index + 1) * self.members]]

    def evaluations(self) -> Iterator[list[dict[str, float]]]:
        """Return the rows of every evaluation."""
        return map(self.evaluation, range(self.count))

    def column(self, name: str, indices: Iterable[int]) -> list[list[float]]:
        """Return a column of some evaluations: a list of the members' values for each."""
        where = self.columns.index(name)
        try:
            return [
                [float(line.split(b",", where + 1)[where]) for line in self.lines[i * self.members :][: self.members]]
                for i in indices
            ]
        except (ValueError, IndexError):
            raise self._damaged() from None

    def _row(self, line: bytes) -> dict[str, float]:
        values = line.split(b",")
        try:
            return dict(zip(self.columns, map(float, values), strict=True))
        except ValueError:
            raise self._damaged() from None

    def _damaged(self) -> UsageError:
        return UsageError(f"{self.path} is damaged: a row does not hold {len(self.columns)} numbers")


def read_table(path: Path, members: int) -> Table:
    """Read the whole of a metrics.csv; one that is not there yet is empty."""
    header, end, body = _read(path, 0).partition(b"\n")
    return _table(path, header, body, members) if end else Table(path, [], [], members)


def read_tail(path: Path, members: int) -> Table:
    """Read the last evaluation of a metrics.csv, and perhaps some before it."""
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return Table(path, [], [], members)
    wanted = members * ROW
    while 4 * wanted < size:
        # one evaluation that is whole lies in any two
        tail = _read(path, size - 2 * wanted).partition(b"\n")[2]
        lines = tail.split(b"\n")[:-1]
        first = next((n for n, line in enumerate(lines) if line.startswith(b"0,")), len(lines))
        if len(lines) - first >= members:
            return _table(path, _first_line(path), b"\n".join([*lines[first:], b""]), members)
        wanted *= 4
    return read_table(path, members)


def _table(path: Path, header: bytes, body: bytes, members: int) -> Table:
    columns = header.decode("utf-8", "replace").split(",")
    if columns[0] != "member" or not {"step", "return"} <= set(columns):
        raise UsageError(f"{path} is damaged: its first line does not name the columns")
    lines = body.split(b"\n")[:-1]
    table = Table(path, columns, lines[: len(lines) // members * members], members)
    if table.count and [row["member"] for row in table.evaluation(-1)] != list(range(members)):
        raise UsageError(f"{path} is damaged: it does not hold a row of each of {members} members per evaluation")
    return table


def _first_line(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.readline().rstrip(b"\n")


def _read(path: Path, start: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
