"""Successive halving in populations of one size: how many there are on each rung, and how far each is trained.

All populations have the same number of slots, so all of them run one program. On the lowest rung every slot holds a
new trial. The best trials of `eta` populations of a rung fill one population of the next rung, which is trained `eta`
times as far; the slots of the others are free for new trials on the lowest rung.
"""

from __future__ import annotations

import dataclasses
import itertools

from dac.config import RunConfig
from dac.core.types import UsageError


@dataclasses.dataclass(frozen=True)
class Ladder:
    """How many populations each rung has, and the step at which it ends."""

    counts: tuple[int, ...]
    steps: tuple[int, ...]
    eta: int

    @property
    def last(self) -> int:
        """The number of the last rung, on which there is one population."""
        return len(self.counts) - 1

    def begin(self, rung: int) -> int:
        """The step at which the populations of a rung begin."""
        return self.steps[rung - 1] if rung else 0

    def block(self, rung: int, number: int) -> int:
        """How many populations of this rung population `number` of the next one is chosen from."""
        rest = self.counts[rung] - number * self.eta
        return rest if number == self.counts[rung + 1] - 1 else self.eta


def learning_begins(config: RunConfig) -> int:
    """The environment step after which there are updates; what was evaluated before says nothing of the settings."""
    schedule = config.schedule()
    return schedule.rollout or schedule.first_update * schedule.envs


def make_ladder(config: RunConfig, trials: int, at_once: int, eta: int, last: int) -> Ladder:
    """Lay out the rungs for so many trials, of which one population holds `at_once`.

    Each ends with `last` evaluations, or more, of agents that have learnt.
    """
    counts = [-(-trials // at_once)]
    while counts[-1] > 1:
        counts.append(max(1, counts[-1] // eta))
    schedule, whole = config.schedule(), config.training.steps
    period = schedule.eval_iterations * schedule.envs
    rungs = len(counts)
    steps = [max(1, round(whole / eta ** (rungs - 1 - rung) / period)) * period for rung in range(rungs - 1)]
    steps.append(schedule.iterations * schedule.envs)
    learning = learning_begins(config)
    measured = steps[0] // period - learning // period
    if any(a >= b for a, b in itertools.pairwise(steps)) or (rungs > 1 and measured < last):
        raise UsageError(
            f"{rungs} rungs do not fit into {whole:,} steps: they would end at {', '.join(f'{s:,}' for s in steps)}, "
            f"the first one with {max(0, measured)} evaluations (every {period:,} steps) after learning has begun (at "
            f"{learning:,}), of which `last={last}` asks for {last}; give more steps, evaluate more often, or give "
            "more slots or fewer trials, which need fewer rungs"
        )
    return Ladder(tuple(counts), tuple(steps), eta)
