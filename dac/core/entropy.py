"""The paper's mathematics: sample-aware entropy, written with one log-density ratio.

The paper learns R = alpha pi / (alpha pi + (1 - alpha) q). We write everything with the log-ratio

    f(s, a) = log pi(a|s) - log q(a|s),        R = sigmoid(f + log alpha - log(1 - alpha)),

which is the same function, but has no singular point: with m = alpha pi + (1 - alpha) q,

    log R       - log alpha        =  log pi/m  =  f - log(alpha e^f + 1 - alpha)
    log (1 - R) - log(1 - alpha)   =  log q/m   =    - log(alpha e^f + 1 - alpha)

are finite for every alpha in [0, 1]. At alpha = 1 the first is exactly 0, so DAC *is* SAC there and no guard is
needed; and the best f does not depend on alpha, so it need not be relearned while alpha adapts.

Every function but `value_reward` works elementwise on arrays; alpha may be a number or one value per state.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LOG_RATIO_BOUND = 46.0
"""|f| is held below this wherever f is used as a value (the authors' log(R + 1e-20) has its floor there)."""

Values = Float[Array, "*batch"]
"""One number per state or action."""
Alpha = Float[Array, "*batch"] | float
"""A weight for all states, or one per state."""
Number = Float[Array, ""] | float
"""One number."""


def _log_mix_over_q(f: Values, alpha: Alpha) -> Values:
    """log(alpha e^f + 1 - alpha) = log m/q, exact at alpha = 0 and alpha = 1."""
    return jnp.logaddexp(f + jnp.log(alpha), jnp.log1p(-jnp.asarray(alpha)))


def log_pi_over_mix(f: Values, alpha: Alpha) -> Values:
    """log pi/m = log R - log alpha."""
    f = jnp.clip(f, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return f - _log_mix_over_q(f, alpha)


def log_q_over_mix(f: Values, alpha: Alpha) -> Values:
    """log q/m = log(1 - R) - log(1 - alpha)."""
    f = jnp.clip(f, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return -_log_mix_over_q(f, alpha)


def minus_log_mix(f: Values, log_pi: Values, alpha: Alpha) -> Values:
    """-log m(a|s) = log R - log(alpha pi), the integrand of the sample-aware entropy. Eq. 10, Han & Sung 2021."""
    return log_pi_over_mix(f, alpha) - log_pi


def mixture_entropy(at_pi: Values, at_q: Values, alpha: Alpha) -> Values:
    """H(m) from -log m at an action of the policy and at an action of the ring. Eq. 10, Han & Sung 2021."""
    return alpha * at_pi + (1 - alpha) * at_q


def kl_divergence(f_pi: Values) -> Values:
    """D_KL(pi || q) = E_pi[f], from the log-ratio at an action of the policy."""
    return jnp.clip(f_pi, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def js_divergence(f_pi: Values, f_q: Values, alpha: Alpha) -> Values:
    """The alpha-skewed Jensen-Shannon divergence D_JS(pi || q). Below Eq. 6, Han & Sung 2021.

    f_pi is the log-ratio at an action of the policy, f_q at an action of the ring.
    """
    return alpha * log_pi_over_mix(f_pi, alpha) + (1 - alpha) * log_q_over_mix(f_q, alpha)


def ratio_weight(alpha: Alpha) -> Values:
    """The mixture in which f is learned: alpha itself, or 1/2 where alpha = 0 or 1 would teach nothing.

    The best f is the same for every weight, so a SAC member (alpha = 1) can train f beside it, passively.
    """
    alpha = jnp.asarray(alpha)
    return jnp.where((alpha <= 0) | (alpha >= 1), 0.5, alpha)


def ratio_objective(f_pi: Values, f_q: Values, alpha: Alpha) -> Values:
    """alpha log R at an action of the policy + (1 - alpha) log(1 - R) at one of the ring. Eq. 18, Han & Sung 2021."""
    weight = ratio_weight(alpha)
    offset = jnp.log(weight) - jnp.log1p(-weight)
    return weight * jax.nn.log_sigmoid(f_pi + offset) + (1 - weight) * jax.nn.log_sigmoid(-f_q - offset)


def clip_q_term(minus_log_mix_at_q: Values, bound: Number) -> Values:
    """Clip the replay buffer's part of the entropy to [-bound, bound]; the paper's bound is dim A. Eq. C.1.

    No bound is wider than that of the log-ratio: while f is held there, -log pi(a|s) of a stored action grows without
    limit as the policy narrows, and the difference would be taken for entropy.
    """
    bound = jnp.minimum(bound, LOG_RATIO_BOUND)
    return jnp.clip(minus_log_mix_at_q, -bound, bound)


def value_reward(entropy: Float[Array, " batch"], weight: Number) -> Float[Array, " batch"]:
    """What a value target is paid for the entropy of its state: weight times the entropy. Eq. C.1 has weight 1.

    A negative weight leads to states of *low* entropy, which the policy has not learned about yet (max-min entropy, Han
    & Sung, NeurIPS 2021). The entropies are then measured from the batch's largest, or from 0 if that is negative, so
    that no state is paid less than nothing: |weight| (-entropy - min(0, min over the batch of -entropy)).
    """
    largest = jnp.maximum(jnp.max(entropy), 0)
    return weight * (entropy - jnp.where(jnp.asarray(weight) < 0, largest, 0))


def policy_objective(q_value: Values, f_pi: Values, log_pi: Values, alpha: Alpha) -> Values:
    """Q(s, a_pi) + alpha (log R - log pi), up to a constant, with the ratio frozen. Eq. 17, Han & Sung 2021."""
    return q_value + alpha * (log_pi_over_mix(f_pi, alpha) - log_pi)


def alpha_loss(
    at_pi: Values, at_q: Values, alpha: Values, control: Number, bound: Number, *, differentiate_log: bool
) -> Values:
    """H(m) - alpha c as a function of alpha alone, the ring's term clipped to [-bound, bound]. Eq. C.2.

    The gradient is Eq. C.3, `(at_pi - c) - clip(at_q)`, where -log alpha inside -log m is a constant because the terms
    it would add integrate to zero. The authors' code differentiates it all the same, with the ratio frozen, which adds
    -1/alpha, and -1 where the clip is active: `differentiate_log`. `at_pi` and `at_q` are -log m at the present alpha,
    `at_q` not yet clipped.
    """
    at_pi, at_q = jax.lax.stop_gradient((at_pi, at_q))
    if differentiate_log:
        minus_log_alpha = -jnp.log(alpha) + jax.lax.stop_gradient(jnp.log(alpha))  # zero, with a gradient
        at_pi, at_q = at_pi + minus_log_alpha, at_q + minus_log_alpha
    return alpha * (at_pi - control) + (1 - alpha) * clip_q_term(at_q, bound)


def saturation(f_pi: Values, f_q: Values) -> Float[Array, ""]:
    """Share of log-ratios beyond +-10: the ratio network tells the two apart too well to say by how much."""
    return 0.5 * (jnp.mean(jnp.abs(f_pi) > 10) + jnp.mean(jnp.abs(f_q) > 10))
