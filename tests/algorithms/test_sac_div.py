"""SAC-Div's update: its SAC limit, every gradient against its equation, the divergence and the adaptive scale."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

from dac.algorithms import SAC, SACDiv
from dac.config import resolve
from dac.core import entropy
from dac.core.learner import Learner
from dac.core.networks import twin_values
from dac.core.population import grid
from dac.core.types import EnvSpec, Transition, UsageError
from dac.envs.probes import Target
from dac.training.device import DeviceLoop
from tests.algorithms.test_dac import SPEC, leaves, make_batch, run
from tests.common import schedule

NETWORKS = ("policy", "critics", "value", "value_target", "ratio")


@pytest.mark.parametrize("divergence", ["kl", "js"])
@pytest.mark.parametrize("policy_q", ["first", "min"])
def test_without_a_scale_it_is_sac(policy_q, divergence):
    """Every network, target and moment after several updates, bit for bit."""
    shared = {"beta": 0.1, "hidden": (8, 8), "policy_q": policy_q}
    ours, _ = run(SACDiv(**shared, divergence=divergence, scale_min=0.0, scale_max=0.0))
    sac, _ = run(SAC(**shared, passive_ratio=True))
    assert float(ours.scale) == 0
    for name in NETWORKS:
        for one, other in zip(leaves(getattr(ours, name)), leaves(getattr(sac, name)), strict=True):
            np.testing.assert_array_equal(one, other)


def reference_update(algorithm, scale, state, batch, key):
    """Loops over the batch, densities from their definition, optax.adam, R itself (not its log)."""
    noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)
    n = range(batch.obs.shape[0])

    def sample(policy, i):
        gaussian = policy(batch.obs[i])
        std = jnp.exp(gaussian.log_std)
        u = gaussian.mean + std * noise[i]
        density = jnp.exp(-0.5 * ((u - gaussian.mean) / std) ** 2) / (std * jnp.sqrt(2 * jnp.pi))
        return jnp.tanh(u), jnp.log(jnp.prod(density / (1 - jnp.tanh(u) ** 2)))

    def ratio_of(net, i, action):  # pi / (pi + q)
        odds = jnp.exp(net(batch.obs[i], action))
        return odds / (1 + odds)

    def twin(i, action, critics):
        return list(twin_values(critics, batch.obs[i][None], action[None])[:, 0])

    def policy_loss(policy):
        total = 0.0
        for i in n:
            action, log_pi = sample(policy, i)
            r = ratio_of(state.ratio.model, i, action)
            term = jnp.log(r / (1 - r)) if algorithm.divergence == "kl" else 0.5 * jnp.log(r)
            total -= twin(i, action, state.critics.model)[0] - log_pi + scale * term
        return total / len(n)

    drawn = [sample(state.policy.model, i) for i in n]

    def value_loss(value):
        total = 0.0
        for i in n:
            action, log_pi = drawn[i]
            total += 0.5 * (value(batch.obs[i]) - (min(twin(i, action, state.critics.model)) - log_pi)) ** 2
        return total / len(n)

    def critics_loss(critics):
        total = 0.0
        for i in n:
            y = batch.reward[i] / algorithm.beta
            if batch.terminated[i] == 0:
                y += algorithm.gamma * state.value_target(batch.next_obs[i])
            total += sum(0.5 * (q - y) ** 2 for q in twin(i, batch.action[i], critics))
        return total / len(n)

    def ratio_loss(net):
        total = 0.0
        for i in n:
            total -= 0.5 * jnp.log(ratio_of(net, i, drawn[i][0])) + 0.5 * jnp.log(1 - ratio_of(net, i, batch.action[i]))
        return total / len(n)

    new = {}
    losses = {"policy": policy_loss, "value": value_loss, "critics": critics_loss, "ratio": ratio_loss}
    for name, loss in losses.items():
        model = getattr(state, name).model
        adam = optax.adam(algorithm.learning_rate)
        updates, _ = adam.update(jax.grad(loss)(model), adam.init(model), model)
        new[name] = optax.apply_updates(model, updates)
    r_pi = np.array([ratio_of(state.ratio.model, i, drawn[i][0]) for i in n])
    r_q = np.array([ratio_of(state.ratio.model, i, batch.action[i]) for i in n])
    divergences = {
        "kl": np.mean(np.log(r_pi / (1 - r_pi))),
        "js": np.mean(0.5 * (np.log(r_pi) + np.log(2)) + 0.5 * (np.log(1 - r_q) + np.log(2))),
    }
    return new, divergences


@pytest.mark.parametrize("divergence", ["kl", "js"])
def test_update_against_the_equations_written_out(x64, divergence):
    scale = 3.0  # large enough that a wrong term would show
    algorithm = SACDiv(beta=0.5, gamma=0.9, learning_rate=1e-3, hidden=(8, 8), divergence=divergence, scale=scale)
    state = algorithm.init(jax.random.key(5), SPEC)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    new, divergences = reference_update(algorithm, scale, state, batch, key)
    found, metrics = jax.jit(algorithm.update)(state, batch, key)
    for name, model in new.items():
        for one, other in zip(leaves(getattr(found, name).model), leaves(model), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    for t0, t1, v in zip(leaves(state.value_target), leaves(found.value_target), leaves(new["value"]), strict=True):
        np.testing.assert_allclose(t1, 0.995 * t0 + 0.005 * v, rtol=1e-6, atol=1e-8)
    assert float(metrics["divergence"]) == pytest.approx(divergences[divergence], rel=1e-9)
    assert float(metrics["js_divergence"]) == pytest.approx(divergences["js"], rel=1e-9)
    assert float(metrics["divergence_scale"]) == scale
    threshold = {"kl": 0.2, "js": 0.5}[divergence]
    assert float(found.scale) == pytest.approx(scale * (1.01 if divergences[divergence] <= threshold else 0.99))


@pytest.mark.parametrize("divergence", ["kl", "js"])
def test_the_divergence_reaches_the_policy_alone(divergence):
    """Another ratio network: another policy, but the same critics, values and targets."""
    algorithm = SACDiv(hidden=(8, 8), divergence=divergence, scale=3.0)
    state = algorithm.init(jax.random.key(0), SPEC)
    changed = dataclasses.replace(state, ratio=algorithm.init(jax.random.key(1), SPEC).ratio)
    one, other = (algorithm.update(s, make_batch(), jax.random.key(2))[0] for s in (state, changed))
    for name in ("critics", "value", "value_target"):
        for a, b in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(a, b)
    # the first Adam step is nearly a sign, but its moments hold the gradient
    moments = zip(leaves(one.policy.opt_state), leaves(other.policy.opt_state), strict=True)
    assert any((a != b).any() for a, b in moments)


@pytest.mark.parametrize(
    ("settings", "updates", "expected"),
    [
        ({"kl_threshold": 1e9}, 3, 1.01**3),
        ({"kl_threshold": -1e9}, 3, 0.99**3),
        ({"kl_threshold": 1e9, "scale_max": 1.015}, 3, 1.015),
        ({"kl_threshold": -1e9, "scale_min": 0.985}, 3, 0.985),
        ({"kl_threshold": -1e9, "js_threshold": 1e9, "divergence": "js"}, 2, 1.01**2),
        ({"kl_threshold": 1e9, "js_threshold": -1e9, "divergence": "js"}, 2, 0.99**2),
        ({"scale": 50.0, "kl_threshold": 1e9}, 0, 10.0),
    ],
)
def test_the_scale_follows_its_threshold_within_bounds(settings, updates, expected):
    state, _ = run(SACDiv(hidden=(8, 8), **settings), updates=updates)
    assert float(state.scale) == pytest.approx(expected, rel=1e-6)


def test_the_scale_grows_at_the_threshold_itself():
    algorithm = SACDiv()
    at, above = jnp.float32(0.2), jnp.float32(0.2000001)
    assert float(algorithm._rescale(jnp.float32(2.0), at)) == pytest.approx(2.02)
    assert float(algorithm._rescale(jnp.float32(2.0), above)) == pytest.approx(1.98)


# a policy and a ring over u = atanh(a); divergences do not change under the squashing
PI_MEAN, PI_STD, Q_MEAN, Q_STD = 0.3, 0.5, -0.2, 0.8
PI, Q = stats.norm(PI_MEAN, PI_STD), stats.norm(Q_MEAN, Q_STD)


class TrueRatio(eqx.Module):
    """log pi/q of the two Gaussians, with one parameter so that it can be trained like a network."""

    shift: jax.Array

    def __call__(self, obs, action):
        del obs
        u = jnp.arctanh(action[0])
        log_pi = -0.5 * ((u - PI_MEAN) / PI_STD) ** 2 - jnp.log(PI_STD)
        return log_pi + 0.5 * ((u - Q_MEAN) / Q_STD) ** 2 + jnp.log(Q_STD) + self.shift


def kl_of_gaussians(mean, std):
    return jnp.log(Q_STD / std) + (std**2 + (mean - Q_MEAN) ** 2) / (2 * Q_STD**2) - 0.5


def js_by_quadrature(mean, std):
    pi = stats.norm(mean, std)

    def integrand(u):
        p, q = pi.pdf(u), Q.pdf(u)
        m = 0.5 * (p + q)
        return 0.5 * p * np.log(p / m) + 0.5 * q * np.log(q / m)

    return integrate.quad(integrand, -5, 5, limit=400, epsabs=1e-13)[0]


def test_estimates_with_the_true_ratio(x64):
    """A constant policy and a ring of known densities: the logged divergences are theirs, to sampling error."""
    size, spec = 40_000, EnvSpec(obs_size=1, action_size=1)
    algorithm = SACDiv(hidden=(4,))
    state = algorithm.init(jax.random.key(0), spec)
    mlp = jax.tree.map(jnp.zeros_like, state.policy.model.mlp)
    mlp = eqx.tree_at(lambda m: m.biases[-1], mlp, jnp.array([PI_MEAN, np.log(PI_STD)]))
    state = dataclasses.replace(
        state,
        policy=Learner.create(eqx.tree_at(lambda p: p.mlp, state.policy.model, mlp)),
        ratio=Learner.create(TrueRatio(jnp.zeros(()))),
    )
    action = jnp.tanh(Q_MEAN + Q_STD * jax.random.normal(jax.random.key(1), (size, 1)))
    zeros = jnp.zeros(size)
    batch = Transition(jnp.zeros((size, 1)), action, zeros, zeros, zeros, jnp.zeros((size, 1)))
    found = {d: SACDiv(hidden=(4,), divergence=d).update(state, batch, jax.random.key(2))[1] for d in ("kl", "js")}
    kl, js = float(kl_of_gaussians(PI_MEAN, PI_STD)), js_by_quadrature(PI_MEAN, PI_STD)
    assert float(found["kl"]["divergence"]) == pytest.approx(kl, abs=0.015)  # 4 standard errors
    assert float(found["js"]["divergence"]) == pytest.approx(js, abs=0.007)
    assert float(found["kl"]["js_divergence"]) == float(found["js"]["divergence"])


def test_the_frozen_ratio_gives_the_whole_gradient(x64):
    """d D / d(mean, std) by closed form or differences of quadratures; ours through the action alone, f frozen."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = jnp.asarray(weights / weights.sum())
    ratio = TrueRatio(jnp.zeros(()))

    def through_the_action(parameters, term):
        actions = jnp.tanh(parameters[0] + parameters[1] * jnp.asarray(nodes))
        return jnp.sum(weights * term(jax.vmap(lambda a: ratio(None, a[None]))(actions)))

    at = jnp.array([PI_MEAN, PI_STD])
    kl = jax.grad(lambda p: through_the_action(p, entropy.kl_divergence))(at)
    np.testing.assert_allclose(kl, jax.grad(lambda p: kl_of_gaussians(*p))(at), atol=1e-6)
    js = jax.grad(lambda p: through_the_action(p, lambda f: 0.5 * entropy.log_pi_over_mix(f, 0.5)))(at)
    h = 1e-4
    by_mean = (js_by_quadrature(PI_MEAN + h, PI_STD) - js_by_quadrature(PI_MEAN - h, PI_STD)) / (2 * h)
    by_std = (js_by_quadrature(PI_MEAN, PI_STD + h) - js_by_quadrature(PI_MEAN, PI_STD - h)) / (2 * h)
    np.testing.assert_allclose(js, [by_mean, by_std], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("divergence", "enough"), [("kl", -0.01), ("js", -0.06)])
