"""The paper's lemmas and theorems on finite MDPs, each against a calculation that does not use the code under test."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from dac.core.types import UsageError
from dac.theory import tabular

ALPHAS = [0.0, 0.1, 0.5, 0.9, 1.0]


def random_policy(rng, mdp, concentration=1.0):
    states, actions = mdp.q.shape
    return rng.dirichlet(np.full(actions, concentration), size=states)


def random_deterministic_policy(rng, mdp):
    states, actions = mdp.q.shape
    return np.eye(actions)[rng.integers(actions, size=states)]


def with_unseen_actions(rng, mdp):
    """The same MDP, where q has forgotten one action per state."""
    q = np.array(mdp.q)
    q[np.arange(len(q)), rng.integers(q.shape[1], size=len(q))] = 0
    return dataclasses.replace(mdp, q=q / q.sum(-1, keepdims=True))


def summed_along_trajectories(mdp, pi, first, discount, steps=600):
    """Sum over t of discount^t E[r / beta + H(m)] with s_0 ~ first: Eq. 3 as it stands, one step after another."""
    gain = np.array(
        [
            scipy.stats.entropy(mdp.alpha * p + (1 - mdp.alpha) * q) + p @ r / mdp.beta
            for p, q, r in zip(pi, mdp.q, mdp.reward, strict=True)
        ]
    )
    step = sum(pi[:, a, None] * mdp.transition[:, a] for a in range(pi.shape[1]))
    total, at = 0.0, np.asarray(first)
    for t in range(steps):
        total = total + discount**t * at @ gain
        at = at @ step
    return total


# The mixture, its entropy and the ratio


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entropy_is_divergence_plus_entropies_without_a_constant(alpha):
    rng = np.random.default_rng(0)
    mdp = tabular.random_mdp(rng, 4, 5, alpha=alpha)
    pi = random_policy(rng, mdp)
    m = alpha * pi + (1 - alpha) * mdp.q
    divergence = alpha * scipy.stats.entropy(pi, m, axis=-1) + (1 - alpha) * scipy.stats.entropy(mdp.q, m, axis=-1)
    entropies = alpha * scipy.stats.entropy(pi, axis=-1) + (1 - alpha) * scipy.stats.entropy(mdp.q, axis=-1)
    np.testing.assert_allclose(tabular.mixture(mdp, pi), m, rtol=1e-15)
    np.testing.assert_allclose(tabular.mixture_entropy(mdp, pi), divergence + entropies, rtol=1e-13)  # Eq. 6


def test_entropy_and_ratio_of_a_case_done_by_hand():
    mdp = tabular.FiniteMDP(np.ones((1, 3, 1)), np.zeros((1, 3)), np.array([[0.0, 0.5, 0.5]]), 0.0, 1.0, 0.5)
    pi = np.array([[0.0, 0.5, 0.5]])  # nobody goes to the first action: 0 log 0
    np.testing.assert_allclose(tabular.mixture_entropy(mdp, pi), [np.log(2)], rtol=1e-15)
    np.testing.assert_array_equal(tabular.ratio(mdp, pi), [[0, 0.5, 0.5]])
    pi = np.array([[1.0, 0.0, 0.0]])  # R reaches both ends: 1 where q = 0, 0 where pi = 0
    np.testing.assert_array_equal(tabular.ratio(mdp, pi), [[1, 0, 0]])
    np.testing.assert_allclose(tabular.state_value(mdp, pi, np.array([[3.0, 5.0, 7.0]])), [3 + 1.5 * np.log(2)])


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_lemma_3_both_sides_are_minus_log_m(alpha):
    rng = np.random.default_rng(1)
    mdp = tabular.random_mdp(rng, 4, 5, alpha=alpha)
    pi = random_policy(rng, mdp)
    R = tabular.ratio(mdp, pi)
    by_pi = np.log(R) - np.log(alpha * pi)
    by_q = np.log(1 - R) - np.log((1 - alpha) * mdp.q)
    np.testing.assert_allclose(by_pi, by_q, rtol=1e-10)
    np.testing.assert_allclose(by_pi, -np.log(alpha * pi + (1 - alpha) * mdp.q), rtol=1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["spread", "deterministic", "nearly deterministic"])
def test_state_value_is_expected_q_plus_entropy(alpha, kind):
    rng = np.random.default_rng(2)
    mdp = with_unseen_actions(rng, tabular.random_mdp(rng, 6, 4, alpha=alpha))
    pi = random_policy(rng, mdp) if kind == "spread" else random_deterministic_policy(rng, mdp)
    if kind == "nearly deterministic":
        pi = np.where(pi == 0, 5e-324, pi)  # log R - log alpha pi alone would be wrong in its first digit here
    Q = rng.normal(size=mdp.q.shape)
    entropy = scipy.stats.entropy(alpha * pi + (1 - alpha) * mdp.q, axis=-1)
    np.testing.assert_allclose(tabular.state_value(mdp, pi, Q), (pi * Q).sum(-1) + entropy, rtol=1e-12, atol=1e-14)


# Lemma 1: evaluation


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("deterministic", [False, True])  # the lemma asks for 0 < R < 1; finite MDPs do not need it
def test_lemma_1_backups_contract_to_the_true_q(alpha, deterministic):
    rng = np.random.default_rng(3)
    mdp = with_unseen_actions(rng, tabular.random_mdp(rng, 5, 3, alpha=alpha, beta=0.3, gamma=0.8))
    pi = random_deterministic_policy(rng, mdp) if deterministic else random_policy(rng, mdp)
    true_Q = tabular.evaluate(mdp, pi)
    for bound, Q in [(True, rng.normal(size=true_Q.shape) * 100), (False, true_Q + 7.0)]:
        first_error = np.abs(Q - true_Q).max()
        for k in range(1, 40):
            Q = tabular.bellman_backup(mdp, pi, Q)
            error = np.abs(Q - true_Q).max()
            if bound:
                assert error <= 0.8**k * first_error + 1e-10
            else:  # a constant error shrinks by gamma exactly: the rate cannot be better
                assert error == pytest.approx(0.8**k * first_error, rel=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lemma_1_true_q_is_the_sum_along_trajectories(alpha):
    rng = np.random.default_rng(4)
    mdp = tabular.random_mdp(rng, 5, 3, alpha=alpha, beta=0.3, gamma=0.9)
    pi = random_policy(rng, mdp)
    later = summed_along_trajectories(mdp, pi, mdp.transition, 0.9)
    Q = tabular.evaluate(mdp, pi)
    np.testing.assert_allclose(Q, mdp.reward / 0.3 + 0.9 * later, rtol=1e-11)
    printed = mdp.reward / 0.3 + later  # Eq. 8 with the exponent l - t - 1 is not a fixed point of Eq. 11
    assert np.abs(tabular.bellman_backup(mdp, pi, printed) - printed).max() > 0.1
    assert np.abs(tabular.bellman_backup(mdp, pi, Q) - Q).max() < 1e-11


def test_objective_is_the_sum_along_trajectories():
    rng = np.random.default_rng(5)
    mdp = tabular.random_mdp(rng, 5, 3, alpha=0.4, beta=0.3, gamma=0.9)
    pi, start = random_policy(rng, mdp), rng.dirichlet(np.ones(5))
    expected = 0.3 * summed_along_trajectories(mdp, pi, start, 0.9)
    assert tabular.objective(mdp, pi, start) == pytest.approx(expected, rel=1e-11)


# Improvement: Eq. 15


def improvement_cases():
    for alpha in ALPHAS:
        for magnitude in [0.0, 0.1, 1.0, 10.0, 1e4]:
            for seed in range(3):
                yield pytest.param(alpha, magnitude, seed, id=f"alpha={alpha}-Q={magnitude}-{seed}")


def improvement_case(alpha, magnitude, seed):
    rng = np.random.default_rng(seed)
    mdp = tabular.random_mdp(rng, 4, 5, alpha=alpha)
    if seed == 2:
        mdp = with_unseen_actions(rng, mdp)
    return mdp, magnitude * rng.uniform(-1, 1, size=mdp.q.shape)


def gain_and_gradient(alpha, Q, q, pi):
    """sum pi Q + H(m) in one state, and its derivatives by pi."""
    m = np.maximum(alpha * pi + (1 - alpha) * q, 1e-300)
    return pi @ Q - m @ np.log(m), Q - alpha * (np.log(m) + 1)


@pytest.mark.parametrize(("alpha", "magnitude", "seed"), list(improvement_cases()))
def test_improvement_cannot_be_improved(alpha, magnitude, seed):
    """Of a concave function, max(gradient) - E_pi[gradient] bounds from above what any other policy could gain."""
    mdp, Q = improvement_case(alpha, magnitude, seed)
    for values, q, pi in zip(Q, mdp.q, tabular.improve(mdp, Q), strict=True):
        assert (pi >= 0).all()
        assert pi.sum() == pytest.approx(1, abs=1e-14)
        _, gradient = gain_and_gradient(alpha, values, q, pi)
        assert gradient.max() - pi @ gradient <= 1e-13 * (1 + magnitude)


@pytest.mark.parametrize(("alpha", "magnitude", "seed"), list(improvement_cases()))
def test_improvement_against_a_numerical_optimiser(alpha, magnitude, seed):
    mdp, Q = improvement_case(alpha, magnitude, seed)
    scale = 1 + magnitude
    for values, q, pi in zip(Q, mdp.q, tabular.improve(mdp, Q), strict=True):

        def loss(p, values=values, q=q):
            gain, gradient = gain_and_gradient(alpha, values, q, np.clip(p, 0, 1))
            return -gain / scale, -gradient / scale

        found = scipy.optimize.minimize(
            loss,
            np.full(5, 0.2),
            jac=True,
            method="SLSQP",
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        theirs = np.clip(found.x, 0, 1) / np.clip(found.x, 0, 1).sum()
        gain, _ = gain_and_gradient(alpha, values, q, pi)
        their_gain, _ = gain_and_gradient(alpha, values, q, theirs)
        assert gain >= their_gain - 1e-13 * scale
        assert their_gain == pytest.approx(gain, abs=1e-7 * scale)
        if alpha > 0 and magnitude <= 1:  # where the maximum is not too flat or too sharp for the optimiser
            np.testing.assert_allclose(theirs, pi, atol=2e-3)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("magnitude", [1.0, 30.0, 1e4])
def test_improvement_is_water_filling(alpha, magnitude):
    rng = np.random.default_rng(6)
    mdp = with_unseen_actions(rng, tabular.random_mdp(rng, 50, 6, alpha=alpha))
    Q = magnitude * rng.uniform(-1, 1, size=mdp.q.shape)
    pi = tabular.improve(mdp, Q)
    for values, q, p in zip(Q, mdp.q, pi, strict=True):
        x = (values - values.max()) / alpha

        def excess(c, x=x, q=q):
            return np.maximum((1 - alpha) * q, np.exp(x - c)).sum() - 1

        c = scipy.optimize.brentq(excess, -1e-9, 50.0, xtol=1e-14)
        m = np.maximum((1 - alpha) * q, np.exp(x - c))
        np.testing.assert_allclose(p, (m - (1 - alpha) * q) / alpha, atol=1e-11)
    if alpha < 1:
        assert (pi == 0).any()
    assert (pi > 0).sum() > len(pi)  # more than one action somewhere: not merely greedy


def test_improvement_at_alpha_1_is_softmax_and_at_alpha_0_greedy():
    rng = np.random.default_rng(7)
    mdp = tabular.random_mdp(rng, 4, 5)
    Q = 1e4 + rng.normal(size=mdp.q.shape)
    soft = tabular.improve(dataclasses.replace(mdp, alpha=1.0), Q)
    np.testing.assert_allclose(soft, scipy.special.softmax(Q, axis=-1), rtol=1e-12)
    Q[0, :2] = 2e4  # a tie
    hard = tabular.improve(dataclasses.replace(mdp, alpha=0.0), Q)
    np.testing.assert_array_equal(hard[0], [0.5, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(hard[1:], np.eye(5)[Q[1:].argmax(-1)])


@pytest.mark.parametrize("alpha", [1e-300, 1e-13, 1e-11, 1e-6, 1 - 1e-15])
def test_improvement_next_to_the_ends_of_alpha(alpha):
    rng = np.random.default_rng(8)
    mdp = with_unseen_actions(rng, tabular.random_mdp(rng, 20, 4, alpha=alpha))
    for Q in [rng.normal(size=mdp.q.shape), np.zeros(mdp.q.shape), 1e8 * rng.normal(size=mdp.q.shape)]:
        pi = tabular.improve(mdp, Q)
        np.testing.assert_allclose(pi.sum(-1), 1, rtol=1e-14)
        for values, q, p in zip(Q, mdp.q, pi, strict=True):
            gain, _ = gain_and_gradient(alpha, values, q, p)
            others = rng.dirichlet(np.full(4, 0.3), size=50)
            gains = [gain_and_gradient(alpha, values, q, other)[0] for other in [*others, *np.eye(4)]]
            assert gain >= max(gains) - 1e-10 - 1e-15 * np.abs(values).max()


# Lemma 2 and Theorem 1: iteration


def theorem_1_cases():
    rng = np.random.default_rng(9)
    for i in range(20):
        mdp = tabular.random_mdp(
            rng, int(rng.integers(2, 7)), int(rng.integers(2, 6)), alpha=ALPHAS[i % 5], beta=rng.uniform(0.05, 2)
        )
        mdp = dataclasses.replace(mdp, gamma=[0.5, 0.9, 0.97, 0.99][i % 4])
        yield with_unseen_actions(rng, mdp) if i % 3 == 0 else mdp


@pytest.mark.parametrize("mdp", list(theorem_1_cases()), ids=lambda mdp: f"alpha={mdp.alpha}-gamma={mdp.gamma}")
def test_theorem_1_every_start_ends_at_the_one_optimum(mdp):
    rng = np.random.default_rng(10)
    starts = [None, random_policy(rng, mdp), random_policy(rng, mdp, 0.05)]
    starts += [random_deterministic_policy(rng, mdp) for _ in range(3)]
    solutions = [tabular.policy_iteration(mdp, start) for start in starts]
    best = solutions[0].Q
    start = rng.dirichlet(np.ones(len(best)))
    best_objective = tabular.objective(mdp, solutions[0].policy, start)
    assert any(len(solution.history) > 2 for solution in solutions)
    for solution in solutions:
        np.testing.assert_allclose(solution.Q, best, rtol=0, atol=1e-8)
        np.testing.assert_allclose(tabular.evaluate(mdp, solution.policy), solution.Q, rtol=1e-12)
        steps = np.diff(solution.history, axis=0)  # Lemma 2: no entry of Q ever falls
        assert steps.min() >= -1e-11 * (1 + np.abs(best).max())
        if mdp.alpha > 0:  # at alpha = 0 the optimum need not be unique
            np.testing.assert_allclose(solution.policy, solutions[0].policy, atol=1e-7)
    for i in range(150):
        other = random_deterministic_policy(rng, mdp) if i % 3 == 0 else random_policy(rng, mdp, [1, 0.2][i % 2])
        assert (tabular.evaluate(mdp, other) <= best + 1e-9).all()
        assert tabular.objective(mdp, other, start) <= best_objective + 1e-9


def test_lemma_2_improvement_is_strict_until_the_end():
    rng = np.random.default_rng(11)
    mdp = tabular.random_mdp(rng, 5, 4, alpha=0.3)
    history = tabular.policy_iteration(mdp, random_deterministic_policy(rng, mdp)).history
    assert len(history) >= 4
    assert (np.diff(history[:3], axis=0) > 0).all()


def test_alpha_1_is_soft_policy_iteration():
    mdp = tabular.random_mdp(np.random.default_rng(12), 5, 4, alpha=1.0, beta=0.2)
    Q = np.zeros(mdp.q.shape)
    for _ in range(500):
        Q = mdp.reward / 0.2 + 0.9 * mdp.transition @ scipy.special.logsumexp(Q, axis=-1)
    np.testing.assert_allclose(tabular.policy_iteration(mdp).Q, Q, rtol=1e-11)


def test_alpha_0_is_value_iteration_that_still_rewards_states_with_a_diverse_q():
    mdp = tabular.random_mdp(np.random.default_rng(13), 5, 4, alpha=0.0, beta=0.2)
    Q = np.zeros(mdp.q.shape)
    for _ in range(500):
        Q = mdp.reward / 0.2 + 0.9 * mdp.transition @ (Q.max(-1) + scipy.stats.entropy(mdp.q, axis=-1))
    np.testing.assert_allclose(tabular.policy_iteration(mdp).Q, Q, rtol=1e-11)

    # Two states, the action says where to go, no reward: without any entropy both actions would be worth the same.
    transition = np.broadcast_to(np.eye(2), (2, 2, 2))
    stay_or_go = tabular.FiniteMDP(transition, np.zeros((2, 2)), np.array([[1.0, 0.0], [0.5, 0.5]]), 0.9, 1.0, 0.0)
    np.testing.assert_array_equal(tabular.policy_iteration(stay_or_go).policy, [[0, 1], [0, 1]])


def test_iteration_cap_says_what_to_do():
    rng = np.random.default_rng(14)
    mdp = tabular.random_mdp(rng, 5, 4)
    with pytest.raises(UsageError, match="after 1 iterations; allow more iterations or a larger tolerance"):
        tabular.policy_iteration(mdp, max_iterations=1)
    assert len(tabular.policy_iteration(mdp, max_iterations=1, tolerance=10.0).history) == 2


@pytest.mark.parametrize("gamma", [0.0, 0.9999, 0.999999])
def test_iteration_ends_where_rounding_is_coarser_than_the_tolerance(gamma):
    rng = np.random.default_rng(15)
    for _ in range(20):
        mdp = tabular.random_mdp(rng, 5, 4, alpha=0.9, beta=0.1, gamma=gamma)
        solution = tabular.policy_iteration(mdp, max_iterations=50)
        np.testing.assert_allclose(tabular.bellman_backup(mdp, solution.policy, solution.Q), solution.Q, rtol=1e-8)


# Theorem 2: the objective with a frozen ratio


def softmax_policy(theta, features):
    """A small network that all states share: three features, three hidden units."""
    return scipy.special.softmax(np.tanh(features @ theta[:, :3]) @ theta[:, 3], axis=-1)


def central_difference(function, theta, step=1e-4):
    """Derivatives of every state's value by every parameter, with an error of the order step^4."""
    columns = []
    for index in np.ndindex(theta.shape):
        e = np.zeros_like(theta)
        e[index] = step
        near, far = function(theta + e) - function(theta - e), function(theta + 2 * e) - function(theta - 2 * e)
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.0])
def test_theorem_2_same_gradient_at_the_current_policy_and_only_there(alpha):
    rng = np.random.default_rng(16)
    mdp = tabular.random_mdp(rng, 4, 5, alpha=alpha, beta=0.7)
    features = rng.normal(size=(4, 5, 3))
    old, away = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    old_pi = softmax_policy(old, features)
    Q, R = tabular.evaluate(mdp, old_pi), tabular.ratio(mdp, old_pi)

    def objective(theta):  # Eq. 13
        return mdp.beta * tabular.state_value(mdp, softmax_policy(theta, features), Q)

    def surrogate(theta):  # Eq. 14
        pi = softmax_policy(theta, features)
        return mdp.beta * (pi * (Q + alpha * (np.log(R) - np.log(pi)))).sum(-1)

    gradient = central_difference(objective, old)
    assert (np.abs(gradient).max(-1) > 1e-2).all()
    np.testing.assert_allclose(gradient, central_difference(surrogate, old), atol=1e-9)
    apart = np.abs(central_difference(objective, away) - central_difference(surrogate, away)).max()
    assert apart < 1e-9 if alpha == 1 else apart > 1e-2  # at alpha = 1 the ratio is 1 whatever the policy


