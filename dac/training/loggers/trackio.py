"""trackio: one run per population, in the project `dac` or that of TRACKIO_PROJECT, on this machine.

Its database is in ~/.cache/huggingface/trackio, or in TRACKIO_DIR, and not in the run directory. TRACKIO_SPACE_ID
sends it to a Hugging Face Space. `trackio show` opens the dashboard.
"""

from __future__ import annotations

import os
from typing import Any

from dac.training.loggers.keyed import AbstractKeyedLogger
from dac.training.loggers.series import describe
from dac.training.watchers import Start


class Trackio(AbstractKeyedLogger):
    """Sends evaluations to trackio."""

    name = "trackio"

    def begin(self, start: Start, identity: str, resumed: bool) -> None:
        import trackio

        trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "dac"),
            name=f"{start.directory.name}-{identity}",
            config=describe(start.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,  # its own threads would take time from training
            auto_log_cpu=False,
        )

    def send(self, values: dict[str, Any], step: int) -> None:
        import trackio

        trackio.log(values, step=step)

    def close(self) -> None:
        import trackio

        trackio.finish()
