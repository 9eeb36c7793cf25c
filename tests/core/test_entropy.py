"""The paper's equations against quadrature in float64, hand-computed values and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dac.core import entropy
from dac.core.architectures import Architecture
from dac.core.networks import ActionValue
from dac.core.types import EnvSpec

ALPHAS = [0.0, 0.1, 0.5, 0.8, 0.99, 1.0]

# two densities on (-1, 1) with full support, as a policy and a ring would have
PI = stats.beta(2.0, 5.0, loc=-1, scale=2)
Q = stats.beta(3.0, 1.5, loc=-1, scale=2)


def integral(function):
    value, error = integrate.quad(function, -1, 1, limit=400, epsabs=1e-12)
    assert error < 1e-7
    return value


def log_ratio(a):
    return np.asarray(PI.logpdf(a) - Q.logpdf(a))


def mixture(a, alpha):
    return alpha * PI.pdf(a) + (1 - alpha) * Q.pdf(a)


def xlogx(x):
    return x * np.log(x) if x > 0 else 0.0


@pytest.mark.parametrize("alpha", ALPHAS)
def test_mixture_entropy_is_the_integral_of_minus_m_log_m(x64, alpha):
    def at(a):
        return float(entropy.minus_log_mix(jnp.asarray(log_ratio(a)), jnp.asarray(PI.logpdf(a)), alpha))

    at_pi, at_q = (jnp.asarray(integral(lambda a, p=p: p.pdf(a) * at(a))) for p in (PI, Q))
    direct = -integral(lambda a: xlogx(mixture(a, alpha)))
    assert float(entropy.mixture_entropy(at_pi, at_q, alpha)) == pytest.approx(direct, abs=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_js_divergence_against_its_definition(x64, alpha):
    def kl_to_mixture(density):
        return integral(lambda a: density.pdf(a) * (density.logpdf(a) - np.log(mixture(a, alpha))))

    expected = alpha * kl_to_mixture(PI) + (1 - alpha) * kl_to_mixture(Q)

    def js(a_pi, a_q):
        return float(entropy.js_divergence(jnp.asarray(log_ratio(a_pi)), jnp.asarray(log_ratio(a_q)), alpha))

    # the function is a sum of a term in a_pi and one in a_q: integrate each with the other held
    middle = js(0.0, 0.0)
    value = integral(lambda a: PI.pdf(a) * (js(a, 0.0) - middle)) + integral(lambda a: Q.pdf(a) * js(0.0, a))
    assert value == pytest.approx(expected, abs=1e-6)
    if alpha in (0.0, 1.0):
        assert value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.8, 0.99])
def test_decomposition_of_the_sample_aware_entropy(alpha):
    """H(m) = D_JS + alpha H(pi) + (1 - alpha) H(q): Eq. 6, whose constant is zero with this D_JS.

    Eq. 5 to 6 move -alpha log alpha - (1 - alpha) log(1 - alpha) from the first two integrals to the last two.
    """
    h_mix = -integral(lambda a: xlogx(mixture(a, alpha)))
    h_pi = -integral(lambda a: xlogx(PI.pdf(a)))
    h_q = -integral(lambda a: xlogx(Q.pdf(a)))
    js = alpha * integral(lambda a: PI.pdf(a) * np.log(PI.pdf(a) / mixture(a, alpha))) + (1 - alpha) * integral(
        lambda a: Q.pdf(a) * np.log(Q.pdf(a) / mixture(a, alpha))
    )
    assert h_mix == pytest.approx(js + alpha * h_pi + (1 - alpha) * h_q, abs=1e-7)


@pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
def test_log_pi_over_mix_is_log_ratio_of_the_paper(x64, alpha):
    """log R - log alpha with R from Eq. 9, and Lemma 3: both sides are -log m up to the densities."""
    a = np.linspace(-0.99, 0.99, 50)
    r = alpha * PI.pdf(a) / mixture(a, alpha)
    f = jnp.asarray(log_ratio(a))
    np.testing.assert_allclose(entropy.log_pi_over_mix(f, alpha), np.log(r) - np.log(alpha), atol=1e-9)
    np.testing.assert_allclose(entropy.log_q_over_mix(f, alpha), np.log1p(-r) - np.log1p(-alpha), atol=1e-9)
    np.testing.assert_allclose(
        entropy.log_pi_over_mix(f, alpha) - PI.logpdf(a), entropy.log_q_over_mix(f, alpha) - Q.logpdf(a), atol=1e-9
    )


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_everything_is_finite_and_exact_at_the_ends(alpha):
    f = jnp.array([-1e4, -50.0, -3.0, 0.0, 3.0, 50.0, 1e4])
    for function in (entropy.log_pi_over_mix, entropy.log_q_over_mix):
        value, slope = jax.vmap(jax.value_and_grad(lambda x, g=function: g(x, alpha)))(f)
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()
    exact = entropy.log_pi_over_mix(f, 1.0) if alpha == 1 else entropy.log_q_over_mix(f, 0.0)
    np.testing.assert_array_equal(exact, 0.0)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.8])
def test_the_true_ratio_zeroes_the_gradient_of_the_ratio_objective(x64, alpha):
    """Perturb f around log pi/q in several directions: the derivative of Eq. 16 vanishes, the second is negative."""

    def objective(scale, bump, shift=0.0):
        def at(a):
            f = log_ratio(a) + shift + scale * bump(a)
            both = (
                entropy.ratio_objective(jnp.asarray(f), jnp.asarray(0.0), alpha),
                entropy.ratio_objective(jnp.asarray(0.0), jnp.asarray(f), alpha),
            )
            zero = entropy.ratio_objective(jnp.asarray(0.0), jnp.asarray(0.0), alpha)
            # the part in f_pi under pi, the part in f_q under q
            return PI.pdf(a) * float(both[0] - zero) + Q.pdf(a) * float(both[1])

        grid = np.polynomial.legendre.leggauss(60)
        return sum(w * at(x) for x, w in zip(*grid, strict=True))

    for bump in (np.cos, np.sin, lambda a: a**2):
        up, down, here = (objective(s, bump) for s in (1e-3, -1e-3, 0.0))
        assert (up - down) / 2e-3 == pytest.approx(0, abs=1e-6)
        assert up + down - 2 * here < 0
        off = (objective(1e-3, bump, shift=0.5) - objective(-1e-3, bump, shift=0.5)) / 2e-3
        assert abs(off) > 1e-4  # away from the optimum the same measurement is not zero


def test_ratio_objective_by_hand():
    """At alpha = 1/4, f = 0: R = 1/4, so the objective is 1/4 log(1/4) + 3/4 log(3/4)."""
    value = entropy.ratio_objective(jnp.asarray(0.0), jnp.asarray(0.0), 0.25)
    assert float(value) == pytest.approx(0.25 * np.log(0.25) + 0.75 * np.log(0.75), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_ratio_is_still_learned_where_alpha_is_an_end(alpha):
    assert float(entropy.ratio_weight(alpha)) == 0.5
    slope = jax.grad(lambda f: entropy.ratio_objective(f, jnp.asarray(0.0), alpha))(0.0)
    assert float(slope) == pytest.approx(0.25)


def test_a_trained_ratio_network_matches_the_true_ratio():
    """Two known densities, samples only: the network finds log pi/q, whatever alpha it is trained with."""
    key = jax.random.key(0)
    net = ActionValue(key, EnvSpec(1, 1), Architecture((32, 32)))
    pi, q = stats.beta(4, 2, loc=-1, scale=2), stats.beta(2, 2, loc=-1, scale=2)
    rng = np.random.default_rng(0)
    samples = [jnp.asarray(d.rvs((40_000, 1), random_state=rng), jnp.float32) for d in (pi, q)]
    obs = jnp.zeros((512, 1))

    def loss(net, i):
        a, b = (jax.lax.dynamic_slice(s, (i * 512 % 39_000, 0), (512, 1)) for s in samples)
        f_pi, f_q = jax.vmap(net)(obs, a), jax.vmap(net)(obs, b)
        return -jnp.mean(entropy.ratio_objective(f_pi, f_q, 0.8))

    from dac.core.learner import Learner

    def step(learner, i):
        return learner.descend(jax.grad(loss)(learner.model, i), 1e-3), None

    learner, _ = jax.jit(lambda le: jax.lax.scan(step, le, jnp.arange(3000)))(Learner.create(net))
    a = np.linspace(-0.6, 0.8, 30)
    found = jax.vmap(learner.model)(jnp.zeros((30, 1)), jnp.asarray(a[:, None], jnp.float32))
    np.testing.assert_allclose(found, pi.logpdf(a) - q.logpdf(a), atol=0.2)


def test_value_target_by_hand():
    """Q = 3, alpha = 1/2, f_pi = 0 (so log pi/m = 0), log pi = -1, and a ring term of 9 clipped at 2."""
    at_pi = entropy.minus_log_mix(jnp.asarray(0.0), jnp.asarray(-1.0), 0.5)
    at_q = entropy.clip_q_term(jnp.asarray(9.0), 2.0)
    paid = entropy.value_reward(jnp.array([entropy.mixture_entropy(at_pi, at_q, 0.5)]), 1.0)
    assert 3 + float(paid[0]) == pytest.approx(3 + 0.5 * 1 + 0.5 * 2)
    assert float(entropy.clip_q_term(jnp.asarray(-9.0), 2.0)) == -2
    assert float(entropy.clip_q_term(jnp.asarray(9.0), jnp.inf)) == 9


@pytest.mark.parametrize("shift", [0.0, -5.0, 5.0])
def test_a_negative_weight_pays_for_low_entropy_and_never_takes(shift):
    """The paper's form, |weight| (log pi - min(0, min over the batch of log pi)), written with log pi."""
    log_pi = np.random.default_rng(0).normal(size=20) + shift
    paid = entropy.value_reward(jnp.asarray(-log_pi), -0.7)
    np.testing.assert_allclose(paid, 0.7 * (log_pi - min(0.0, log_pi.min())), rtol=1e-5, atol=1e-6)
    assert (np.asarray(paid) >= 0).all()
    assert np.argmax(paid) == np.argmax(log_pi)
    np.testing.assert_array_equal(entropy.value_reward(jnp.asarray(-log_pi), 1.0), jnp.asarray(-log_pi))
    np.testing.assert_array_equal(entropy.value_reward(jnp.asarray(-log_pi), 0.0), 0.0)