@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_the_surrogate_is_a_lower_bound_so_maximising_it_also_climbs_to_the_optimum(alpha):
    """R maximises Eq. 16, so a frozen R bounds H(m) from below, and touches it at the current policy.

    Maximising Eq. 14 gives pi proportional to R e^(Q / alpha), with R and not, as printed below Theorem 2, e^R.
    """
    rng = np.random.default_rng(17)
    mdp = tabular.random_mdp(rng, 4, 3, alpha=alpha)

    def climb(pi, Q):
        with np.errstate(divide="ignore"):  # an action that should not be taken fades until it underflows
            return scipy.special.softmax(Q / alpha + np.log(tabular.ratio(mdp, pi)), axis=-1)

    pi = np.full(mdp.q.shape, 1 / 3)
    Q = tabular.evaluate(mdp, pi)
    for _ in range(2000):
        pi = climb(pi, Q)
        Q, before = tabular.evaluate(mdp, pi), Q
        assert (Q - before >= -1e-11).all()
    np.testing.assert_allclose(Q, tabular.policy_iteration(mdp).Q, atol=1e-8)

    stuck = random_deterministic_policy(rng, mdp)  # unlike Eq. 13, it cannot give an action back that has pi = 0
    np.testing.assert_array_equal(climb(stuck, tabular.evaluate(mdp, stuck)), stuck)
    assert (tabular.improve(mdp, tabular.evaluate(mdp, stuck)) != stuck).any()


