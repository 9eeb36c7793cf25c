"""Soft Q-Learning: value, score and both gradients against calculations by hand, the target's copy, and learning."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad

from dac.algorithms import SoftQLearning
from dac.algorithms.sql import Sampler, samples, scores, soft_value
from dac.config import resolve
from dac.core.architectures import Architecture
from dac.core.learner import Learner
from dac.core.networks import ActionValue
from dac.core.population import Member, grid, pick
from dac.core.types import EnvSpec
from dac.envs.maze import FourRoomMaze
from dac.envs.probes import Clock, Target
from dac.training.device import DeviceLoop
from tests.algorithms.test_dac import leaves, make_batch
from tests.common import everything, schedule

SPEC = EnvSpec(obs_size=3, action_size=2)


def tiny(**changes):
    return SoftQLearning(**({"hidden": (8, 8), "batch_size": 16} | changes))


def assert_same(one, other, **tolerance):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **({"rtol": 1e-8, "atol": 1e-12} | tolerance))


def forward(mlp, *inputs):
    """The network and the derivatives of its outputs by its inputs, in numpy."""
    x = np.concatenate([np.asarray(part) for part in inputs])
    jacobian = np.eye(len(x))
    for weight, bias in zip(mlp.weights[:-1], mlp.biases[:-1], strict=True):
        z = x @ np.asarray(weight) + np.asarray(bias)
        x, jacobian = np.maximum(z, 0), jacobian @ np.asarray(weight) * (z > 0)
    return x @ np.asarray(mlp.weights[-1]) + np.asarray(mlp.biases[-1]), jacobian @ np.asarray(mlp.weights[-1])


def test_soft_value_against_numerical_integration(x64):
    """Q(a) = 3 sin(4a) - a^2 on [-1, 1]: log of the integral of exp(Q), from evenly spread actions."""

    def q(a):
        return 3 * np.sin(4 * a) - a**2

    expected = math.log(quad(lambda a: math.exp(q(a)), -1, 1)[0])
    spread = (np.arange(2000) + 0.5) / 1000 - 1
    assert float(soft_value(jnp.asarray(q(spread)), 1)) == pytest.approx(expected, abs=1e-5)
    # and in two dimensions, where Q is a sum and the integral a product
    plane = q(spread[::10])[:, None] + q(spread[::10])[None, :]
    assert float(soft_value(jnp.asarray(plane.ravel()), 2)) == pytest.approx(2 * expected, abs=1e-2)


def test_soft_value_of_random_actions_is_unbiased_in_the_exponent():
    """16 uniform draws: the mean of exp(V) is the integral."""
    actions = jax.random.uniform(jax.random.key(0), (20_000, 16), minval=-1.0, maxval=1.0)
    value = soft_value(2 * actions, 1)
    assert float(jnp.mean(jnp.exp(value))) == pytest.approx(math.sinh(2), rel=0.01)


def test_score_is_that_of_q_as_a_density_before_tanh(x64):
    """By hand, and: times tanh'(u), it is the derivative of log exp(Q(tanh u)) |da/du| by u."""
    critic = ActionValue(jax.random.key(0), EnvSpec(3, 2), Architecture((8, 8)))
    obs, u = jnp.array([0.3, -1.0, 0.5]), jnp.array([[0.2, -0.7], [1.5, 0.1]])
    action = jnp.tanh(u)
    q, score = scores(critic, obs, action)
    for i in range(2):
        value, jacobian = forward(critic.mlp, obs, action[i])
        assert float(q[i]) == pytest.approx(value[0])
        a = np.asarray(action[i])
        np.testing.assert_allclose(score[i], jacobian[3:, 0] - 2 * a / (1 - a**2 + 1e-6), rtol=1e-9)
        slope = jax.grad(lambda v: critic(obs, jnp.tanh(v)) + jnp.sum(jnp.log(1 - jnp.tanh(v) ** 2)))(u[i])
        np.testing.assert_allclose(score[i] * (1 - a**2), slope, rtol=1e-4)


def test_score_is_finite_at_the_bounds():
    critic = ActionValue(jax.random.key(0), EnvSpec(3, 2), Architecture((8, 8)))
    _, score = scores(critic, jnp.zeros(3), jnp.array([[1.0, -1.0]]))
    assert np.isfinite(score).all()
    assert score[0, 0] < 0 < score[0, 1]  # and points inside