def test_policy_objective_at_the_ends():
    q, f, log_pi = jnp.asarray(2.0), jnp.asarray(0.7), jnp.asarray(-1.5)
    assert float(entropy.policy_objective(q, f, log_pi, 1.0)) == pytest.approx(2.0 + 1.5)  # SAC
    assert float(entropy.policy_objective(q, f, log_pi, 0.0)) == pytest.approx(2.0)  # no entropy at all


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.95])
def test_alpha_gradient_is_the_derivative_of_the_entropy(x64, alpha):
    """Eq. C.3 in expectation against the derivative of H(m) - alpha c; the code's variant is off by -1/alpha."""
    c = -2.0

    def exact(alpha):
        return -integral(lambda a: xlogx(mixture(a, alpha))) - alpha * c

    numerical = optimize.approx_fprime(np.array([alpha]), lambda x: exact(x[0]), 1e-6)[0]

    def gradient(differentiate_log):
        def at(density):
            return integral(
                lambda a: (
                    density.pdf(a)
                    * float(entropy.minus_log_mix(jnp.asarray(log_ratio(a)), jnp.asarray(PI.logpdf(a)), alpha))
                )
            )

        at_pi, at_q = jnp.asarray(at(PI)), jnp.asarray(at(Q))

        def loss(x):
            return entropy.alpha_loss(at_pi, at_q, x, c, jnp.inf, differentiate_log=differentiate_log)

        return float(jax.grad(loss)(alpha))

    assert gradient(False) == pytest.approx(numerical, abs=1e-4)
    assert gradient(True) == pytest.approx(numerical - 1 / alpha, abs=1e-4)


