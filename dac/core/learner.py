"""A model that learns: its parameters with the state of its optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

Model = TypeVar("Model", bound=eqx.Module)
Tree = TypeVar("Tree", bound=PyTree)

ADAM = optax.scale_by_adam()
OPTIMISERS: dict[str, optax.GradientTransformation] = {
    "adam": ADAM,
    "adamw": optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(1e-4)),
    "amsgrad": optax.scale_by_amsgrad(),
    "lion": optax.scale_by_lion(),
    "momentum": optax.trace(0.9),
    "nadam": optax.scale_by_adam(nesterov=True),
    "rmsprop": optax.scale_by_rms(),
    "sgd": optax.identity(),
}
"""By name, what makes a direction of a gradient, with Optax's constants; a step is the learning rate times it."""
SCHEDULES: dict[str, Callable[[Array], Array]] = {
    "constant": jnp.ones_like,
    "linear": lambda progress: 1 - progress,
    "cosine": lambda progress: 0.5 * (1 + jnp.cos(jnp.pi * progress)),
}
"""By name, the share of the learning rate that is left when this share of the run is over, from 0 to 1."""


class Learner(eqx.Module, Generic[Model]):
    """A model and what its optimiser remembers, such as Adam's moments."""

    model: Model
    opt_state: PyTree
    optimiser: optax.GradientTransformation = eqx.field(static=True, default=ADAM)

    @classmethod
    def create(cls, model: Model, optimiser: optax.GradientTransformation = ADAM) -> Learner[Model]:
        return cls(model, optimiser.init(model), optimiser)

    def descend(self, gradient: Model, learning_rate: Float[Array, ""] | float) -> Learner[Model]:
        """One step down the gradient. The learning rate is an argument, so that it can differ per member."""
        direction, opt_state = self.optimiser.update(gradient, self.opt_state, self.model)
        model = jax.tree.map(lambda p, d: p - learning_rate * d, self.model, direction)
        return Learner(model, opt_state, self.optimiser)


def moving_average(target: Model, online: Model, rate: Float[Array, ""] | float) -> Model:
    """Exponential moving average: target + rate * (online - target).

    Not `optax.incremental_update`, rate * online + (1 - rate) * target: that rounds a quarter of the entries otherwise,
    and recorded runs could no longer be repeated, or resumed, to the bit.
    """
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)


def replace_if(due: Bool[Array, ""], new: Tree, old: Tree) -> Tree:
    """The new tree where it is due, else the old: what is learnt only every so many updates.

    A select and not a branch, since mapping over members would turn a branch into one.
    """
    return jax.tree.map(lambda n, o: jnp.where(due, n, o), new, old)


def gradient_with_values(loss: Callable[[Model], tuple[Any, Any]]) -> Callable[[Model], tuple[tuple[Any, Any], Model]]:
    """From `loss(model) -> (loss, values)` to `model -> ((loss, values), gradient)`."""
    return jax.value_and_grad(loss, has_aux=True)