def reference_update(algorithm, state, batch, key):
    """Loops over transitions and pairs of particles; every derivative of the sampler by the chain rule in numpy."""
    critic, sampler = state.critic.model, state.sampler.model
    size, d = batch.action.shape
    value_key, fixed_key, moved_key = jax.random.split(key, 3)
    uniform = jax.random.uniform(value_key, (algorithm.value_actions, d), batch.obs.dtype, -1.0, 1.0)
    shape = size, algorithm.particles, d
    noise = [np.asarray(jax.random.normal(k, shape, batch.obs.dtype)) for k in (fixed_key, moved_key)]

    def critic_loss(net):
        total = 0.0
        for i in range(size):
            y = batch.reward[i] / algorithm.beta
            if batch.terminated[i] == 0:
                target = state.critic_target.mlp
                exponentials = [math.exp(forward(target, batch.next_obs[i], a)[0][0]) for a in uniform]
                y += algorithm.gamma * math.log(2**d * np.mean(exponentials))
            total += 0.5 * (net(batch.obs[i], batch.action[i]) - y) ** 2
        return total / size

    def action_of(i, xi):
        return np.tanh(forward(sampler.mlp, batch.obs[i], xi)[0])

    directions = np.zeros(shape)
    for i in range(size):
        fixed, moved = ([action_of(i, xi) for xi in drawn[i]] for drawn in noise)
        h = max(np.median([((x - y) ** 2).sum() for x in fixed for y in moved]) / math.log(len(fixed)), 1e-3)
        for m, y in enumerate(moved):
            for x in fixed:
                k = math.exp(-((x - y) ** 2).sum() / h)
                score = forward(critic.mlp, batch.obs[i], x)[1][3:, 0] - 2 * x / (1 - x**2 + 1e-6)
                directions[i, m] += (k * score - 2 / h * (x - y) * k) / len(fixed)

    # the vector-Jacobian product written out: the sum over particles of direction . d action / d parameters
    def jacobian_product(net):
        total = jax.tree.map(np.zeros_like, net)
        jacobian_of = jax.jit(jax.jacobian(lambda n, obs, xi: n(obs, xi)))
        for i in range(size):
            for m in range(algorithm.particles):
                jacobian = jacobian_of(net, batch.obs[i], noise[1][i, m])
                product = jax.tree.map(lambda j, v=directions[i, m]: np.tensordot(v, j, 1), jacobian)
                total = jax.tree.map(np.add, total, product)
        return jax.tree.map(lambda t: jnp.asarray(-t / (size * algorithm.particles)), total)

    new = {}
    for name, model, gradient in (
        ("critic", critic, jax.grad(critic_loss)(critic)),
        ("sampler", sampler, jacobian_product(sampler)),
    ):
        adam = optax.adam(algorithm.learning_rate)
        step, moments = adam.update(gradient, adam.init(model), model)
        new[name] = optax.apply_updates(model, step), moments[0]
    return new


def test_update_against_the_equations_written_out(x64):
    """One update of both networks, and the gradient itself, as Adam's first moment has it."""
    algorithm = tiny(beta=0.5, gamma=0.9, learning_rate=1e-2, value_actions=5, particles=3)
    state = algorithm.init(jax.random.key(5), SPEC)
    state = dataclasses.replace(
        state, critic_target=ActionValue(jax.random.key(6), EnvSpec(3, 2), Architecture((8, 8)))
    )
    batch, key = make_batch(7, size=4), jax.random.key(11)
    assert 0 < float(batch.terminated.sum()) < 4
    expected = reference_update(algorithm, state, batch, key)
    found, metrics = jax.jit(algorithm.update)(state, batch, key)
    for name, (model, moments) in expected.items():
        learner: Learner = getattr(found, name)
        assert_same(learner.opt_state.mu, moments.mu)
        assert_same(learner.model, model, rtol=1e-6)
    assert all(np.isfinite(v) for v in metrics.values())


def test_target_is_copied_at_exactly_every_1000th_update():
    algorithm = tiny(hidden=(2,), batch_size=2, value_actions=2, particles=2)
    assert algorithm.target_every == 1000
    start = algorithm.init(jax.random.key(0), SPEC)
    batch = make_batch(0, size=2)

    @jax.jit
    def updates(state, keys):
        return jax.lax.scan(lambda s, k: (algorithm.update(s, batch, k)[0], None), state, keys)[0]

    keys = jax.random.split(jax.random.key(1), 2000)
    almost = updates(start, keys[:999])
    assert_same(almost.critic_target, start.critic.model, rtol=0, atol=0)
    copied = updates(almost, keys[999:1000])
    assert_same(copied.critic_target, copied.critic.model, rtol=0, atol=0)
    again = updates(copied, keys[1000:1999])
    assert_same(again.critic_target, copied.critic.model, rtol=0, atol=0)
    last = updates(again, keys[1999:])
    assert_same(last.critic_target, last.critic.model, rtol=0, atol=0)
    assert any((a != b).any() for a, b in zip(leaves(last.critic_target), leaves(copied.critic_target), strict=True))


class TwoPeaks(ActionValue):
    """Q = -32 (a^2 - 1/4)^2 in every state: peaks at -1/2 and 1/2. Its parameters have no say, so it never learns."""

    def __call__(self, obs, action):
        return -32 * jnp.sum((action**2 - 0.25) ** 2)