@pytest.mark.parametrize(("ring_term", "clipped"), [(0.4, False), (5.0, True), (-5.0, True)])
def test_alpha_gradient_with_the_clip(x64, ring_term, clipped):
    """The code's variant against autodiff of alpha (l - log alpha - c) + (1 - alpha) clip(l' - log alpha), l frozen."""
    alpha, at_pi, c, bound = 0.6, 1.3, -2.0, 2.0
    frozen_pi, frozen_q = at_pi + np.log(alpha), ring_term + np.log(alpha)

    def authors(x):
        ring = jnp.clip(frozen_q - jnp.log(x), -bound, bound)
        return x * (frozen_pi - jnp.log(x) - c) + (1 - x) * ring

    def ours(x, differentiate_log):
        values = jnp.asarray(at_pi), jnp.asarray(ring_term)
        return entropy.alpha_loss(*values, x, c, bound, differentiate_log=differentiate_log)

    assert float(ours(jnp.asarray(alpha), True)) == pytest.approx(float(authors(alpha)))
    code = float(jax.grad(lambda x: ours(x, True))(alpha))
    paper = float(jax.grad(lambda x: ours(x, False))(alpha))
    assert code == pytest.approx(float(jax.grad(authors)(alpha)))
    assert paper == pytest.approx(at_pi - c - np.clip(ring_term, -bound, bound))
    assert code - paper == pytest.approx(-1 if clipped else -1 / alpha)


def test_no_clip_is_wider_than_the_bound_of_the_log_ratio():
    """Where f is held, -log pi of a stored action still grows: the difference is an error, not entropy."""
    far = jnp.array([1e17, -1e17, 45.0])
    np.testing.assert_array_equal(entropy.clip_q_term(far, jnp.inf), jnp.array([46.0, -46.0, 45.0]))
    np.testing.assert_array_equal(entropy.clip_q_term(far, 2.0), jnp.array([2.0, -2.0, 2.0]))
