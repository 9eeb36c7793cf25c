"""What the exact objective pays for at the frontier: a maze of cells, exact entropies, exact values, counted q.

An agent walks through a finite maze. q(a|s) is counted from its own steps; every so many steps Q is solved exactly and
the policy improved exactly. No network is in the way, so what drives the agent here is the objective and nothing else.

The values are paid `weight * H(m)`, or below 0 the lack of it, |weight| (log |A| - H(m)). Two facts (tests check both):

- H(m) <= log |A|, and the policy reaches it wherever (1 - alpha) max q <= 1 / |A|. There no state is worth more than
  another, and where q is narrower, at the frontier, it is worth *less*.
- After n uniform actions in a state, a uniform policy lacks (1 - alpha)^2 (|A| - 1) / (2 n) on average, to first order:
  a negative weight pays a bonus for counts, without counting.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.typing import ArrayLike

from dac.core.types import UsageError
from dac.theory.tabular import FiniteMDP, PerAction, PerState, improve, mixture_entropy

MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Right, left, up, down."""


def four_rooms(side: int) -> Bool[np.ndarray, "x y"]:
    """Mark the free cells of four rooms with a door in each of the four walls between them, as in the paper's maze."""
    if side < 5 or side % 2 == 0:
        raise UsageError(f"side must be an odd number of at least 5, so that a wall stands in the middle, not {side}")
    free = np.ones((side, side), bool)
    middle = side // 2
    free[middle, :] = free[:, middle] = False
    for door in (side // 4, side - 1 - side // 4):
        free[middle, door] = free[door, middle] = True
    return free


def successors(free: Bool[np.ndarray, "x y"]) -> Int64[np.ndarray, "state action"]:
    """Tell where each move leads from each free cell; at a wall one stays. State 0 is the lower left corner."""
    number = np.full(free.shape, -1)
    number[free] = np.arange(free.sum())
    after = []
    for x, y in np.argwhere(free):
        ends = [(x + dx, y + dy) for dx, dy in MOVES]
        inside = [0 <= i < free.shape[0] and 0 <= j < free.shape[1] and bool(free[i, j]) for i, j in ends]
        after.append([number[end] if ok else number[x, y] for end, ok in zip(ends, inside, strict=True)])
    return np.array(after)


def best_entropy(q: PerAction, alpha: float) -> PerState:
    """The largest H(alpha pi + (1 - alpha) q) that any policy reaches in each state, by water-filling."""
    states, actions = q.shape
    nowhere = np.repeat(np.eye(states)[:, None], actions, axis=1)
    mdp = FiniteMDP(nowhere, np.zeros(q.shape), q, 0.0, 1.0, alpha)
    if alpha == 0:
        return mixture_entropy(mdp, q)
    return mixture_entropy(mdp, improve(mdp, np.zeros(q.shape)))


def expected_lack(visits: ArrayLike, actions: int, alpha: float) -> np.ndarray:
    """What a uniform policy's mixture lacks of log |A| after as many uniform actions, on average, to first order."""
    return (1 - alpha) ** 2 * (actions - 1) / (2 * np.asarray(visits))


@dataclasses.dataclass(frozen=True, eq=False)
class Walk:
    """Where an agent has been."""

    counts: Int64[np.ndarray, "state action"]
    """How often each action was taken in each state."""
    visited: Int64[np.ndarray, " fit"]
    """States entered before each new policy, and in the end."""
    paid: Float64[np.ndarray, " state"]
    """What the values were paid for each state at the last fit."""


def explore(
    after: Int64[np.ndarray, "state action"],
    rng: np.random.Generator,
    *,
    weight: float,
    alpha: float = 0.5,
    gamma: float = 0.99,
    steps: int = 5000,
    every: int = 100,
    unseen: Literal["uniform", "narrow"] = "uniform",
    by_counts: bool = False,
    noise: float = 0.0,
    stored: bool = False,
) -> Walk:
    """Walk for `steps` steps from state 0, with a new policy every `every` of them.

    A new policy comes from one exact evaluation of the last one and one exact improvement. The policy always maximises
    E[Q] + H(m) (Eq. 15); the values are paid as above. Counts say nothing of q where nothing was done yet, so it is a
    choice: `uniform`, as in a state that is known well, or `narrow`, the first action alone, as after a single visit.
    With `by_counts` a negative weight pays what uniform actions would lack after as many visits, not what m lacks.
    `noise` is the standard deviation of a Gaussian number that each state is paid besides: another one for every new
    policy or, with `stored`, the same one throughout.
    """
    if steps < 1 or every < 1:
        raise UsageError(f"steps and every must be at least 1, not {steps} and {every}")
    if noise < 0:
        raise UsageError(f"noise must be at least 0, not {noise}")
    if unseen not in ("uniform", "narrow"):
        raise UsageError(f"unseen must be uniform or narrow, not {unseen!r}")
    states, actions = after.shape
    transition = np.eye(states)[after]
    pi = np.full((states, actions), 1 / actions)
    guess = pi if unseen == "uniform" else np.eye(actions)[np.zeros(states, np.int64)]
    counts = np.zeros((states, actions), np.int64)
    entered = np.zeros(states, bool)
    state, paid, visited = 0, np.zeros(states), []
    noisy = rng.spawn(1)[0]  # the walk itself draws the same numbers with noise and without
    drawn = noisy.normal(size=states)
    entered[0] = True
    for step in range(steps):
        if step % every == 0:
            visited.append(int(entered.sum()))
            total = counts.sum(1, keepdims=True)
            q = np.where(total > 0, counts / np.maximum(total, 1), guess)
            mdp = FiniteMDP(transition, np.zeros(q.shape), q, gamma, 1.0, alpha)
            if by_counts:
                paid = -weight * expected_lack(np.maximum(counts.sum(1), 1), actions, alpha)
            else:
                paid = weight * (mixture_entropy(mdp, pi) - (np.log(actions) if weight < 0 else 0))
            paid = paid + noise * drawn
            drawn = drawn if stored else noisy.normal(size=states)
            moves = np.einsum("sa,sat->st", pi, transition)
            value = np.linalg.solve(np.eye(states) - gamma * moves, paid)
            pi = improve(mdp, gamma * value[after])
        action = int(np.searchsorted(pi[state].cumsum(), rng.random() * pi[state].sum(), side="right"))
        action = min(action, actions - 1)
        counts[state, action] += 1
        state = int(after[state, action])
        entered[state] = True
    return Walk(counts, np.array([*visited, int(entered.sum())]), paid)
