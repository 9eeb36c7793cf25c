"""What the actor-critics with a value network share: SAC, DAC, SAC-Div, DE-MME and what the state bonuses stand on.

Only settings and construction are here. Each algorithm's own file shows all of its losses.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
from jaxtyping import Array, Float

from dac.algorithms.base import AbstractDescent, AbstractOffPolicy, State, choice, count, number, static
from dac.core.architectures import Architecture
from dac.core.networks import ActionValue, StateValue
from dac.core.types import EnvSpec, PRNGKey

Build = Callable[[PRNGKey, EnvSpec, Architecture], eqx.Module]


class AbstractActorCritic(AbstractDescent[State], AbstractOffPolicy[State]):
    """A policy, twin critics, and a value network whose moving average is the critics' target."""

    gamma: float = number(0.99, 0, 1)
    """Discount factor."""
    learning_rate: float = number(3e-4, 0, 1)
    """Adam's step size, for every network."""
    tau: float = number(0.005, 0, 1)
    """Rate of the moving average that makes the target value network."""
    policy_q: Literal["first", "min"] = static("first")
    """Q-value in the policy objective: the first network's (the authors' code), or the smaller one (the paper)."""
    batch_size: int = count(256)
    """Transitions per update."""

    def actor_critic(
        self, policy: Build, spec: EnvSpec, policy_key: PRNGKey, critics_key: PRNGKey, value_key: PRNGKey
    ) -> dict[str, Any]:
        """Fresh networks with their optimisers, by their names in the state."""
        value = self.learner(StateValue, value_key, spec)
        return {
            "policy": self.learner(policy, policy_key, spec),
            "critics": self.learner(ActionValue.twins, critics_key, spec),
            "value": value,
            "value_target": value.model,  # the authors' code starts from one EMA step towards another network; we copy
        }


class AbstractMaximumEntropy(AbstractActorCritic[State]):
    """An actor-critic that weighs an entropy against the reward: return + beta * entropy.

    The paper measures values in units of entropy, so that rewards are divided by beta. Measured in units of reward they
    are beta times as large, and so is the entropy in them: the same problem, but then values need not be learnt anew
    when beta changes.
    """

    value_units: str = choice("auto", ("auto", "entropy", "reward"), since="0.2")
    """Divide rewards by beta (entropy, the paper) or multiply entropies by it (reward); auto: reward if beta adapts."""

    @property
    @abc.abstractmethod
    def beta(self) -> float:
        """Entropy coefficient: a field of each algorithm, for the order of its fields is that of a grid's members."""

    @property
    def price(self) -> Float[Array, ""] | float:
        """What a nat of entropy is worth in units of values."""
        return self.beta if self.value_units == "reward" else 1.0

    def in_units(self, reward: Float[Array, " batch"]) -> Float[Array, " batch"]:
        """Rewards in units of values."""
        return reward if self.value_units == "reward" else reward / self.beta
