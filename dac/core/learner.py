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


class Learner(eqx.Module, Generic[Model]):
    """A model and its Adam moments."""

    model: Model
    opt_state: PyTree

    @classmethod
    def create(cls, model: Model, optimiser: optax.GradientTransformation = ADAM) -> Learner[Model]:
        return cls(model, optimiser.init(model))

    def descend(
        self,
        gradient: Model,
        learning_rate: Float[Array, ""] | float,
        optimiser: optax.GradientTransformation = ADAM,
    ) -> Learner[Model]:
        """One step down the gradient. The learning rate is an argument, so that it can differ per member."""
        direction, opt_state = optimiser.update(gradient, self.opt_state, self.model)
        model = jax.tree.map(lambda p, d: p - learning_rate * d, self.model, direction)
        return Learner(model, opt_state)


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
