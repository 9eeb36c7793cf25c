"""PPO: advantages and losses by hand, a whole update written out, the statistics, and what it learns."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms import PPO
from dac.algorithms.parts.advantage import generalised_advantages
from dac.algorithms.ppo import Networks, clip_norm, policy_loss, value_loss
from dac.config import resolve
from dac.core.architectures import Architecture
from dac.core.networks import log_density
from dac.core.normalise import Moments
from dac.core.population import grid, pick
from dac.core.types import EnvSpec, Transition, UsageError
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.envs.probes import Clock, Target
from dac.rundir.weights import load_tree, save_tree
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.common import schedule

SPEC = EnvSpec(obs_size=3, action_size=2)


def make_rollout(seed=0, time=6, envs=2, ends=True):
    """Random numbers; with `ends`, an episode of environment 0 terminates and one of environment 1 times out."""
    keys = jax.random.split(jax.random.key(seed), 4)
    terminated, truncated = np.zeros((time, envs)), np.zeros((time, envs))
    if ends:
        terminated[time // 2, 0] = truncated[time // 3, 1] = 1
    return Transition(
        obs=2 + 3 * jax.random.normal(keys[0], (time, envs, 3)),
        action=1.5 * jax.random.normal(keys[1], (time, envs, 2)),
        reward=5 * jax.random.normal(keys[2], (time, envs)),
        terminated=jnp.asarray(terminated, jnp.zeros(()).dtype),
        truncated=jnp.asarray(truncated, jnp.zeros(()).dtype),
        next_obs=2 + 3 * jax.random.normal(keys[3], (time, envs, 3)),
    )


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def on_policy(rollout, steps, **changes):
    values = {"random_steps": 0, "rollout": rollout, "eval_every": steps}
    return schedule(steps, **(values | changes))


# advantages


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        # gamma = lambda = 1/2, V = 1, 2, 3 and 6 in the end, so delta = 1 + 1 - 1, 1 + 1.5 - 2, 1 + 3 - 3
        ((0, 0, 0), (0, 0, 0), (1.1875, 0.75, 1.0)),
        # nothing follows step 1: delta = 1 - 2
        ((0, 1, 0), (0, 0, 0), (0.75, -1.0, 1.0)),
        # the same, but what was seen last, worth 3, still counts: delta = 1 + 1.5 - 2
        ((0, 0, 0), (0, 1, 0), (1.125, 0.5, 1.0)),
        # the end of a rollout bootstraps, as the first line says, unless it terminates: delta = 1 - 3
        ((0, 0, 1), (0, 0, 0), (1.0, 0.0, -2.0)),
    ],
)
def test_advantages_by_hand(x64, terminated, truncated, expected):
    zeros = jnp.zeros((3, 1, 1))
    column = [jnp.asarray(x, float)[:, None] for x in ((1, 1, 1), terminated, truncated)]
    rollout = Transition(zeros, zeros, *column, zeros)
    value, next_value = jnp.array([[1.0], [2.0], [3.0]]), jnp.array([[2.0], [3.0], [6.0]])
    found = generalised_advantages(rollout, value, next_value, 0.5, 0.5)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-15)


def slow_advantages(rollout, value, next_value, gamma, lam):
    """The definition: for every step, the sum over all later steps of its episode."""
    r = jax.tree.map(np.asarray, rollout)
    time, envs = r.reward.shape
    advantage = np.zeros((time, envs))
    for e in range(envs):
        for t in range(time):
            for k in range(t, time):
                bootstrap = 0 if r.terminated[k, e] else gamma * next_value[k, e]
                advantage[t, e] += (gamma * lam) ** (k - t) * (r.reward[k, e] + bootstrap - value[k, e])
                if r.terminated[k, e] or r.truncated[k, e]:
                    break
    return advantage


def test_advantages_against_the_double_loop(x64):
    rollout = make_rollout(3, time=20, envs=3)
    value, next_value = np.random.default_rng(0).normal(size=(2, 20, 3))
    found = generalised_advantages(rollout, jnp.asarray(value), jnp.asarray(next_value), 0.97, 0.9)
    np.testing.assert_allclose(found, slow_advantages(rollout, value, next_value, 0.97, 0.9), rtol=1e-12)


# losses


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 2.0, -2.2, -2.0),  # inside: the plain objective
        (1.5, 2.0, -2.4, 0.0),  # good and already likelier by enough: no more gradient
        (0.5, 2.0, -1.0, -2.0),  # good but less likely: all of it
        (0.9, -2.0, 1.8, 2.0),
        (0.5, -2.0, 1.6, 0.0),  # bad and already less likely by enough
        (1.5, -2.0, 3.0, 2.0),  # bad but likelier
    ],
)
def test_clipped_policy_loss_by_hand(ratio, advantage, loss, slope):
    found, gradient = jax.value_and_grad(policy_loss)(jnp.float32(ratio), jnp.float32(advantage), 0.2)
    assert float(found) == pytest.approx(loss, rel=1e-6)
    assert float(gradient) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        (1.1, 2.0, 0.405, -0.9),  # old value 1: moved by less than 0.2
        (1.5, 2.0, 0.32, 0.0),  # towards the target, already far: held at 1.2, 0.5 * 0.8^2
        (0.5, 2.0, 1.125, -1.5),  # away from the target: the plain error is larger
        (0.5, 0.0, 0.32, 0.0),  # towards it from above: held at 0.8
        (1.5, 0.0, 1.125, 1.5),
        (1.5, 1.3, 0.02, 0.2),  # beyond the target: the plain error 0.2 is larger than that at 1.2
    ],
)
def test_clipped_value_loss_by_hand(value, target, loss, slope):
    found, gradient = jax.value_and_grad(value_loss)(jnp.float32(value), 1.0, target, 0.2)
    assert float(found) == pytest.approx(loss, rel=1e-5)
    assert float(gradient) == pytest.approx(slope, rel=1e-5)


def test_value_clip_off_is_half_the_squared_error():
    assert float(value_loss(jnp.float32(5.0), 1.0, 2.0, jnp.inf)) == 4.5


def test_one_norm_bounds_policy_and_value_together(x64):
    ones = jax.tree.map(jnp.ones_like, Networks(jax.random.key(0), SPEC, Architecture((4,), activation="tanh")))
    gradient = eqx.tree_at(lambda g: g.value, ones, jax.tree.map(lambda x: 3 * x, ones.value))
    policy_size = (3 * 4 + 4) + (4 * 2 + 2) + 2
    value_size = (3 * 4 + 4) + (4 + 1)
    norm = np.sqrt(policy_size + 9 * value_size)
    clipped = clip_norm(gradient, 0.5)
    for part, size in ((clipped.mean, 1), (clipped.log_sigma, 1), (clipped.value, 3)):
        for leaf in leaves(part):
            np.testing.assert_allclose(leaf, size * 0.5 / norm, rtol=1e-12)
    for bound in (norm * 1.01, np.inf):
        for one, other in zip(leaves(clip_norm(gradient, bound)), leaves(gradient), strict=True):
            np.testing.assert_array_equal(one, other)
    nothing = jax.tree.map(jnp.zeros_like, ones)
    assert all((leaf == 0).all() for leaf in leaves(clip_norm(nothing, 0.5)))


# the whole update


def forward(mlp, x):
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        x = jnp.tanh(x @ weight + bias)
    return x @ mlp.weights[-1] + mlp.biases[-1]


def reference_update(ppo, state, rollout, key):
    """PPO with loops over time, environments and examples, and Adam by hand."""
    r = jax.tree.map(np.asarray, rollout)
    time, envs = r.reward.shape
    net = state.learner.model

    # rewards over the deviation of the running return
    totals, running = [], np.asarray(state.running[:envs]).copy()
    for t in range(time):
        for e in range(envs):
            running[e] = ppo.gamma * running[e] + r.reward[t, e]
            totals.append(running[e])
            if r.terminated[t, e] or r.truncated[t, e]:
                running[e] = 0
    returns = state.returns.add(jnp.array(totals)[:, None])
    reward = np.clip(r.reward / np.sqrt(float(returns.variance[0]) + 1e-8), -10, 10)

    # what the old policy thought
    def white(obs):
        moments = state.observations
        return np.clip((obs - moments.mean) / np.sqrt(np.asarray(moments.variance) + 1e-8), -10, 10)

    def density(net, obs, action):
        sigma = jnp.exp(net.log_sigma)
        mean = forward(net.mean, obs)
        return jnp.prod(jnp.exp(-((action - mean) ** 2) / (2 * sigma**2)) / (sigma * jnp.sqrt(2 * jnp.pi)))

    value = np.array([[forward(net.value, white(r.obs[t, e]))[0] for e in range(envs)] for t in range(time)])
    next_value = np.array([[forward(net.value, white(r.next_obs[t, e]))[0] for e in range(envs)] for t in range(time)])
    advantage = slow_advantages(dataclasses.replace(rollout, reward=reward), value, next_value, ppo.gamma, ppo.lam)
    rows = []
    for t in range(time):
        for e in range(envs):
            obs, action = white(r.obs[t, e]), r.action[t, e]
            rows.append((obs, action, value[t, e], advantage[t, e], density(net, obs, action)))

    def loss(net, batch):
        advantages = jnp.array([row[3] for row in batch])
        mean, std = jnp.mean(advantages), jnp.std(advantages)
        total = 0.0
        for obs, action, old_value, advantage, old_density in batch:
            normal = (advantage - mean) / (std + 1e-8)
            ratio = density(net, obs, action) / old_density
            near = jnp.where(ratio < 1 - ppo.clip, 1 - ppo.clip, jnp.where(ratio > 1 + ppo.clip, 1 + ppo.clip, ratio))
            total -= jnp.where(ratio * normal < near * normal, ratio * normal, near * normal)
            v, target = forward(net.value, obs)[0], advantage + old_value
            low, high = old_value - ppo.value_clip, old_value + ppo.value_clip
            held = jnp.where(v < low, low, jnp.where(v > high, high, v))
            plain, clipped = (v - target) ** 2, (held - target) ** 2
            total += ppo.value_coefficient * 0.5 * jnp.where(plain > clipped, plain, clipped)
        entropy = sum(0.5 * jnp.log(2 * jnp.pi * jnp.e * jnp.exp(s) ** 2) for s in net.log_sigma)
        return total / len(batch) - ppo.entropy_coefficient * entropy

    rate = ppo.learning_rate * (1 - int(state.seen) / ppo.total_steps)
    parameters, structure = jax.tree.flatten(net)
    adam = state.learner.opt_state
    first, second, steps = jax.tree.leaves(adam.mu), jax.tree.leaves(adam.nu), int(adam.count)
    norms, gradient_of = [], jax.jit(jax.grad(loss))
    for epoch_key in jax.random.split(key, ppo.epochs):
        order = np.asarray(jax.random.permutation(epoch_key, time * envs)).reshape(ppo.minibatches, -1)
        for chosen in order:
            gradient = jax.tree.leaves(gradient_of(structure.unflatten(parameters), [rows[i] for i in chosen]))
            norms.append(np.sqrt(sum(float((g**2).sum()) for g in gradient)))
            gradient = [g * min(1, ppo.max_norm / norms[-1]) for g in gradient]
            steps += 1
            first = [0.9 * m + 0.1 * g for m, g in zip(first, gradient, strict=True)]
            second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, gradient, strict=True)]
            parameters = [
                p - rate * (m / (1 - 0.9**steps)) / (jnp.sqrt(v / (1 - 0.999**steps)) + 1e-5)
                for p, m, v in zip(parameters, first, second, strict=True)
            ]
    return structure.unflatten(parameters), running, norms


@pytest.mark.parametrize("before", [0, 1])
def test_update_against_the_equations_written_out(x64, before):
    """From the start, and from a state that already has statistics, moments and a lower learning rate."""
    ppo = PPO(
        gamma=0.9,
        lam=0.8,
        learning_rate=2e-2,
        total_steps=50.0,
        clip=0.1,
        value_clip=0.1,
        entropy_coefficient=0.01,
        max_norm=0.7,
        rollout=12,
        minibatches=3,
        epochs=2,
        hidden=(4, 3),
    )
    state = ppo.init(jax.random.key(5), SPEC)
    update = jax.jit(ppo.update)
    for i in range(before):
        state = update(state, make_rollout(20 + i), jax.random.key(i))
    rollout, key = make_rollout(7), jax.random.key(11)
    networks, running, norms = reference_update(ppo, state, rollout, key)
    found = update(state, rollout, key)
    for one, other in zip(leaves(found.learner.model), leaves(networks), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.running[:2], running, rtol=1e-12)
    assert (np.asarray(found.running[2:]) == 0).all()
    seen = [make_rollout(20 + i).obs for i in range(before)] + [rollout.obs]
    everything = np.concatenate([np.asarray(obs).reshape(-1, 3) for obs in seen])
    np.testing.assert_allclose(found.observations.mean, everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.observations.variance, everything.var(axis=0), rtol=1e-12)
    assert int(found.seen) == 12 * (before + 1)
    # the clips were at work, or this test would not have seen them
    assert float(found.measured["clip_fraction"]) > 0.2
    assert max(norms) > 0.7


def test_the_ratio_starts_at_one(x64):
    """One epoch of one minibatch measures before anything moved, also after the statistics have changed."""
    ppo = PPO(rollout=12, minibatches=1, epochs=1, hidden=(4,), learning_rate=0.1)
    state = ppo.init(jax.random.key(0), SPEC)
    update = jax.jit(ppo.update)
    for i in range(3):
        state = update(state, make_rollout(i), jax.random.key(i))
        measured = {name: float(value) for name, value in ppo.metrics(state).items()}
        assert abs(measured["approx_kl"]) < 1e-15
        assert measured["clip_fraction"] == 0
        assert abs(measured["policy_loss"]) < 1e-12  # the mean of normalised advantages
    ppo = dataclasses.replace(ppo, epochs=2)
    assert float(ppo.update(state, make_rollout(3), jax.random.key(3)).measured["approx_kl"]) > 1e-6


def test_the_learning_rate_falls_to_zero_and_stays():
    ppo = PPO(rollout=12, minibatches=2, epochs=1, hidden=(4,), learning_rate=0.3, total_steps=36.0)
    state = ppo.init(jax.random.key(0), SPEC)
    update = jax.jit(ppo.update)
    assert ppo.metrics(state).keys() == ppo.metrics(update(state, make_rollout(), jax.random.key(0))).keys()
    assert all(float(value) == 0 for value in ppo.metrics(state).values())
    for i, expected in enumerate((0.3, 0.2, 0.1, 0.0, 0.0)):
        before = leaves(state.learner.model)
        state = update(state, make_rollout(i), jax.random.key(i))
        assert float(state.measured["learning_rate"]) == pytest.approx(expected, abs=1e-7)
        moved = any((a != b).any() for a, b in zip(before, leaves(state.learner.model), strict=True))
        assert moved == (expected > 0)
    constant = dataclasses.replace(ppo, total_steps=float("inf"))
    assert float(constant.update(state, make_rollout(), jax.random.key(9)).measured["learning_rate"]) == np.float32(0.3)


def test_metrics_by_their_definition(x64):
    ppo = PPO(rollout=12, minibatches=1, epochs=1, hidden=(4,), gamma=0.9, lam=0.8)
    state = ppo.init(jax.random.key(0), SPEC)
    rollout = make_rollout(1)
    found = ppo.update(state, rollout, jax.random.key(1))
    samples = ppo._judge(state, dataclasses.replace(rollout, reward=ppo._scale_rewards(state, rollout)[2]))
    target = np.asarray(samples.advantage + samples.value)
    explained = 1 - np.var(target - np.asarray(samples.value)) / np.var(target)
    assert float(found.measured["explained_variance"]) == pytest.approx(explained, rel=1e-10)
    assert float(found.measured["entropy"]) == pytest.approx(2 * 0.5 * np.log(2 * np.pi * np.e), rel=1e-12)
    sigma = np.exp(np.asarray(found.learner.model.log_sigma)).mean()
    assert float(found.measured["sigma"]) == pytest.approx(sigma, rel=1e-12)


def test_rewards_are_scaled_by_the_deviation_of_the_running_return(x64):
    """Three rollouts of three environments, each episode's return followed over their borders."""
    ppo = PPO(rollout=18, minibatches=2, hidden=(4,), gamma=0.8)
    state = ppo.init(jax.random.key(0), SPEC)
    running, totals = np.zeros(3), []
    for i in range(3):
        rollout = make_rollout(i, time=6, envs=3)
        rollout = dataclasses.replace(rollout, reward=rollout.reward.at[1, 2].set(500.0 if i == 2 else 1.0))
        returns, following, reward = ppo._scale_rewards(state, rollout)
        for t in range(6):
            running = 0.8 * running + np.asarray(rollout.reward[t])
            totals.append(running.copy())
            running *= 1 - np.maximum(np.asarray(rollout.terminated[t]), np.asarray(rollout.truncated[t]))
        expected = np.asarray(rollout.reward) / np.sqrt(np.var(totals) + 1e-8)
        np.testing.assert_allclose(reward, np.clip(expected, -10, 10), rtol=1e-10)
        np.testing.assert_allclose(following[:3], running, rtol=1e-12)
        state = dataclasses.replace(state, returns=returns, running=following)
    assert running.any()


