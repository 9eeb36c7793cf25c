"""The contract between an algorithm and everything else.

An algorithm is a module whose float fields are pytree leaves: hyperparameters that may differ per member of a
population without compiling anew. What changes a shape or a Python branch is a static field. It is written for one
member; it never sees the member axis, an environment or the ring.

There are two kinds. `AbstractOffPolicy` learns from batches drawn out of the ring at every step; `AbstractOnPolicy`
from all transitions of the latest stretch of time, in order, whenever one is complete.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Int

from dac.core import fused
from dac.core.architectures import ACTIVATIONS, NETWORKS, NORMS, Architecture
from dac.core.learner import OPTIMISERS, Learner, Model
from dac.core.networks import AbstractPolicy
from dac.core.population import AbstractVariable
from dac.core.precision import AUTO, PRECISIONS, settled
from dac.core.types import EnvSpec, Metrics, PRNGKey, Transition

State = TypeVar("State", bound=eqx.Module)


def static(default: Any, *, since: str | None = None) -> Any:
    """A field that is part of the program, not of the data: another value is another compilation.

    `since` is explained at `RunConfig.fingerprint`.
    """
    return eqx.field(default=default, static=True, metadata={"since": since})


def count(default: int, low: int = 1, high: int = 1_000_000, *, since: str | None = None) -> Any:
    """A static whole number in [low, high]; for `since` see `RunConfig.fingerprint`."""
    return eqx.field(default=default, static=True, metadata={"low": low, "high": high, "since": since})


def number(
    default: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    follows: str | None = None,
    since: str | None = None,
) -> Any:
    """A hyperparameter in [low, high]: a leaf, so it may differ per member of one compiled program.

    With `follows`, it is the value of that training setting unless it is given. `since` is explained at
    `RunConfig.fingerprint`.
    """
    return eqx.field(default=default, metadata={"low": low, "high": high, "follows": follows, "since": since})


def choice(default: str, choices: Iterable[str], *, since: str | None = None) -> Any:
    """A static field that holds one of these names; for `since` see `RunConfig.fingerprint`."""
    return eqx.field(default=default, static=True, metadata={"choices": choices, "since": since})


class AbstractAlgorithm(AbstractVariable, Generic[State]):
    """What both kinds have in common."""

    @abc.abstractmethod
    def init(self, key: PRNGKey, spec: EnvSpec) -> State:
        """Fresh networks and optimisers."""

    @abc.abstractmethod
    def policy(self, state: State) -> AbstractPolicy:
        """The part of the state that acts."""


class AbstractNetworkSettings(AbstractAlgorithm[State]):
    """The settings of an algorithm that say how its networks are built."""

    hidden: tuple[int, ...] = static((256, 256))
    """Hidden layer sizes, for every network."""
    network: str = choice("mlp", NETWORKS, since="0.2")
    """Architecture of every network: fully connected layers, or SimBa's residual blocks, one per hidden layer."""
    activation: str = choice("relu", ACTIVATIONS, since="0.2")
    """Activation function of hidden layers."""
    norm: str = choice("none", NORMS, since="0.2")
    """Layer norm of hidden layers before their activation, or none."""
    precision: str = choice("float32", (*PRECISIONS, AUTO), since="0.2")
    """Of the networks' matrix products: float32, tf32, bf16, or (auto) the fastest as measured at the start."""
    kernels: str = choice("auto", fused.KERNELS, since="0.2")
    """Fused passes of the networks on a GPU; auto is off as long as nothing was measured."""

    def __check_init__(self) -> None:
        NETWORKS[self.network].check(self.hidden, self.norm)

    @property
    def architecture(self) -> Architecture:
        """What every network is built by."""
        return Architecture(
            self.hidden, self.network, self.activation, self.norm, settled(self.precision), fused.settled(self.kernels)
        )

    def learner(
        self, build: Callable[[PRNGKey, EnvSpec, Architecture], Model], key: PRNGKey, spec: EnvSpec
    ) -> Learner[Model]:
        """A fresh network of this architecture with its optimiser."""
        return Learner.create(build(key, spec, self.architecture))


