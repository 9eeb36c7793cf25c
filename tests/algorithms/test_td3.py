"""TD3: two updates against the equations written out, what is delayed, what is clipped, and that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dac.algorithms import TD3
from dac.config import resolve
from dac.core.networks import action_saturation
from dac.core.population import Member, grid, pick
from dac.core.types import EnvSpec
from dac.envs.maze import FourRoomMaze
from dac.envs.probes import Clock, Target
from dac.training.device import DeviceLoop
from tests.algorithms.test_dac import leaves, make_batch
from tests.common import everything, schedule

SPEC = EnvSpec(obs_size=3, action_size=2)


def tiny(**changes):
    return TD3(**({"hidden": (8, 8), "batch_size": 16} | changes))


def assert_same(one, other, **tolerance):
    for a, b in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **({"rtol": 1e-9, "atol": 1e-12} | tolerance))


def forward(weights, biases, x):
    """Two hidden ReLU layers, by hand."""
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = jnp.maximum(x @ weight + bias, 0)
    return x @ weights[-1] + biases[-1]


def reference_updates(algorithm, state, batches, keys):
    """Algorithm 1 with Python's own loops and ifs, one transition at a time, and optax.adam."""
    actor, critics = state.policy.model, state.critics.model
    actor_target, critics_target = actor, critics
    adam = optax.adam(algorithm.learning_rate)
    actor_moments, critics_moments = adam.init(actor), adam.init(critics)

    def act(mlp, obs):
        return jnp.tanh(forward(mlp.weights, mlp.biases, obs))

    def q_value(nets, which, obs, action):
        weights, biases = [w[which] for w in nets.mlp.weights], [b[which] for b in nets.mlp.biases]
        return forward(weights, biases, jnp.concatenate([obs, action]))[0]

    for t, (batch, key) in enumerate(zip(batches, keys, strict=True), start=1):
        n = batch.obs.shape[0]
        drawn = jax.random.normal(key, batch.action.shape, batch.action.dtype)
        targets = []
        for i in range(n):
            noise = jnp.clip(algorithm.target_noise * drawn[i], -algorithm.noise_clip, algorithm.noise_clip)
            action = jnp.clip(act(actor_target, batch.next_obs[i]) + noise, -1, 1)
            smaller = min(q_value(critics_target, which, batch.next_obs[i], action) for which in range(2))
            targets.append(batch.reward[i] + (0 if batch.terminated[i] else algorithm.gamma * smaller))

        def critics_loss(nets, batch=batch, targets=targets, n=n):
            errors = [[q_value(nets, w, batch.obs[i], batch.action[i]) - targets[i] for i in range(n)] for w in (0, 1)]
            return sum(e**2 for e in errors[0]) / n + sum(e**2 for e in errors[1]) / n

        gradient = jax.jit(jax.grad(critics_loss))(critics)
        step, critics_moments = adam.update(gradient, critics_moments, critics)
        critics = optax.apply_updates(critics, step)
        if t % algorithm.policy_every:
            yield actor, actor_target, critics, critics_target
            continue

        def policy_loss(mlp, batch=batch, critics=critics, n=n):
            return -sum(q_value(critics, 0, batch.obs[i], act(mlp, batch.obs[i])) for i in range(n)) / n

        step, actor_moments = adam.update(jax.jit(jax.grad(policy_loss))(actor), actor_moments, actor)
        actor = optax.apply_updates(actor, step)
        mixed = [
            jax.tree.map(lambda new, old: algorithm.tau * new + (1 - algorithm.tau) * old, new, old)
            for new, old in ((actor, actor_target), (critics, critics_target))
        ]
        actor_target, critics_target = mixed
        yield actor, actor_target, critics, critics_target


def test_updates_against_the_algorithm_written_out(x64):
    """After one update only the critics have moved; after two everything has; the third uses the moved targets."""
    algorithm = tiny(gamma=0.9, learning_rate=1e-2, tau=0.3, target_noise=0.6)
    state = algorithm.init(jax.random.key(5), SPEC)
    batches = [make_batch(i, size=4) for i in range(3)]
    keys = list(jax.random.split(jax.random.key(11), 3))
    update = jax.jit(algorithm.update)
    for t, expected in enumerate(reference_updates(algorithm, state, batches, keys)):
        state, metrics = update(state, batches[t], keys[t])
        found = state.policy.model, state.policy_target, state.critics.model, state.critics_target
        assert_same(found, expected)
        assert all(np.isfinite(v) for v in metrics.values())


@pytest.mark.parametrize("every", [1, 2, 5])
def test_policy_and_targets_move_every_so_many_updates(every):
    algorithm = tiny(policy_every=every)
    state = algorithm.init(jax.random.key(0), SPEC)
    update = jax.jit(algorithm.update)
    for i in range(1, 11):
        before = state
        state, _ = update(state, make_batch(i), jax.random.key(i))
        for name in ("policy", "policy_target", "critics_target"):
            pairs = zip(leaves(getattr(before, name)), leaves(getattr(state, name)), strict=True)
            assert any((a != b).any() for a, b in pairs) == (i % every == 0), (name, i)
        assert int(state.critics.opt_state.count) == i
    assert int(state.policy.opt_state.count) == 10 // every
    assert int(state.updates) == 10