def test_scaled_rewards_are_clipped_and_silence_stays_silent(x64):
    ppo = PPO(rollout=400, minibatches=2, hidden=(4,))
    state = ppo.init(jax.random.key(0), SPEC)
    rollout = make_rollout(0, time=200, envs=2)
    reward = jnp.zeros((200, 2)).at[7, 0].set(1e3).at[9, 1].set(-1e3)
    spikes = dataclasses.replace(rollout, reward=reward, terminated=jnp.ones((200, 2)))
    scaled = np.asarray(ppo._scale_rewards(state, spikes)[2])
    assert scaled[7, 0] == 10
    assert scaled[9, 1] == -10
    assert np.count_nonzero(scaled) == 2
    nothing = dataclasses.replace(rollout, reward=jnp.zeros((200, 2)))
    found = jax.jit(ppo.update)(state, nothing, jax.random.key(0))
    assert all(np.isfinite(leaf).all() for leaf in leaves(found))


# the policy


def test_the_policy_is_the_density_it_is_trained_with(x64):
    """Samples have the mean and deviation of the network; the density integrates to one and is theirs."""
    ppo = PPO(rollout=12, minibatches=2, hidden=(4,), learning_rate=0.05)
    state = ppo.init(jax.random.key(0), SPEC)
    state = ppo.update(state, make_rollout(1), jax.random.key(1))
    policy, obs = ppo.policy(state), jnp.array([2.0, -1.0, 4.0])
    mean = policy.act(obs, jax.random.key(0), explore=False)
    draws = np.asarray(jax.vmap(lambda k: policy.act(obs, k, explore=True))(jax.random.split(jax.random.key(2), 4000)))
    sigma = np.exp(np.asarray(policy.log_std))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * sigma.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=0), sigma, rtol=0.06)
    assert np.abs(draws).max() > 1  # not clipped
    grid_points = np.linspace(-8, 8, 161)
    plane = jnp.asarray(np.stack(np.meshgrid(grid_points, grid_points), axis=-1))
    density = np.exp(jax.vmap(jax.vmap(lambda action: log_density(mean, policy.log_std, action)))(plane))
    assert density.sum() * 0.1**2 == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose((plane * density[..., None]).sum(axis=(0, 1)) * 0.1**2, mean, atol=1e-9)