class AbstractDescent(AbstractNetworkSettings[State]):
    """The settings of an algorithm whose networks all descend gradients by the same optimiser."""

    optimiser: str = choice("adam", OPTIMISERS, since="0.2")
    """What makes a step of a gradient, for every network; the learning rate scales it."""

    def learner(
        self, build: Callable[[PRNGKey, EnvSpec, Architecture], Model], key: PRNGKey, spec: EnvSpec
    ) -> Learner[Model]:
        return Learner.create(build(key, spec, self.architecture), OPTIMISERS[self.optimiser])


class Recent(eqx.Module):
    """Transitions drawn from the latest ones only."""

    transitions: Transition
    """As many transitions as a batch has."""
    whole: Bool[Array, ""]
    """Whether the window still covers the whole replay buffer, so that these transitions are like any others."""


class Following(eqx.Module):
    """What happened after the transitions of a batch, in the same environments, step by step."""

    transitions: Transition
    """With axes (batch, step)."""
    exist: Bool[Array, "batch step"]
    """Whether there is such a row; where there is none, the last one stands once more."""


class Batch(Transition):
    """Transitions drawn from the replay buffer for one update."""

    recent: Recent | None = None
    """As many of the latest transitions, for an algorithm that asks for them; None for all others."""
    following: Following | None = None
    """The steps after these, for an algorithm that looks ahead; None for all others."""


class AbstractOffPolicy(AbstractAlgorithm[State]):
    """Learns from batches of the replay buffer, one gradient step each."""

    @property
    @abc.abstractmethod
    def batch_size(self) -> int:
        """Transitions per update."""

    @abc.abstractmethod
    def update(self, state: State, batch: Batch, key: PRNGKey) -> tuple[State, Metrics]:
        """Take one gradient step on a batch, and say what was measured on the way."""

    @property
    def recent(self) -> int:
        """How many of the latest transitions `Batch.recent` is drawn from; 0 for none."""
        return 0

    @property
    def lookahead(self) -> int:
        """How many steps of `Batch.following` come with every transition of a batch; 0 for none."""
        return 0

    @property
    def refresh_every(self) -> int:
        """Environment steps between calls of `refresh`; 0 for none."""
        return 0

    @property
    def refresh_window(self) -> int:
        """How many of the latest transitions `refresh` is to see."""
        return 0

    def refresh(self, state: State, latest: Transition, count: Int[Array, ""]) -> State:
        """Look at the latest transitions as a whole, newest first; of the rows given, `count` hold something."""
        del latest, count
        return state

    @property
    def watches(self) -> bool:
        """Whether `watch` is called."""
        return False

    def watch(self, state: State, latest: Transition, valid: Bool[Array, ""]) -> State:
        """Look at the new transition of every environment, in every step; before the first there is none to look at."""
        del latest, valid
        return state


class AbstractAround(AbstractOffPolicy[State]):
    """An algorithm around another one, which it asks for everything that it does not change."""

    algorithm: eqx.AbstractVar[AbstractOffPolicy]
    """What learns."""

    @property
    def batch_size(self) -> int:
        return self.algorithm.batch_size

    @property
    def recent(self) -> int:
        return self.algorithm.recent

    @property
    def lookahead(self) -> int:
        return self.algorithm.lookahead

    @property
    def refresh_every(self) -> int:
        return self.algorithm.refresh_every

    @property
    def refresh_window(self) -> int:
        return self.algorithm.refresh_window

    @property
    def watches(self) -> bool:
        return self.algorithm.watches

    def watch(self, state: State, latest: Transition, valid: Bool[Array, ""]) -> State:
        return self.algorithm.watch(state, latest, valid)  # where the state is the algorithm's own

    def setting(self, name: str) -> Any:
        """A hyperparameter of the algorithm, which may itself be around another one."""
        algorithm: Any = self.algorithm
        while not hasattr(algorithm, name):
            algorithm = algorithm.algorithm
        return getattr(algorithm, name)


class AbstractOnPolicy(AbstractAlgorithm[State]):
    """Learns from what its present policy did."""

    rollout: eqx.AbstractVar[int]
    """Environment steps between two updates, over all parallel environments of the member."""

    @abc.abstractmethod
    def update(self, state: State, rollout: Transition, key: PRNGKey) -> State:
        """Learn from a whole rollout, its axes (time, env)."""

    @abc.abstractmethod
    def metrics(self, state: State) -> Metrics:
        """What the last update measured."""