# Appendix A


@pytest.mark.parametrize("actions", [2, 3, 5, 10, 100])
def test_appendix_a_the_action_never_tried_is_taken_at_once(actions):
    transition = np.zeros((2, actions, 2))
    transition[:, :, 1] = 1  # from s_0 to the end, and there it stays
    q = np.full((2, actions), 1 / actions)
    q[0] = [1 / (actions - 1)] * (actions - 1) + [0]
    toy = tabular.FiniteMDP(transition, np.zeros((2, actions)), q, gamma=0.9, beta=1.0, alpha=1 / actions)
    aware = tabular.policy_iteration(toy)
    np.testing.assert_allclose(aware.policy[0], np.eye(actions)[-1], atol=1e-12)
    np.testing.assert_allclose(tabular.mixture(toy, aware.policy)[0], 1 / actions, rtol=1e-12)
    simple = tabular.policy_iteration(dataclasses.replace(toy, alpha=1.0))
    np.testing.assert_allclose(simple.policy[0], 1 / actions, rtol=1e-12)


# Bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition": np.full((2, 3), 0.5)}, "transition has shape (2, 3), not (states, actions, states)"),
        ({"transition": np.full((2, 3, 4), 0.25)}, "transition has shape (2, 3, 4), not (states, actions, states)"),
        ({"transition": np.ones((2, 0, 2))}, "transition has shape (2, 0, 2), not (states, actions, states)"),
        ({"transition": np.ones((2, 3, 2))}, "transition does not sum to 1 along its last axis"),
        ({"transition": [[1], [1, 2]]}, "transition is not an array of numbers"),
        ({"reward": np.zeros((3, 2))}, "reward has shape (3, 2), not (2, 3)"),
        ({"reward": np.full((2, 3), np.nan)}, "reward has entries that are not finite"),
        ({"q": np.array([[1.5, -0.5, 0.0]] * 2)}, "q has negative entries"),
        ({"q": np.full((2, 3), 0.3)}, "q does not sum to 1 along its last axis"),
        ({"alpha": -0.1}, "alpha must be in [0, 1], not -0.1"),
        ({"alpha": 1.1}, "alpha must be in [0, 1], not 1.1"),
        ({"alpha": np.full(2, 0.5)}, "alpha has shape (2,), not ()"),
        ({"gamma": 1.0}, "gamma must be in [0, 1), not 1.0"),
        ({"gamma": -0.5}, "gamma must be in [0, 1), not -0.5"),
        ({"beta": 0.0}, "beta must be positive, not 0.0"),
        ({"beta": np.nan}, "beta has entries that are not finite"),
    ],
)
def test_bad_mdps_are_refused(change, message):
    good = {
        "transition": np.full((2, 3, 2), 0.5),
        "reward": np.zeros((2, 3)),
        "q": np.full((2, 3), 1 / 3),
        "gamma": 0.9,
        "beta": 1.0,
        "alpha": 0.5,
    }
    tabular.FiniteMDP(**good)
    with pytest.raises(UsageError) as error:
        tabular.FiniteMDP(**(good | change))
    assert str(error.value) == message


