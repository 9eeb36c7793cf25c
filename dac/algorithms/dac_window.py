"""The q' study of Section 6.3, Han & Sung 2021: DAC away from the latest actions only.

q' is the distribution of the actions of the latest N' transitions. DAC needs actions of q' at states of the whole
replay buffer, most of which are not among the latest, so a conditional auto-encoder learns q' and draws them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from dac.algorithms.base import AbstractAround, Batch, count, number
from dac.algorithms.dac import DAC, State
from dac.algorithms.parts.vae import ConditionalVAE, learn_and_draw
from dac.core.keys import AUTO_ENCODER, side_key
from dac.core.learner import Learner
from dac.core.networks import SquashedGaussianPolicy
from dac.core.types import EnvSpec, Metrics, PRNGKey


class WithWindowState(State):
    vae: Learner[ConditionalVAE] | None


class WithWindow(AbstractAround[WithWindowState]):
    """DAC whose q is that of the latest transitions, or DAC itself while there is no window."""

    algorithm: DAC
    """DAC with its own settings."""
    q_kl_weight: float = number(0.5, 0)
    """Weight of the latent's KL in the auto-encoder of --q-window, BCQ's; smaller is sharper, with modes less exact."""
    q_noise: float = number(1.0, 0)
    """Noise on the actions drawn with --q-window, in multiples of the reconstruction error; 0 adds none."""
    q_window: int = count(0, 0, 2**31 - 1)
    """Let q be the actions of the latest X transitions, by an auto-encoder; 0 for the whole replay buffer."""

    @property
    def recent(self) -> int:
        return self.q_window

    def replace(self, **values: Any) -> WithWindow:
        own: dict[str, Any] = {n: values.pop(n) for n in ("q_kl_weight", "q_noise") if n in values}
        return dataclasses.replace(self, algorithm=self.algorithm.replace(**values), **own)

    def init(self, key: PRNGKey, spec: EnvSpec) -> WithWindowState:
        vae_key = side_key(key, AUTO_ENCODER)
        vae = self.algorithm.learner(ConditionalVAE, vae_key, spec) if self.q_window else None
        return WithWindowState(**vars(self.algorithm.init(key, spec)), vae=vae)

    def policy(self, state: WithWindowState) -> SquashedGaussianPolicy:
        return self.algorithm.policy(state)

    def update(self, state: WithWindowState, batch: Batch, key: PRNGKey) -> tuple[WithWindowState, Metrics]:
        """DAC's update, with actions of q' where it has those of q."""
        vae, action_q, vae_metrics = self._buffer_actions(state, batch, key)
        new_state, metrics = self.algorithm.learn(state, batch, action_q, key)
        return WithWindowState(**vars(new_state) | {"vae": vae}), metrics | vae_metrics

    def _buffer_actions(
        self, state: WithWindowState, batch: Batch, key: PRNGKey
    ) -> tuple[Learner[ConditionalVAE] | None, Float[Array, "batch action"], Metrics]:
        """Actions of q' at the batch's states, from an auto-encoder that learns in passing.

        Without a window, and while it covers the whole replay buffer, they are the stored ones.
        """
        if state.vae is None or batch.recent is None:
            return state.vae, batch.action, {}
        vae, drawn, metrics = learn_and_draw(
            state.vae,
            batch.recent.transitions,
            batch.obs,
            side_key(key, AUTO_ENCODER),
            self.algorithm.learning_rate,
            self.q_kl_weight,
            self.q_noise,
        )
        return vae, jnp.where(batch.recent.whole, batch.action, drawn), metrics