def test_target_noise_is_clipped():
    """With a huge standard deviation every draw is at the clip, so twice as much of it changes nothing."""
    batch, key = make_batch(), jax.random.key(3)
    update = jax.jit(lambda algorithm, state: algorithm.update(state, batch, key)[1])
    losses = {}
    for noise, clip in [(0.0, 0.5), (1e6, 0.5), (2e6, 0.5), (1e6, 0.25), (1e6, 0.0)]:
        algorithm = tiny(target_noise=noise, noise_clip=clip)
        state = algorithm.init(jax.random.key(0), SPEC)
        losses[noise, clip] = float(update(algorithm, state)["critic_loss"])
    assert losses[1e6, 0.5] == losses[2e6, 0.5]
    assert losses[1e6, 0.0] == losses[0.0, 0.5]
    assert len({losses[1e6, clip] for clip in (0.5, 0.25, 0.0)}) == 3


def test_exploration_noise_has_its_size_and_stays_within_the_bounds():
    key = jax.random.key(0)
    state = tiny().init(jax.random.key(1), SPEC)
    obs, keys = jnp.array([0.1, -0.2, 0.3]), jax.random.split(key, 4000)

    def actions(noise):
        policy = tiny(noise=noise).policy(state)
        return np.asarray(jax.vmap(lambda k: policy.act(obs, k, explore=True))(keys))

    greedy = np.asarray(tiny().policy(state).act(obs, key, explore=False))
    np.testing.assert_allclose(greedy, np.tanh(state.policy.model(obs)), rtol=1e-6)
    np.testing.assert_allclose(actions(0.05).mean(axis=0), greedy, atol=0.005)
    np.testing.assert_allclose(actions(0.05).std(axis=0), 0.05, rtol=0.05)
    wild = actions(5.0)
    assert np.abs(wild).max() == 1
    assert (np.abs(wild) == 1).mean() > 0.5


def test_saturation_counts_entries_at_the_bounds():
    assert float(action_saturation(jnp.array([[1.0, -0.995], [0.5, -0.98]]))) == 0.5


@pytest.mark.parametrize("terminates", [False, True])
def test_a_time_out_bootstraps_and_a_termination_does_not(terminates):
    """Reward 1 per step, gamma 1/2, two steps: 1 / (1 - 1/2) = 2, or Q = 1 + 1/2 * 1/2 * Q = 4/3."""
    agent = tiny(gamma=0.5, hidden=(16, 16), batch_size=64, learning_rate=3e-3, tau=0.05)
    loop = DeviceLoop(
        agent, Clock(horizon=2, terminates=terminates), grid([0, 1], {}), schedule(3000, capacity=3000, eval_every=1000)
    )
    loop.advance(3000)
    np.testing.assert_allclose(loop.measure()["q_mean"], 4 / 3 if terminates else 2.0, atol=0.05)


@pytest.mark.slow
def test_it_learns_a_probe_with_a_known_answer():
    """See s, act s/2: all five seeds."""
    agent = TD3(hidden=(32, 32), batch_size=64, learning_rate=1e-3)
    sched = schedule(3000, random_steps=500, update_after=500, capacity=3000, eval_every=1000)
    loop = DeviceLoop(agent, Target(), grid(range(5), {}), sched)
    before = loop.evaluate(20).returns.mean(axis=1)
    loop.advance(3000)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert (after > -0.01).all()
    assert before.mean() < -0.1
    for k in range(5):
        policy = pick(loop.policies(), k)
        for s in (-0.8, 0.0, 0.8):
            action = policy.act(jnp.array([s]), jax.random.key(0), explore=False)
            assert float(action[0]) == pytest.approx(s / 2, abs=0.12)


@pytest.mark.slow
def test_member_k_of_a_population_equals_the_solo_run(x64):
    """100 updates in float64 with every hyperparameter of its own, the exploration noise among them."""
    members = [
        Member(0, {"noise": 0.1, "learning_rate": 1e-3}),
        Member(0, {"noise": 0.3, "learning_rate": 1e-3}),
        Member(7, {"noise": 0.1, "learning_rate": 3e-3}),
    ]
    together = DeviceLoop(tiny(), FourRoomMaze(), members, schedule())
    together.advance(150)
    for k in (1, 2):
        alone = DeviceLoop(tiny(), FourRoomMaze(), [members[k]], schedule())
        alone.advance(150)
        assert_same(everything(alone, 0), everything(together, k), rtol=1e-9, atol=1e-9)
    policies = [pick(together.policies(), k) for k in range(3)]
    assert [float(p.noise) for p in policies] == [0.1, 0.3, 0.1]
    assert any((a != b).any() for a, b in zip(leaves(policies[0].mlp), leaves(policies[1].mlp), strict=True))


def test_published_schedule_is_the_default_and_short_tasks_have_their_own():
    assert resolve("td3", "HalfCheetah").training.random_steps == 25_000
    assert resolve("td3", "maze").training.update_after == 25_000
    for task in ("target", "gym:Pendulum-v1"):
        training = resolve("td3", task).training
        assert training.update_after < training.steps / 2
