"""A beta that learns to hold the entropy near a target (ours for DAC; Haarnoja et al. 2018 for SAC).

The paper's beta weighs the entropy against the reward. Here it is the multiplier of a constraint instead:

    maximise E[sum gamma^t r]   where   H(m(.|s)) >= h on average,

    L(pi, beta) = E[sum gamma^t (r + beta (H(m) - h))],     dL/dbeta = H(m) - h   in every step,

so beta falls while the mixture's entropy is above the target h, and rises below it. Alpha's own problem, Eq. C.2, holds
neither reward nor beta: both can adapt at once. With SAC, or DAC at alpha = 1, this is SAC's adaptation.

While beta moves, values are in units of reward: in the paper's units of entropy all of them would change with it, and
critics that follow behind let a beta that started too low rise past its place (`docs/research/joint-adaptation.md`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, choice, number
from dac.core.learner import Learner
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition, float_dtype

LOWEST, HIGHEST = math.log(1e-6), math.log(1e6)
"""log beta stays between these, where no target can be held by it."""


class Temperature(eqx.Module):
    """What is learned: log beta, so that beta stays positive and moves by factors."""

    log_beta: Scalar


class WithTemperatureState(eqx.Module):
    """What an algorithm with a learned beta has learnt."""

    algorithm: Any
    """State of the algorithm."""
    temperature: Learner[Temperature]
    """beta and what Adam remembers of it."""


class WithTemperature(AbstractAround[WithTemperatureState]):
    """An algorithm whose beta is learned, so that the entropy it is paid for stays near a target."""

    algorithm: AbstractOffPolicy
    """What learns with that beta; its own is where beta starts."""
    entropy_target: float = number(-1.0, since="0.2")
    """The entropy that an adapted beta holds, of the policy or the mixture, in multiples of the action size."""
    beta_rate: float = number(1.0, 0, 100, since="0.2")
    """Adam's step size for log beta, in multiples of the networks'."""
    temperature: str = choice("fixed", ("fixed", "adapt"), since="0.2")
    """Keep beta fixed, or adapt it until the entropy is entropy_target; then beta is where it starts."""

    def replace(self, **values: Any) -> WithTemperature:
        own: dict[str, Any] = {n: values.pop(n) for n in ("entropy_target", "beta_rate") if n in values}
        return dataclasses.replace(self, algorithm=self.algorithm.replace(**values), **own)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithTemperatureState:
        start = Temperature(jnp.log(jnp.asarray(self.setting("beta"), float_dtype())))
        return WithTemperatureState(self.algorithm.init(key, spec), Learner.create(start))

    def policy(self, state: WithTemperatureState) -> AbstractPolicy:
        return self.algorithm.policy(state.algorithm)

    def update(self, state: WithTemperatureState, batch: Batch, key: PRNGKey) -> tuple[WithTemperatureState, Metrics]:
        """The algorithm's update with the present beta, and one step of beta by the entropy that it found."""
        beta: Any = jnp.exp(state.temperature.model.log_beta)
        units = "reward" if (given := self.setting("value_units")) == "auto" else given
        inner, metrics = self.algorithm.replace(beta=beta, value_units=units).update(state.algorithm, batch, key)
        entropy = metrics["mixture_entropy" if "mixture_entropy" in metrics else "policy_entropy"]
        excess = entropy - self.entropy_target * batch.action.shape[-1]
        rate = self.beta_rate * self.setting("learning_rate")
        learned = state.temperature.descend(Temperature(excess), rate)
        bounded = Temperature(jnp.clip(learned.model.log_beta, LOWEST, HIGHEST))
        temperature = dataclasses.replace(learned, model=bounded)
        return WithTemperatureState(inner, temperature), metrics | {"temperature": beta, "entropy_excess": excess}

    def refresh(self, state: WithTemperatureState, latest: Transition, count: Int[Array, ""]) -> WithTemperatureState:
        return WithTemperatureState(self.algorithm.refresh(state.algorithm, latest, count), state.temperature)
