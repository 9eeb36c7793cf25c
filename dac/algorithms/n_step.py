"""n-step returns (Watkins, 1989), for any off-policy algorithm: the rewards of n steps, and then a value.

An algorithm bootstraps with `gamma * (1 - terminated) * V(next_obs)`. A transition of k steps has their rewards in one,
the observation after them and, where the task is not over, 1 - gamma^(k - 1) for `terminated`: to discount is to end
with a chance (Sutton, 1995). So no algorithm has to know of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from dac.algorithms.base import AbstractAround, AbstractOffPolicy, Batch, count
from dac.core.networks import AbstractPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey, Scalar, Transition


class WithReturns(AbstractAround[Any]):
    """An algorithm that learns from the rewards of n steps; its state is the algorithm's own."""

    algorithm: AbstractOffPolicy
    """What learns."""
    n_step: int = count(1, 1, 100, since="0.2")
    """Steps whose rewards are summed before the value of a state is asked for; fewer where an episode ends."""

    @property
    def lookahead(self) -> int:
        return self.n_step - 1

    def replace(self, **values: Any) -> WithReturns:
        return type(self)(self.algorithm.replace(**values), self.n_step)

    def init(self, key: PRNGKey, spec: EnvSpec) -> Any:
        return self.algorithm.init(key, spec)

    def policy(self, state: Any) -> AbstractPolicy:
        return self.algorithm.policy(state)

    def update(self, state: Any, batch: Batch, key: PRNGKey) -> tuple[Any, Metrics]:
        return self.algorithm.update(state, sum_rewards(batch, self.setting("gamma")), key)

    def refresh(self, state: Any, latest: Transition, count: Int[Array, ""]) -> Any:
        return self.algorithm.refresh(state, latest, count)


def sum_rewards(batch: Batch, gamma: Scalar) -> Batch:
    """The transitions of a batch with those that follow summed into them.

    A sum ends with an episode, and where the next row does not begin with the observation that the last one led to:
    behind the newest row, and where an environment was begun anew because it could not be saved. Only a termination
    keeps it from bootstrapping.
    """
    following = batch.following
    if following is None:
        return batch
    first = Transition(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(Transition)})
    rows: Any = _join(first, following.transitions)
    over = (rows.terminated + rows.truncated)[:, :-1] > 0
    continues = jnp.all(rows.obs[:, 1:] == rows.next_obs[:, :-1], axis=-1)
    joined = jnp.cumprod((following.exist & continues & ~over).astype(jnp.int32), axis=1)
    more = jnp.sum(joined, axis=1)  # steps after the first
    summed = jnp.concatenate([jnp.ones_like(joined[:, :1]), joined], axis=1) > 0
    discount = gamma ** jnp.arange(summed.shape[1], dtype=batch.reward.dtype)
    which = jnp.arange(len(more))
    return dataclasses.replace(
        batch,
        reward=jnp.sum(jnp.where(summed, discount[None] * rows.reward, 0), axis=1),
        terminated=1 - (1 - rows.terminated[which, more]) * discount[more],
        truncated=rows.truncated[which, more],
        next_obs=rows.next_obs[which, more],
        following=None,
    )


def _join(first: Transition, later: Transition) -> Transition:
    """Transitions (batch) and those after them (batch, step) as one, (batch, step)."""
    parts = {
        name: jnp.concatenate([value[:, None], getattr(later, name)], axis=1) for name, value in vars(first).items()
    }
    return Transition(**parts)
