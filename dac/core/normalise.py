"""Running mean and variance, and inputs brought to unit scale with them."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from dac.core.types import Scalar, float_dtype


class Moments(eqx.Module):
    """Mean and variance, per entry, of everything seen so far; of nothing, they are 0 and 1."""

    count: Scalar
    mean: Float[Array, " size"]
    variance: Float[Array, " size"]

    @classmethod
    def create(cls, size: int) -> Moments:
        return cls(jnp.zeros((), float_dtype()), jnp.zeros(size, float_dtype()), jnp.ones(size, float_dtype()))

    def add(self, values: Float[Array, "batch size"], valid: Bool[Array, " batch"] | None = None) -> Moments:
        """The moments of all values so far and these, where `valid` (Chan, Golub & LeVeque 1979)."""
        weight = jnp.ones(values.shape[0], values.dtype) if valid is None else valid.astype(values.dtype)
        count = jnp.sum(weight)
        mean = weight @ values / jnp.maximum(count, 1)
        variance = weight @ (values - mean[None]) ** 2 / jnp.maximum(count, 1)
        total = jnp.maximum(self.count + count, 1)
        delta = mean - self.mean
        squares = self.variance * self.count + variance * count + delta**2 * self.count * count / total
        return Moments(
            count=self.count + count,
            mean=self.mean + delta * count / total,
            variance=jnp.where(self.count + count > 0, squares / total, self.variance),
        )

    def whiten(self, value: Float[Array, "*axes size"], bound: float) -> Float[Array, "*axes size"]:
        """(value - mean) / standard deviation, clipped to [-bound, bound]."""
        shape = (1,) * (value.ndim - 1) + self.mean.shape
        mean, variance = self.mean.reshape(shape), self.variance.reshape(shape)
        return jnp.clip((value - mean) / jnp.sqrt(variance + 1e-8), -bound, bound)