def test_a_saved_policy_acts_the_same(tmp_path):
    """Its statistics are saved with it, and they matter."""
    ppo = PPO(rollout=12, minibatches=2, hidden=(4,), learning_rate=0.1)
    state = ppo.update(ppo.init(jax.random.key(0), SPEC), make_rollout(1), jax.random.key(1))
    policy, obs = ppo.policy(state), jnp.array([2.0, -1.0, 4.0])
    save_tree(tmp_path / "policy.safetensors", policy)
    template = eqx.filter_eval_shape(lambda: ppo.policy(ppo.init(jax.random.key(0), SPEC)))
    loaded = load_tree(tmp_path / "policy.safetensors", template)
    for explore in (False, True):
        one, other = (p.act(obs, jax.random.key(3), explore=explore) for p in (policy, loaded))
        np.testing.assert_array_equal(one, other)
    blind = dataclasses.replace(loaded, moments=Moments.create(3))
    assert (blind.act(obs, jax.random.key(3), explore=False) != one).any()


def test_networks_start_orthogonal():
    networks = Networks(jax.random.key(0), SPEC, Architecture((8, 8), activation="tanh"))
    for mlp, last in ((networks.mean, 0.01), (networks.value, 1.0)):
        inner = np.asarray(mlp.weights[1])
        np.testing.assert_allclose(inner.T @ inner, 2 * np.eye(8), atol=1e-5)
        outer = np.asarray(mlp.weights[-1])
        np.testing.assert_allclose(outer.T @ outer, last**2 * np.eye(outer.shape[1]), atol=1e-6)
        assert mlp.activation is jnp.tanh
    assert (np.asarray(networks.log_sigma) == 0).all()