def test_it_learns_a_probe_with_a_known_answer(divergence, enough):
    """See s, act s/2: every seed, from a return of about -0.4 to almost 0.

    The policy becomes narrow: D_KL is soon above its threshold and alpha_d falls. D_JS needs alpha_d near its upper
    bound to come close to 0.5, which keeps the policy a little off the best action.
    """
    agent = SACDiv(beta=0.01, hidden=(32, 32), batch_size=64, learning_rate=1e-3, divergence=divergence)
    sched = schedule(3000, random_steps=100, update_after=100, capacity=3000, eval_every=750)
    loop = DeviceLoop(agent, Target(), grid(range(3), {}), sched)
    before = loop.evaluate(20).returns.mean(axis=1)
    loop.advance(3000)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert (after > enough).all()
    assert (after > before).all()
    scale = np.asarray(loop.states.scale)
    assert (scale > 5).all() if divergence == "js" else (scale < 0.1).all()


def test_settings_are_checked():
    assert resolve("sac-div", "maze", settings={"divergence": "js", "js_threshold": [0.3, 0.5]}).members()
    with pytest.raises(UsageError, match=r"divergence must be one of kl, js"):
        resolve("sac-div", "maze", settings={"divergence": "tv"})
    assert resolve("sac-div", "gym:Pendulum-v1").hyper["hidden"] == (64, 64)
