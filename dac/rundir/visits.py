"""visits.npz: which cells the members of a run have entered. Reading it needs no JAX."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dac.core.errors import UsageError
from dac.rundir.names import VISITS


def read_visits(directory: Path) -> dict[str, np.ndarray]:
    """Read all of a run's visits.npz: visit counts, first visits, and of newer runs the grid's shape and walls."""
    try:
        with np.load(directory / VISITS, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise UsageError(f"{directory} has no {VISITS}: its task has no visit grid, or it is not finished") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {directory / VISITS}: {error}") from None
