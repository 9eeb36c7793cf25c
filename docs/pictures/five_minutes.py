"""Draw the picture of docs/five-minutes.md with the package's own functions: python docs/pictures/five_minutes.py"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from dac.core import entropy
from dac.core.networks import Gaussian

ALPHA = 0.5
ACTIONS = jnp.linspace(-0.998, 0.998, 999)
MEANS = jnp.linspace(-1.5, 1.5, 61)
BLUE, ORANGE, GREY = "#1f77b4", "#d95f02", "#555555"


def log_density(mean: float, log_std: float) -> jax.Array:
    """log of a squashed Gaussian's density at every action."""
    policy = Gaussian(jnp.array([mean]), jnp.array([log_std]))
    return jax.vmap(lambda action: policy.log_prob(action[None]))(ACTIONS)


def integral(values: jax.Array) -> jax.Array:
    return jnp.trapezoid(values, ACTIONS)


LOG_Q = jnp.logaddexp(jnp.log(0.7) + log_density(-0.75, -1.2), jnp.log(0.3) + log_density(0.0, -0.6))
"""What the replay buffer holds for this state: mostly actions to the left."""


def entropy_of_mixture(mean: float, alpha: float) -> jax.Array:
    """H(alpha pi + (1 - alpha) q) for a policy with this mean; its own entropy at alpha = 1."""
    log_pi = log_density(mean, -1.0)
    minus_log_m = entropy.minus_log_mix(log_pi - LOG_Q, log_pi, alpha)
    at_pi, at_q = integral(jnp.exp(log_pi) * minus_log_m), integral(jnp.exp(LOG_Q) * minus_log_m)
    return entropy.mixture_entropy(at_pi, at_q, alpha)


def draw(path: Path) -> None:
    """Write the three panels."""
    log_pi = log_density(-0.2, -1.0)
    f = log_pi - LOG_Q
    minus_log_m = entropy.minus_log_mix(f, log_pi, ALPHA)
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (densities, pays, push) = plt.subplots(1, 3, figsize=(10.5, 3.0), layout="constrained")

    densities.fill_between(ACTIONS, jnp.exp(LOG_Q), color=GREY, alpha=0.25, lw=0, label="q, replay buffer")
    densities.plot(ACTIONS, jnp.exp(log_pi), color=BLUE, label="π, policy")
    densities.plot(ACTIONS, jnp.exp(-minus_log_m), color=ORANGE, label="m = ½ π + ½ q")
    densities.set(title="Three densities over one action", xlabel="action", ylabel="density", ylim=(0, None))

    pays.plot(ACTIONS, -log_pi, color=BLUE, label=r"SAC: $-$log π(a)")
    pays.plot(ACTIONS, minus_log_m, color=ORANGE, label=r"DAC: $-$log m(a)")
    pays.set(title="What an action is paid, beside reward", xlabel="action", ylabel="bonus", ylim=(-1, 5))

    for alpha, colour, label in ((1.0, BLUE, "SAC: H(π)"), (ALPHA, ORANGE, "DAC: H(m)")):
        heights = jax.vmap(lambda mean, alpha=alpha: entropy_of_mixture(mean, alpha))(MEANS)
        best = jnp.argmax(heights)
        push.plot(jnp.tanh(MEANS), heights, color=colour, label=label)
        push.plot(jnp.tanh(MEANS[best]), heights[best], "o", color=colour)
    push.set(title="Where the policy is pushed to", xlabel="the policy's action without noise", ylabel="entropy")

    for axis in (densities, pays, push):
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(__file__).parents[1] / "five-minutes.png")