def test_sampler_finds_both_peaks_of_q():
    """The amortised gradient with a known Q: in every state both modes, and over all states their density's width."""
    algorithm = tiny(hidden=(32, 32), learning_rate=3e-3)
    state = algorithm.init(jax.random.key(0), EnvSpec(1, 1))
    q = TwoPeaks(jax.random.key(1), EnvSpec(1, 1), Architecture((2,)))
    state = dataclasses.replace(state, critic=Learner.create(q), critic_target=q)
    batch = jax.tree.map(lambda leaf: leaf[:, :1] if leaf.ndim == 2 else leaf, make_batch(0, size=32))

    def one(state, key):
        return algorithm.update(state, batch, key)[0], None

    state = jax.jit(lambda s: jax.lax.scan(one, s, jax.random.split(jax.random.key(2), 1000))[0])(state)
    noise = jax.random.normal(jax.random.key(3), (32, 100, 1))
    actions = np.asarray(samples(state.sampler.model, batch.obs, noise))[..., 0]
    share = (actions < 0).mean(axis=1)
    assert ((share > 0.2) & (share < 0.8)).all()

    def density(a):
        return math.exp(-32 * (a**2 - 0.25) ** 2) * (1 - a**2)

    total = quad(density, -1, 1)[0]
    assert np.abs(actions).mean() == pytest.approx(quad(lambda a: abs(a) * density(a), -1, 1)[0] / total, rel=0.1)
    assert (actions**2).mean() == pytest.approx(quad(lambda a: a**2 * density(a), -1, 1)[0] / total, rel=0.15)


def test_it_acts_by_sampling_also_where_it_does_not_explore():
    sampler = Sampler(jax.random.key(0), EnvSpec(3, 2), Architecture((8, 8)))
    obs, key = jnp.array([0.5, 0.1, -0.3]), jax.random.key(4)
    expected = np.tanh(forward(sampler.mlp, obs, jax.random.normal(key, (2,)))[0])
    for explore in (True, False):
        np.testing.assert_allclose(sampler.act(obs, key, explore=explore), expected, rtol=1e-5)
    other = sampler.act(obs, jax.random.key(5), explore=False)
    assert (np.asarray(other) != np.asarray(sampler.act(obs, key, explore=False))).any()


@pytest.mark.parametrize("terminates", [False, True])
@pytest.mark.slow
def test_a_time_out_bootstraps_and_a_termination_does_not(terminates):
    """Reward 1 per step, gamma 1/2, two steps: 1 / (1 - 1/2) = 2, or Q = 1 + 1/2 * 1/2 * Q = 4/3.
    Rewards are 100 times the entropy, which adds less than 0.01."""
    agent = tiny(beta=0.01, gamma=0.5, hidden=(16, 16), batch_size=64, learning_rate=3e-3, target_every=50)
    loop = DeviceLoop(
        agent, Clock(horizon=2, terminates=terminates), grid([0, 1], {}), schedule(3000, capacity=3000, eval_every=1000)
    )
    loop.advance(3000)
    np.testing.assert_allclose(loop.measure()["q_mean"] * 0.01, 4 / 3 if terminates else 2.0, atol=0.05)


@pytest.mark.slow
def test_it_learns_a_probe_with_a_known_answer():
    """See s, act s/2, as a sample of exp(-100 (a - s/2)^2): its mean return is -1/200."""
    agent = SoftQLearning(beta=0.01, hidden=(32, 32), batch_size=64, learning_rate=1e-3)
    sched = schedule(3000, random_steps=500, update_after=500, capacity=3000, eval_every=1000)
    loop = DeviceLoop(agent, Target(), grid(range(5), {}), sched)
    before = loop.evaluate(50).returns.mean(axis=1)
    loop.advance(3000)
    after = loop.evaluate(50).returns.mean(axis=1)
    assert before.mean() < -0.1
    assert (after > -0.03).all()
    for k in range(5):
        policy = pick(loop.policies(), k)
        noise = jax.random.normal(jax.random.key(0), (3, 200, 1))
        for s, actions in zip((-0.8, 0.0, 0.8), samples(policy, jnp.array([[-0.8], [0.0], [0.8]]), noise), strict=True):
            assert float(actions.mean()) == pytest.approx(s / 2, abs=0.12)
            assert float(actions.std()) > 0.01


@pytest.mark.slow
def test_member_k_of_a_population_equals_the_solo_run(x64):
    members = [Member(0, {"beta": 1.0}), Member(0, {"beta": 0.2}), Member(7, {"beta": 1.0})]
    agent = tiny(target_every=30)
    together = DeviceLoop(agent, FourRoomMaze(), members, schedule())
    together.advance(150)
    for k in (1, 2):
        alone = DeviceLoop(agent, FourRoomMaze(), [members[k]], schedule())
        alone.advance(150)
        assert_same(everything(alone, 0), everything(together, k), rtol=1e-9, atol=1e-9)
    for j, k in [(0, 2), (1, 2)]:
        a, b = (leaves(pick(together.policies(), i)) for i in (j, k))
        assert any((x != y).any() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("robot", "scale"), [("Hopper", 30), ("HalfCheetah", 30), ("Walker2d", 10), ("Ant", 300)])
def test_published_reward_scales(robot, scale):
    for task in (robot, f"Delayed{robot}"):
        assert 1 / resolve("sql", task).hyper["beta"] == pytest.approx(scale)
