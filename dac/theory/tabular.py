"""Diverse policy iteration on finite MDPs, exact: the theory of Han & Sung 2021 as code, in NumPy and float64.

The sample action distribution q is fixed, as in Section 4 of the paper, and m = alpha pi + (1 - alpha) q is the
mixture. Everything rests on one identity, valid wherever its terms are (Lemma 3):

    -log m  =  log R - log alpha pi  =  log (1 - R) - log (1 - alpha) q.

Two readings of the paper are made here. Eq. 8 is taken with gamma^(l - t), without which it would not be the fixed
point of Eq. 11. And at alpha = 0 the entropy is that of q: no action can change it, but states with a diverse q are
still worth more, so alpha = 0 is plain reinforcement learning only where H(q) is the same in every state.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike

from dac.core.types import UsageError

PerState: TypeAlias = Float64[np.ndarray, " state"]
PerAction: TypeAlias = Float64[np.ndarray, "state action"]

SUM_TOLERANCE = 1e-8
"""How far the sum of a distribution may be from 1."""
SMALLEST_ALPHA = 1e-12
"""Below this the policy moves the mixture by less than float64 can tell apart, and improvement is greedy."""


def _numbers(name: str, array: ArrayLike, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The array in float64, if it is finite and has this shape."""
    try:
        numbers = np.array(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError(f"{name} is not an array of numbers") from None
    if shape is not None and numbers.shape != shape:
        raise UsageError(f"{name} has shape {numbers.shape}, not {shape}")
    if not np.isfinite(numbers).all():
        raise UsageError(f"{name} has entries that are not finite")
    return numbers


def _distribution(name: str, array: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """The array in float64, if it is a distribution along its last axis."""
    probabilities = _numbers(name, array, shape)
    if (probabilities < 0).any():
        raise UsageError(f"{name} has negative entries")
    if (np.abs(probabilities.sum(-1) - 1) > SUM_TOLERANCE).any():
        raise UsageError(f"{name} does not sum to 1 along its last axis")
    return probabilities


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP together with the fixed q and the two coefficients of the objective."""

    transition: Float64[np.ndarray, "state action state"]
    """P(s'|s, a)."""
    reward: PerAction
    """r(s, a)."""
    q: PerAction
    """Sample action distribution q(a|s) of the replay buffer."""
    gamma: float
    beta: float
    alpha: float

    def __post_init__(self) -> None:
        shape = _numbers("transition", self.transition).shape
        if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
            raise UsageError(f"transition has shape {shape}, not (states, actions, states)")
        arrays = {
            "transition": _distribution("transition", self.transition, shape),
            "reward": _numbers("reward", self.reward, shape[:2]),
            "q": _distribution("q", self.q, shape[:2]),
        }
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("gamma", "beta", "alpha"):
            object.__setattr__(self, name, float(_numbers(name, getattr(self, name), ())))
        if not 0 <= self.gamma < 1:
            raise UsageError(f"gamma must be in [0, 1), not {self.gamma}")
        if not self.beta > 0:
            raise UsageError(f"beta must be positive, not {self.beta}")
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"alpha must be in [0, 1], not {self.alpha}")


def random_mdp(
    rng: np.random.Generator,
    states: int,
    actions: int,
    *,
    alpha: float = 0.5,
    beta: float = 1.0,
    gamma: float = 0.9,
) -> FiniteMDP:
    """Transitions and q uniform over their simplices, rewards standard normal."""
    if states < 1 or actions < 1:
        raise UsageError(f"an MDP needs at least one state and one action, not {states} and {actions}")
    return FiniteMDP(
        transition=rng.dirichlet(np.ones(states), size=(states, actions)),
        reward=rng.normal(size=(states, actions)),
        q=rng.dirichlet(np.ones(actions), size=states),
        gamma=gamma,
        beta=beta,
        alpha=alpha,
    )


def mixture(mdp: FiniteMDP, pi: PerAction) -> PerAction:
    """m = alpha pi + (1 - alpha) q. Eq. 2, Han & Sung 2021."""
    return mdp.alpha * _distribution("policy", pi, mdp.q.shape) + (1 - mdp.alpha) * mdp.q


def mixture_entropy(mdp: FiniteMDP, pi: PerAction) -> PerState:
    """The sample-aware entropy H(m), with 0 log 0 = 0. Eq. 4, Han & Sung 2021."""
    m = mixture(mdp, pi)
    return -(m * np.log(np.where(m > 0, m, 1))).sum(-1)


def ratio(mdp: FiniteMDP, pi: PerAction) -> PerAction:
    """R = alpha pi / m, and 0 where neither pi nor q ever goes. Eq. 9, Han & Sung 2021."""
    m = mixture(mdp, pi)
    return mdp.alpha * np.asarray(pi) / np.where(m > 0, m, 1)


def _minus_log_mixture(mdp: FiniteMDP, pi: PerAction) -> PerAction:
    """-log m by the larger of R and 1 - R, so that it is defined and accurate where pi or q is 0. Lemma 3."""
    R = ratio(mdp, pi)
    share = np.maximum(R, 1 - R)
    part = np.where(R >= 0.5, mdp.alpha * np.asarray(pi), (1 - mdp.alpha) * mdp.q)
    return np.log(share) - np.log(np.where(part > 0, part, 1))  # 0 where m = 0; no expectation sees it


def state_value(mdp: FiniteMDP, pi: PerAction, Q: PerAction) -> PerState:
    """V(s) = E_pi[Q] + H(m), written with the ratio. Eq. 12, Han & Sung 2021."""
    Q = _numbers("Q", Q, mdp.q.shape)
    minus_log_m = _minus_log_mixture(mdp, pi)
    at_pi = (pi * (Q + mdp.alpha * minus_log_m)).sum(-1)
    at_q = (mdp.q * minus_log_m).sum(-1)
    return at_pi + (1 - mdp.alpha) * at_q


def bellman_backup(mdp: FiniteMDP, pi: PerAction, Q: PerAction) -> PerAction:
    """T^pi Q = r / beta + gamma E[V(s')]. Eq. 11, Han & Sung 2021."""
    return mdp.reward / mdp.beta + mdp.gamma * mdp.transition @ state_value(mdp, pi, Q)


def _solve_state_values(mdp: FiniteMDP, pi: PerAction) -> PerState:
    """V^pi from (I - gamma P_pi) V = E_pi[r] / beta + H(m)."""
    entropy = mixture_entropy(mdp, pi)
    P_pi = np.einsum("sa,sat->st", pi, mdp.transition)
    r_pi = (pi * mdp.reward).sum(-1)
    return np.linalg.solve(np.eye(len(P_pi)) - mdp.gamma * P_pi, r_pi / mdp.beta + entropy)


def evaluate(mdp: FiniteMDP, pi: PerAction) -> PerAction:
    """The true diverse Q^pi, fixed point of the backup, by one linear system. Eq. 8 and Lemma 1, Han & Sung 2021."""
    return mdp.reward / mdp.beta + mdp.gamma * mdp.transition @ _solve_state_values(mdp, pi)


def objective(mdp: FiniteMDP, pi: PerAction, start: PerState) -> float:
    """J(pi), the discounted sum of r + beta H(m) from states drawn from `start`. Eq. 3, Han & Sung 2021."""
    return mdp.beta * float(_distribution("start", start, mdp.q.shape[:1]) @ _solve_state_values(mdp, pi))


def improve(mdp: FiniteMDP, Q: PerAction) -> PerAction:
    """The policy that maximises E_pi[Q] + H(m) in every state, exactly. Eq. 15, Han & Sung 2021.

    The objective is concave. With x = Q / alpha, its conditions of optimality are those of water-filling:

        m = max((1 - alpha) q, e^(x - c)),        where c makes m sum to 1.

    Action a is taken (pi > 0) while c < x - log (1 - alpha) q, its reach. If the actions of the k largest reaches are
    taken, c = logsumexp(x) - log(alpha + (1 - alpha) sum q) over these k; the right k is the last whose reach is above
    its own c. At alpha = 1 this is softmax(Q); at alpha = 0 it is greedy, and ties share evenly.
    """
    Q = _numbers("Q", Q, mdp.q.shape)
    alpha = mdp.alpha
    best = Q.max(-1, keepdims=True)
    if alpha < SMALLEST_ALPHA:
        greedy = best == Q
        return greedy / greedy.sum(-1, keepdims=True)

    x = (Q - best) / alpha  # the shift leaves pi as it is, and keeps the actions that matter near 0
    with np.errstate(divide="ignore"):
        reach = x - np.log((1 - alpha) * mdp.q)  # infinite where q = 0: such an action is always taken
    order = np.argsort(-reach, axis=-1, kind="stable")
    x, q, reach = (np.take_along_axis(each, order, -1) for each in (x, mdp.q, reach))

    log_sum, q_sum = np.logaddexp.accumulate(x, axis=-1), q.cumsum(-1)
    taken = reach > log_sum - np.log(alpha + (1 - alpha) * q_sum)
    last = taken.sum(-1, keepdims=True) - 1
    log_sum, q_sum = (np.take_along_axis(each, last, -1) for each in (log_sum, q_sum))

    # pi = (m - (1 - alpha) q) / alpha with c put in: no cancellation at alpha = 1, nor where only one action is taken
    share = np.exp(x - log_sum)
    sorted_pi = np.maximum(share + (1 - alpha) / alpha * (share * q_sum - q), 0)
    pi = np.empty_like(sorted_pi)
    np.put_along_axis(pi, order, sorted_pi / sorted_pi.sum(-1, keepdims=True), -1)
    return pi


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """Where diverse policy iteration ended, and how it came there."""

    policy: PerAction
    Q: PerAction
    """Q of `policy`."""
    history: Float64[np.ndarray, "iteration state action"]
    """Q of the starting policy, and of the policy after each improvement."""


def policy_iteration(
    mdp: FiniteMDP, pi: PerAction | None = None, *, tolerance: float = 1e-12, max_iterations: int = 1000
) -> Solution:
    """Evaluate and improve from `pi` (or uniform) until Q changes by less than tolerance * (1 + max |Q|). Theorem 1."""
    if pi is None:
        pi = np.full(mdp.q.shape, 1 / mdp.q.shape[1])
    tolerance = max(tolerance, 4 * float(np.finfo(np.float64).eps) / (1 - mdp.gamma))  # evaluation rounds this much
    history = [evaluate(mdp, pi)]
    change = np.inf
    for _ in range(max_iterations):
        pi = improve(mdp, history[-1])
        history.append(evaluate(mdp, pi))
        change = np.abs(history[-1] - history[-2]).max() / (1 + np.abs(history[-1]).max())
        if change <= tolerance:
            return Solution(pi, history[-1], np.stack(history))
    raise UsageError(
        f"Q still changed by {change:.1e} (tolerance {tolerance:.1e}) after {max_iterations} iterations; "
        "allow more iterations or a larger tolerance"
    )