# in the loops


def test_ppo_learns_a_probe_with_a_known_answer():
    """See s, act s/2: every seed, with two environments each, and sigma shrinks on the way."""
    ppo = PPO(rollout=256, minibatches=4, learning_rate=3e-3, total_steps=20_480.0, hidden=(16, 16))
    loop = DeviceLoop(ppo, Target(), grid(range(3), {}), on_policy(256, 20_480, envs=2))
    before = loop.evaluate(20).returns.mean(axis=1)
    loop.advance(10_240)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert (before < -0.05).all()
    assert (after > -0.003).all()
    assert (loop.measure()["sigma"] < 0.5).all()
    for k in range(3):
        policy = pick(loop.policies(), k)
        for s in (-0.8, 0.0, 0.8):
            action = policy.act(jnp.array([s]), jax.random.key(0), explore=False)
            assert float(action[0]) == pytest.approx(s / 2, abs=0.06)


@pytest.mark.parametrize("terminates", [False, True])
def test_a_time_out_bootstraps_and_a_termination_does_not(terminates):
    """Reward 1 per step, gamma 1/2, episodes of 2 steps that look alike. Ended by time-out, every state is worth 2.
    Ended by termination, the lambda-returns of the two steps are 1 + (1/2)((1 - lam) V + lam) and 1; their mean is V
    for V = (2 + lam / 2) / (2 - (1 - lam) / 2). The running return is 1 and 1.5 in turns: its deviation is 1/4."""
    ppo = PPO(gamma=0.5, lam=0.5, rollout=64, minibatches=2, learning_rate=1e-2, hidden=(8,), value_clip=float("inf"))
    loop = DeviceLoop(ppo, Clock(horizon=2, terminates=terminates), grid([0, 1], {}), on_policy(64, 4096))
    loop.advance(4096)
    for k in range(2):
        state = pick(loop.states, k)
        deviation = float(jnp.sqrt(state.returns.variance[0]))
        assert deviation == pytest.approx(0.25, abs=1e-3)
        value = state.learner.model.value(state.observations.whiten(jnp.ones(1), 10.0))[0] * deviation
        assert float(value) == pytest.approx(2.25 / 1.75 if terminates else 2.0, abs=0.02)


