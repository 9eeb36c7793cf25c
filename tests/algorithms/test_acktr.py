"""ACKTR's update: value fit, policy step and trust region against loops, and a probe that it must solve."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dac.algorithms import ACKTR
from dac.algorithms.acktr import divergence
from dac.algorithms.parts import kfac
from dac.core.architectures import MLP
from dac.core.networks import NormalisedGaussianPolicy
from dac.core.normalise import Moments
from dac.core.population import grid, pick
from dac.core.schedule import Schedule
from dac.core.types import EnvSpec, Transition
from dac.envs.probes import Target
from dac.rundir.weights import load_tree, save_tree
from dac.training.device import DeviceLoop

SPEC = EnvSpec(obs_size=3, action_size=2)


def make_rollout(seed=0, time=12, envs=4):
    keys = jax.random.split(jax.random.key(seed), 6)
    dtype = jnp.zeros(()).dtype
    return Transition(
        obs=3 * jax.random.normal(keys[0], (time, envs, 3)) + 1,
        action=jax.random.normal(keys[1], (time, envs, 2)),
        reward=jax.random.normal(keys[2], (time, envs)),
        terminated=(jax.random.uniform(keys[3], (time, envs)) < 0.2).astype(dtype),
        truncated=(jax.random.uniform(keys[4], (time, envs)) < 0.1).astype(dtype),
        next_obs=3 * jax.random.normal(keys[5], (time, envs, 3)) + 1,
    )


def make_policy(key=0):
    mlp = MLP(jax.random.key(key), 3, (8,), 2, activation=jnp.tanh)
    moments = Moments(jnp.float32(5), jnp.array([1.0, -2.0, 0.5]), jnp.array([4.0, 1.0, 0.25]))
    return NormalisedGaussianPolicy(mlp, jnp.array([-0.5, 0.2]), moments)


def test_policy_density_and_entropy_are_those_of_a_normal_distribution():
    policy, obs, action = make_policy(), jnp.array([0.3, -1.0, 2.0]), jnp.array([1.7, -0.4])
    mean = policy.mlp(jnp.array([-0.35, 1.0, 3.0]))
    normal = stats.norm(np.asarray(mean), np.exp([-0.5, 0.2]))
    np.testing.assert_allclose(policy.mean(obs), mean, rtol=1e-5)
    assert float(policy.log_prob(obs, action)) == pytest.approx(normal.logpdf(action).sum(), rel=1e-5)
    assert float(policy.entropy()) == pytest.approx(normal.entropy().sum(), rel=1e-5)


def test_policy_acts_with_its_mean_or_a_sample_beyond_the_bounds():
    policy, obs = make_policy(), jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_array_equal(policy.act(obs, jax.random.key(0), explore=False), policy.mean(obs))
    drawn = jax.vmap(lambda k: policy.act(obs, k, explore=True))(jax.random.split(jax.random.key(1), 20_000))
    np.testing.assert_allclose(drawn.mean(axis=0), policy.mean(obs), atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), np.exp([-0.5, 0.2]), rtol=0.03)
    assert (jnp.abs(drawn) > 1).any()


def test_divergence_is_the_mean_log_ratio():
    old, new, obs = make_policy(0), make_policy(1), jnp.array([0.3, -1.0, 2.0])
    new = dataclasses.replace(new, log_std=jnp.array([-0.1, 0.5]))
    drawn = jax.vmap(lambda k: old.act(obs, k, explore=True))(jax.random.split(jax.random.key(1), 100_000))
    ratio = jax.vmap(lambda a: old.log_prob(obs, a) - new.log_prob(obs, a))(drawn)
    assert float(divergence(old, new, obs)) == pytest.approx(float(ratio.mean()), rel=0.03)
    assert float(divergence(old, old, obs)) == 0


@pytest.mark.parametrize(
    ("step_size", "kl", "expected"),
    [
        (0.03, 0.0041, 0.02),
        (0.03, 0.0039, 0.03),
        (0.03, 0.0011, 0.03),
        (0.03, 0.0009, 0.045),
        (0.8, 0.0, 1.0),  # the authors' bounds
        (1.2e-8, 1.0, 1e-8),
    ],
)
def test_step_size_follows_the_divergence(step_size, kl, expected):
    adapted = ACKTR(target_kl=0.002).adapt(jnp.float32(step_size), jnp.float32(kl))
    assert float(adapted) == pytest.approx(expected, rel=1e-5)


def reference_update(algorithm, state, rollout, key):
    """One update with loops over time and environments, numpy solves and momentum from its definition."""
    policy_key, value_key = jax.random.split(key)
    obs, next_obs = (np.asarray(x) for x in (rollout.obs, rollout.next_obs))
    mean, std = obs.reshape(-1, 3).mean(axis=0), np.sqrt(obs.reshape(-1, 3).var(axis=0) + 1e-8)
    seen, next_seen = (np.clip((x - mean) / std, -10, 10) for x in (obs, next_obs))
    time, envs = obs.shape[:2]
    gamma, lam = algorithm.gamma, algorithm.lam
    values, next_values = (np.asarray(jax.vmap(jax.vmap(state.value))(x))[..., 0] for x in (seen, next_seen))
    reward, terminated, truncated = (np.asarray(x) for x in (rollout.reward, rollout.terminated, rollout.truncated))
    advantage, returns = np.zeros((time, envs)), np.zeros((time, envs))
    for e in range(envs):
        for t in range(time):
            weight_a = weight_r = 1.0
            returns[t, e] = values[t, e]
            for k in range(t, time):
                delta = reward[k, e] - values[k, e]
                if not terminated[k, e]:
                    delta += gamma * next_values[k, e]
                advantage[t, e] += weight_a * delta
                returns[t, e] += weight_r * delta
                weight_a, weight_r = weight_a * gamma * lam, weight_r * gamma
                if terminated[k, e] or truncated[k, e]:
                    break
    standard = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).ravel()
    x, targets = jnp.asarray(seen.reshape(-1, 3)), jnp.asarray(returns.ravel())

    def natural(gradient, factors, damping):
        found = []
        for weight, bias, (a, g) in zip(gradient.weights, gradient.biases, factors, strict=True):
            pi = np.sqrt(np.trace(a) / len(a) / (np.trace(g) / len(g)))
            a, g = a + pi * np.sqrt(damping) * np.eye(len(a)), g + np.sqrt(damping) / pi * np.eye(len(g))
            found.append(np.linalg.solve(a, np.concatenate([weight, bias[None]])) @ np.linalg.inv(g))
        return found

    def factors_of(mlp, score):
        layers = kfac.layer_statistics(mlp, x, score)
        return [(np.asarray(f.inputs), np.asarray(f.gradients)) for f in kfac.batch_factors(layers)]

    def matrices(mlp):
        return [np.concatenate([w, b[None]]) for w, b in zip(mlp.weights, mlp.biases, strict=True)]

    def as_mlp(mlp, found):
        leaves = [jnp.asarray(m[:-1]) for m in found] + [jnp.asarray(m[-1]) for m in found]
        return jax.tree.unflatten(jax.tree.structure(mlp), leaves)

    # the value: every update with its own sample, inverses from the latest multiple of `inverse_every`
    value, velocity, average = state.value, [np.zeros_like(m) for m in matrices(state.value)], None
    for i, sample_key in enumerate(jax.random.split(value_key, algorithm.value_updates)):
        new = factors_of(value, jax.random.normal(sample_key, (len(targets), 1)))
        kept = min(1 - 1 / (i + 1), algorithm.value_decay)
        average = (
            new
            if average is None
            else [
                tuple(kept * o + (1 - kept) * n for o, n in zip(old, now, strict=True))
                for old, now in zip(average, new, strict=True)
            ]
        )
        if i % algorithm.inverse_every == 0:
            used = average
        gradient = jax.grad(lambda m: 0.5 * jnp.mean((jax.vmap(m)(x)[:, 0] - targets) ** 2))(value)
        direction = natural(gradient, used, algorithm.value_damping)
        rate = algorithm.value_learning_rate
        product = rate**2 * sum((g * d).sum() for g, d in zip(matrices(gradient), direction, strict=True))
        scale = min(1.0, np.sqrt(algorithm.value_clip / product))
        velocity = [algorithm.momentum * v + scale * d for v, d in zip(velocity, direction, strict=True)]
        moved = [m - rate * (1 - algorithm.momentum) * v for m, v in zip(matrices(value), velocity, strict=True)]
        value = as_mlp(value, moved)

    # the policy: one step, the first of its momentum
    policy = state.policy
    std_pi = np.exp(np.asarray(policy.log_std))
    noise = jax.random.normal(policy_key, (len(targets), 2))
    actions = np.asarray(rollout.action).reshape(-1, 2)

    def loss(parameters):
        mlp, log_std = parameters
        log_std = log_std[None]
        log_pi = -0.5 * ((actions - jax.vmap(mlp)(x)) / jnp.exp(log_std)) ** 2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        return -jnp.mean(standard * jnp.sum(log_pi, axis=1))

    gradient, gradient_std = jax.grad(loss)((policy.mlp, policy.log_std))
    direction = natural(gradient, factors_of(policy.mlp, noise / std_pi[None]), algorithm.policy_damping)
    direction_std = np.asarray(gradient_std) / (2 + algorithm.policy_damping)
    product = sum((g * d).sum() for g, d in zip(matrices(gradient), direction, strict=True))
    product += (np.asarray(gradient_std) * direction_std).sum()
    scale = min(1.0, np.sqrt(algorithm.policy_clip / (algorithm.step_size**2 * product)))
    length = algorithm.step_size * (1 - algorithm.momentum) * scale
    mlp = as_mlp(policy.mlp, [m - length * d for m, d in zip(matrices(policy.mlp), direction, strict=True)])
    return value, mlp, np.asarray(policy.log_std) - length * direction_std, scale


@pytest.mark.parametrize("step_size", [0.03, 1.0])
def test_update_against_the_equations_written_out(x64, step_size):
    """A whole update in double precision; with the long step the KL clip is active."""
    algorithm = ACKTR(
        hidden=(5, 4),
        gamma=0.9,
        lam=0.8,
        step_size=step_size,
        value_learning_rate=0.5,
        value_updates=7,
        inverse_every=3,
    )
    state = algorithm.init(jax.random.key(1), SPEC)
    rollout, key = make_rollout(2), jax.random.key(3)
    value, mlp, log_std, scale = reference_update(algorithm, state, rollout, key)
    found = jax.jit(algorithm.update)(state, rollout, key)
    assert float(found.measured["kl_clip_scale"]) == pytest.approx(scale, rel=1e-9)
    assert (scale < 1) == (step_size == 1.0)
    for one, other in zip(jax.tree.leaves((found.value, found.policy.mlp)), jax.tree.leaves((value, mlp)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.policy.log_std, log_std, rtol=1e-9)
    assert float(found.policy.moments.count) == 48


def test_twenty_five_value_updates_and_one_policy_update_per_rollout():
    algorithm = ACKTR(hidden=(4,))
    update, state = jax.jit(algorithm.update), algorithm.init(jax.random.key(0), SPEC)
    for i in range(2):
        state = update(state, make_rollout(i), jax.random.key(i))
    assert int(state.value_optimiser.kfac.count) == 50
    assert int(state.policy_optimiser.kfac.count) == 2


@pytest.mark.slow
def test_divergence_of_one_update_stays_near_the_clip():
    """However long the step: clip / 2 to second order and by the factors, so in truth not far from it."""
    for clip in (0.001, 0.01):
        algorithm = ACKTR(hidden=(8, 8), step_size=1.0, policy_clip=clip, momentum=0.0, policy_damping=1e-3)
        state = algorithm.init(jax.random.key(1), SPEC)
        found = jax.jit(algorithm.update)(state, make_rollout(2, time=200), jax.random.key(3))
        assert float(found.measured["kl_clip_scale"]) < 1
        assert 0.3 * clip / 2 < float(found.measured["kl"]) < 1.5 * clip / 2


def test_value_fit_explains_the_returns():
    """Returns that are a function of the observation: after some rollouts the value predicts new ones."""
    algorithm = ACKTR(hidden=(16, 16), gamma=0.0, value_learning_rate=0.3)
    update, state = jax.jit(algorithm.update), algorithm.init(jax.random.key(0), SPEC)
    explained = []
    for i in range(12):
        rollout = make_rollout(i, time=50)
        paid = dataclasses.replace(rollout, reward=jnp.sin(rollout.obs[..., 0] / 3) + rollout.obs[..., 1])
        state = update(state, paid, jax.random.key(i))
        explained.append(float(state.measured["explained_variance"]))
    assert explained[0] < 0.5
    assert explained[-1] > 0.95


def test_nothing_measured_is_not_nan():
    algorithm = ACKTR(hidden=(4,))
    metrics = algorithm.metrics(algorithm.init(jax.random.key(0), SPEC))
    assert all(np.isfinite(v) for v in metrics.values())
    assert float(metrics["step_size"]) == pytest.approx(0.03)
    assert float(metrics["sigma"]) == 1


@pytest.mark.slow
def test_acktr_learns_a_probe_with_a_known_answer(tmp_path):
    """See s, act s/2, for all of three seeds; and what was learnt survives a file, its statistics with it."""
    rollout = 500
    schedule = Schedule(40_000, 50, 0, 1, 1, 1, 10_000, rollout=rollout)
    agent = ACKTR(hidden=(16, 16), rollout=rollout, target_kl=0.02, step_size=0.3, policy_clip=0.1)
    loop = DeviceLoop(agent, Target(), grid(range(3), {}), schedule)
    before = loop.evaluate(20).returns.mean(axis=1)
    loop.advance(800)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert (after > -0.01).all()
    assert after.mean() > before.mean()
    policies = loop.policies()
    save_tree(tmp_path / "policy.safetensors", policies)
    template = jax.tree.map(jnp.zeros_like, policies)
    loaded = load_tree(tmp_path / "policy.safetensors", template)
    np.testing.assert_allclose(loaded.moments.count, 39_500)
    np.testing.assert_allclose(loaded.moments.variance, 1 / 3, rtol=0.05)
    for k in range(3):
        for s in (-0.8, 0.0, 0.8):
            action = pick(loaded, k).act(jnp.array([s]), jax.random.key(0), explore=False)
            assert float(action[0]) == pytest.approx(s / 2, abs=0.12)
