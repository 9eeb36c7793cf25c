"""Reading a run directory."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from dac.config import RunConfig, resolve
from dac.population import INIT, each_member, stack_algorithms, stack_keys, stream
from dac.tasks import find_task
from dac.training.evaluate import Evaluation, Moment, evaluate_on_device
from dac.training.host import evaluate_on_host
from dac.training.record import CONFIG, METRICS, POLICY, SUMMARY, VISITS
from dac.types import UsageError
from dac.weights import load_tree


class Run:
    """A finished run: its configuration, curves, summary and policies."""

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
        return (self.directory / SUMMARY).is_file()

    def last_checkpoint(self) -> int:
        """Environment steps per member at the latest checkpoint, 0 if there is none; it is not opened."""
        steps = [int(path.stem.removeprefix("step-")) for path in self.directory.glob("checkpoint/step-*.json")]
        return max(steps, default=0) * self.config.training.envs

    def resume(self, steps: int | None = None) -> Run:
        """Continue where the last checkpoint left it, to `steps` environment steps per member if given."""
        from dac.training.run import resume

        return resume(self.directory, steps)

    @property
    def summary(self) -> dict[str, Any]:
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
        try:
            with np.load(self.directory / VISITS, allow_pickle=False) as file:
                return dict(file)
        except FileNotFoundError:
            raise UsageError(
                f"{self.directory} has no {VISITS}: its task has no visit grid, or it is not finished"
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {self.directory / VISITS}: {error}") from None

    def policies(self) -> PyTree:
        """The policies of all members, stacked."""
        algorithms = stack_algorithms(self.config.make_algorithm(), self.members)
        spec = find_task(self.config.task).spec()

        def fresh(algorithm, key):
            return algorithm.policy(algorithm.init(stream(key, INIT), spec))

        template = eqx.filter_eval_shape(each_member(fresh), algorithms, stack_keys(self.members))
        return load_tree(self.directory / POLICY, template)

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Fresh episodes with the saved policies, without exploration (Soft Q-Learning's policy samples anyway)."""
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, not {episodes}")
        task, moment = find_task(self.config.task), Moment(self.policies(), 2**31 - 1)  # no step of training
        if task.device is not None:
            return evaluate_on_device(task.device(), moment, stack_keys(self.members), episodes)
        assert task.host is not None
        return evaluate_on_host(task.host, [moment], self.members, episodes)[0]
