"""What exact entropies pay for at the frontier, each claim against a calculation without the code under test."""

from collections import deque

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from dac.core.types import UsageError
from dac.theory.frontier import best_entropy, expected_lack, explore, four_rooms, successors
from dac.theory.tabular import FiniteMDP, policy_iteration


def test_the_rooms_by_hand():
    drawn = ["..#..", ".....", "#.#.#", ".....", "..#.."]
    np.testing.assert_array_equal(four_rooms(5), [[cell == "." for cell in row] for row in drawn])
    big = four_rooms(21)
    assert big.sum() == 4 * 10 * 10 + 4
    assert [big[10, 10], big[10, 5], big[15, 10]] == [False, True, True]


def test_every_free_cell_is_reached_and_a_wall_is_not_passed():
    free = four_rooms(9)
    after, cells = successors(free), np.argwhere(free)
    seen, queue = {0}, deque([0])
    while queue:
        for state in after[queue.popleft()]:
            if state not in seen:
                seen.add(int(state))
                queue.append(int(state))
    assert len(seen) == free.sum()
    distance = np.abs(cells[after] - cells[:, None]).sum(-1)
    assert (distance <= 1).all()
    closed = 1 - np.pad(free, 1).astype(int)  # neighbours that are walls or outside
    walls = sum(np.roll(closed, move, axis)[1:-1, 1:-1][free] for move in (1, -1) for axis in (0, 1))
    np.testing.assert_array_equal((distance == 0).sum(1), walls)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_the_best_entropy_against_an_optimiser(alpha):
    q = np.random.default_rng(0).dirichlet(np.full(4, 0.5), size=5)

    def lack(x, q):
        pi = np.exp(x - x.max())
        return -scipy.stats.entropy(alpha * pi / pi.sum() + (1 - alpha) * q)

    found = [-scipy.optimize.minimize(lack, np.zeros(4), args=(row,), tol=1e-12).fun for row in q]
    np.testing.assert_allclose(best_entropy(q, alpha), found, atol=1e-6)
    full = (1 - alpha) * q.max(1) <= 1 / 4
    np.testing.assert_array_equal(np.isclose(best_entropy(q, alpha), np.log(4), atol=1e-9), full)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_the_expected_lack_against_drawn_actions(alpha):
    rng = np.random.default_rng(1)
    for visits in (50, 400):
        q = rng.multinomial(visits, np.full(4, 0.25), size=20_000) / visits
        lack = np.log(4) - scipy.stats.entropy(alpha / 4 + (1 - alpha) * q, axis=1)
        assert lack.mean() == pytest.approx(expected_lack(visits, 4, alpha), rel=0.03)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0])
def test_nothing_is_paid_for_the_frontier_once_q_is_uniform(alpha):
    """Every state is worth log |A| / (1 - gamma), next to the unknown as in the middle, and the policy is uniform."""
    after = successors(four_rooms(7))
    q = np.full(after.shape, 0.25)
    mdp = FiniteMDP(np.eye(len(after))[after], np.zeros(q.shape), q, 0.95, 1.0, alpha)
    start = np.random.default_rng(2).dirichlet(np.ones(4), size=len(after))
    solution = policy_iteration(mdp, start)
    np.testing.assert_allclose(solution.Q, 0.95 * np.log(4) / 0.05, rtol=1e-9)
    np.testing.assert_allclose(solution.policy, 0.25, atol=1e-4)


def test_a_state_of_one_visit_is_worth_less_than_a_known_one():
    """The positive sign avoids the states where little was done; by how much: one action alone, alpha 1/2."""
    known, once = best_entropy(np.array([[0.25] * 4, [1.0, 0, 0, 0]]), 0.5)
    m = np.array([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert known == pytest.approx(np.log(4))
    assert once == pytest.approx(-(m * np.log(m)).sum())


def walks(**setting):
    after = successors(four_rooms(11))
    return [explore(after, np.random.default_rng(seed), steps=400, every=50, **setting) for seed in range(4)]


def test_max_min_entropy_of_the_policy_alone_rests_at_uniform_actions():
    """Exactly solved, SAC with a negative weight pays nothing anywhere: it is a random walk, step by step."""
    for one, other in zip(walks(weight=-1.0, alpha=1.0), walks(weight=0.0, alpha=1.0), strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
        assert abs(one.paid).max() < 1e-12


def test_what_each_sign_explores():
    """Paid by counts, the negative sign goes everywhere; paid by the entropy that its own path keeps low, nowhere."""
    mean = {
        name: np.mean([walk.visited[-1] for walk in walks(**setting)])
        for name, setting in {
            "counts": {"weight": -1.0, "by_counts": True},
            "plus": {"weight": 1.0},
            "minus": {"weight": -1.0},
            "uniform": {"weight": 0.0, "alpha": 1.0},
            "narrow": {"weight": 1.0, "unseen": "narrow"},
        }.items()
    }
    assert mean["counts"] > 1.3 * mean["uniform"]
    assert mean["plus"] > 1.1 * mean["uniform"]
    assert mean["minus"] < 0.9 * mean["uniform"]
    assert mean["narrow"] < 0.8 * mean["plus"]


def test_bad_input_is_named():
    after, rng = successors(four_rooms(5)), np.random.default_rng(0)
    with pytest.raises(UsageError, match="odd number of at least 5"):
        four_rooms(6)
    with pytest.raises(UsageError, match="at least 1"):
        explore(after, rng, weight=1.0, steps=0)
    with pytest.raises(UsageError, match="uniform or narrow"):
        explore(after, rng, weight=1.0, unseen="wide")


def test_noise_is_paid_beside_the_rest_and_leaves_the_walk_its_numbers():
    """The spread of what is paid is that of the noise; stored noise pulls to one place, fresh noise does not."""
    plain, silent = walks(weight=0.0), walks(weight=0.0, stored=True)
    for one, other in zip(plain, silent, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
    fresh, stored = walks(weight=0.0, noise=0.3), walks(weight=0.0, noise=0.3, stored=True)
    assert all(0.25 < walk.paid.std() < 0.35 and abs(walk.paid.mean()) < 0.1 for walk in (*fresh, *stored))
    visits = [np.mean([np.sort(walk.counts.sum(1))[-5:].sum() for walk in group]) for group in (fresh, stored)]
    assert visits[1] > 1.1 * visits[0]
    with pytest.raises(UsageError, match="noise must be at least 0"):
        walks(weight=0.0, noise=-1.0)