def test_bad_arguments_are_refused():
    mdp = tabular.random_mdp(np.random.default_rng(18), 2, 3)
    pi, Q = mdp.q, mdp.reward
    with pytest.raises(UsageError, match="policy does not sum to 1"):
        tabular.evaluate(mdp, pi * 0.9)
    with pytest.raises(UsageError, match=r"policy has shape \(3,\), not \(2, 3\)"):
        tabular.policy_iteration(mdp, pi[0])
    with pytest.raises(UsageError, match=r"Q has shape \(3, 2\), not \(2, 3\)"):
        tabular.improve(mdp, Q.T)
    with pytest.raises(UsageError, match="Q has entries that are not finite"):
        tabular.bellman_backup(mdp, pi, Q * np.inf)
    with pytest.raises(UsageError, match="start does not sum to 1"):
        tabular.objective(mdp, pi, np.ones(2))
    with pytest.raises(UsageError, match="at least one state and one action"):
        tabular.random_mdp(np.random.default_rng(19), 0, 3)


def test_an_mdp_does_not_change_under_its_user():
    reward = np.zeros((2, 3))
    mdp = dataclasses.replace(tabular.random_mdp(np.random.default_rng(20), 2, 3), reward=reward)
    reward[:] = 1
    assert (mdp.reward == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        mdp.q[0, 0] = 1
