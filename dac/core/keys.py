"""Every random key of the package is derived here.

A key depends on the member's seed, on what it is for, and on the step number, never on the member's place in the
population or on what was drawn before. So a member is the same agent alone and among a hundred, evaluating more often
changes nothing in training, and a resumed run needs no key to be saved:

    root -> member (seed) -> stream (train, evaluate, initialise, ...) -> step -> one named key per use
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from dac.core.types import PRNGKey

ROOT = 20210718  # the first day of ICML 2021
TRAIN, EVALUATE, INIT, MEASURE, RESET, PREDICT = range(6)
"""The streams of one member."""
RECENT, BONUS, AUTO_ENCODER, METRIC, OFFLINE = 0x4ECE0000, 0x60405000, 0x7AE00000, 0x3E741C00, 0x0FF11E00
REWARD_NOISE = 0x5E40A000
"""Purposes of a side key."""


def member_key(seed: Any) -> PRNGKey:
    """The key from which every other key of a member is derived."""
    return jax.random.fold_in(jax.random.key(ROOT), seed)


def stream(key: PRNGKey, which: int, step: Any = 0) -> PRNGKey:
    """The key of one member for one stream at one step."""
    return jax.random.fold_in(jax.random.fold_in(key, which), step)


class StepKeys(NamedTuple):
    """The keys of one member at one training step, one per use."""

    policy: PRNGKey
    uniform: PRNGKey
    learn: PRNGKey
    env: PRNGKey


def step_keys(key: PRNGKey, step: Int[Array, ""]) -> StepKeys:
    """The keys of one member at training step `step`."""
    return StepKeys(*jax.random.split(stream(key, TRAIN, step), 4))


def side_key(key: PRNGKey, purpose: int) -> PRNGKey:
    """A key beside one that is also used as it is, so that what is drawn from the first does not change.

    `fold_in(key, i)` equals `split(key)[i]`, so the purposes are numbers far beyond every split.
    """
    return jax.random.fold_in(key, purpose)


def env_seed(seed: int, which: int, step: int, index: int) -> int:
    """The seed of one host environment, from the member's seed, the stream, the step and the environment's number."""
    return int(np.random.SeedSequence([ROOT, which, seed, step, index]).generate_state(1)[0])