@pytest.mark.parametrize("envs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_device_loop_and_host_loop_learn_the_same(envs):
    """Rollouts, updates and what they are made of; the last rollout is complete, but nothing acts after it."""
    ppo = PPO(rollout=40, minibatches=4, epochs=3, hidden=(8,), learning_rate=1e-3, total_steps=120.0)
    sched = on_policy(40, 120, envs=envs, eval_every=40)
    members = grid([0, 3], {"gamma": [0.9, 0.99]})
    device = DeviceLoop(ppo, FourRoomMaze(), members, sched)
    host = HostLoop(ppo, lambda num: make_gymnasium("dac/FourRoomMaze-v0", num), members, sched)
    for loop in (device, host):
        loop.advance(120 // envs)
        assert loop.schedule.updates(loop.step) == 2
        assert loop.states.seen.tolist() == [80] * 4
        assert loop.states.learner.opt_state.count.tolist() == [2 * 3 * 4] * 4
    np.testing.assert_allclose(*(loop.latest_rows(loop.stored - loop.capacity) for loop in (device, host)), atol=2e-3)
    for one, other in zip(leaves(device.policies()), leaves(host.policies()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-3)
    assert list(host.measure()) == list(device.measure()) == host.metric_names()
    host.close()


@pytest.mark.slow
def test_a_member_is_the_same_alone_and_among_others(x64):
    ppo = PPO(rollout=32, minibatches=2, epochs=2, hidden=(4,))
    members = grid([0, 5], {"clip": [0.1, 0.3], "learning_rate": [1e-2]})
    together = DeviceLoop(ppo, Target(), members, on_policy(32, 160))
    together.advance(160)
    for k in (0, 3):
        alone = DeviceLoop(ppo, Target(), [members[k]], on_policy(32, 160))
        alone.advance(160)
        for one, other in zip(leaves(alone.policies()), leaves(together.policies()), strict=True):
            np.testing.assert_allclose(one[0], other[k], rtol=1e-9, atol=1e-12)


# settings


def test_presets_set_the_loop_and_the_annealing_follows_it():
    config = resolve("ppo", "gym:Pendulum-v1")
    assert config.training.envs == 4
    assert config.training.random_steps == 0
    assert config.hyper["total_steps"] == config.training.steps
    assert config.schedule().capacity == config.hyper["rollout"]
    assert resolve("ppo", "HalfCheetah").training.random_steps == 0
    assert resolve("ppo", "maze", settings={"steps": 5000}).hyper["total_steps"] == 5000


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minibatches": 33}, "rollout 2048 does not divide into 33 minibatches"),
        ({"rollout": 64, "minibatches": 64}, "minibatches of 2 transitions or more"),
        ({"envs": 3, "steps": 3000, "eval_every": 300}, "rollout 2048 is not a multiple of the 3 environments"),
        ({"epochs": 0}, "epochs must be from 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        resolve("ppo", "maze", settings=given)
