"""Weights & Biases: one run per population, in the project `dac` or that of WANDB_PROJECT.

Without a key nothing is sent: it is written to `wandb/` of the run directory, and `wandb sync` sends it later.
"""

from __future__ import annotations

import os
from typing import Any

from dac.training.loggers.keyed import AbstractKeyedLogger
from dac.training.loggers.series import describe
from dac.training.watchers import Start


class WandB(AbstractKeyedLogger):
    """Sends evaluations to Weights & Biases."""

    name = "wandb"

    def begin(self, start: Start, identity: str, resumed: bool) -> str | None:
        import wandb

        mode: Any = None if "WANDB_MODE" in os.environ or _has_key() else "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "dac"),
            id=identity,
            name=start.directory.name,
            dir=start.directory,
            config=describe(start.config),
            resume="allow",
            mode=mode,
            # the console stays ours, and signals end the run, not the logger
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("*", step_metric="step")
        return f"wandb has no key: send the run later with: wandb sync {start.directory}/wandb/*" if mode else None

    def send(self, values: dict[str, Any], step: int) -> None:
        self._run.log(values | {"step": step})

    def close(self) -> None:
        self._run.finish()


def _has_key() -> bool:
    """Whether this machine may send, found without asking for a key."""
    import wandb

    try:
        return bool(wandb.login(prompt=False))  # type: ignore[call-arg, unused-ignore]
    except Exception:  # of an older version, or of one that is strict: what it does next says more
        return "WANDB_API_KEY" in os.environ
