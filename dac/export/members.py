"""One member of a run: which one leaves it, its policy, and what a file says of where it comes from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dac._version import __version__
from dac.api import Run
from dac.core.population import pick
from dac.core.types import EnvSpec, UsageError
from dac.envs.bounds import ActionBounds
from dac.export.video import best_member
from dac.rundir.files import write_atomically
from dac.tasks import find_task


def choose_member(run: Run, wanted: int | None) -> int:
    """Return the member asked for, or the best one."""
    chosen = best_member(run) if wanted is None else wanted
    if not 0 <= chosen < len(run.members):
        raise UsageError(f"member must be from 0 to {len(run.members) - 1}, not {chosen}")
    return chosen


@dataclasses.dataclass(frozen=True)
class Actor:
    """The policy of one member, and the environment it acts in."""

    policy: Any
    spec: EnvSpec
    bounds: ActionBounds
    member: int
    facts: dict[str, Any]
    """Where it comes from, for the file it is written to."""

    def title(self) -> str:
        return "{algorithm} on {task}, member {member} ({label})".format(**self.facts)


def as_run(run: Run | Path | str) -> Run:
    """Return the run of a directory that is given by its path."""
    return run if isinstance(run, Run) else Run(run)


def read_actor(run: Run, member: int | None = None) -> Actor:
    """Read the policy of a member, the best one if None, from a run directory."""
    task, chosen = find_task(run.config.task), choose_member(run, member)
    policy = pick(run.policies(), chosen)
    spec, bounds = task.spec(), task.bounds()
    facts = {
        "dac": __version__,
        "algorithm": run.config.algorithm,
        "task": run.config.task,
        "member": chosen,
        "label": run.members[chosen].label(),
        "obs_size": spec.obs_size,
        "action_size": spec.action_size,
        "action_shape": list(bounds.shape),
        "action_low": bounds.low.tolist(),
        "action_high": bounds.high.tolist(),
    }
    return Actor(policy, spec, bounds, chosen, facts)


def place(run: Run, actor: Actor, path: Path | str | None, suffix: str) -> Path:
    """Return where a member's file goes: the path asked for, or a name of its own in the run directory."""
    return Path(path) if path is not None else run.directory / f"policy_member{actor.member}{suffix}"


def write_new(contents: dict[Path, bytes], force: bool) -> None:
    """Write files that do not exist yet, or with `force` in place of those that do."""
    for path in contents:
        if path.exists() and not (force and path.is_file()):
            hint = "give another --out, or --force to replace it" if path.is_file() else "it is not a file"
            raise UsageError(f"{path} exists already; {hint}")
    for path, content in contents.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {path.parent}: {error.strerror}") from None
        write_atomically(path, content)
