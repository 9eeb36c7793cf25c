"""DAC's update: its SAC and alpha = 0 limits, every gradient against its equation, alpha-adaptation, the q' study."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dac
from dac.algorithms import DAC, SAC, WithWindow
from dac.algorithms.base import Batch, Recent
from dac.algorithms.parts.vae import learn_and_draw
from dac.core.keys import AUTO_ENCODER, side_key
from dac.core.networks import Gaussian, twin_values
from dac.core.population import grid
from dac.core.types import EnvSpec, Transition
from dac.envs.gymnasium import make_gymnasium
from dac.envs.maze import FourRoomMaze
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.common import schedule, tiny

SPEC = EnvSpec(obs_size=3, action_size=2)


def make_batch(seed=0, size=16):
    keys = jax.random.split(jax.random.key(seed), 5)
    return Transition(
        obs=jax.random.normal(keys[0], (size, 3)),
        action=jnp.tanh(2 * jax.random.normal(keys[1], (size, 2))),
        reward=jax.random.normal(keys[2], (size,)),
        terminated=(jax.random.uniform(keys[3], (size,)) < 0.3).astype(jnp.zeros(()).dtype),
        truncated=jnp.zeros(size),
        next_obs=jax.random.normal(keys[4], (size, 3)),
    )


def run(algorithm, updates=5, key=3):
    state = algorithm.init(jax.random.key(key), SPEC)
    update = jax.jit(algorithm.update)
    metrics = {}
    for i in range(updates):
        state, metrics = update(state, make_batch(i), jax.random.fold_in(jax.random.key(9), i))
    return state, metrics


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("policy_q", ["first", "min"])
def test_alpha_one_is_sac(x64, policy_q):
    """Every network, target and moment after several updates: the ratio network has no influence at alpha = 1."""
    dac, dac_metrics = run(DAC(alpha=1.0, beta=0.1, hidden=(8, 8), policy_q=policy_q))
    sac, sac_metrics = run(SAC(beta=0.1, hidden=(8, 8), policy_q=policy_q, passive_ratio=True))
    for name in ("policy", "critics", "value", "value_target", "ratio"):
        for one, other in zip(leaves(getattr(dac, name)), leaves(getattr(sac, name)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert float(dac_metrics["js_divergence"]) == pytest.approx(float(sac_metrics["js_divergence"]), abs=1e-9)


def test_passive_ratio_changes_nothing_else():
    without, _ = run(SAC(hidden=(8, 8)))
    with_ratio, _ = run(SAC(hidden=(8, 8), passive_ratio=True))
    for name in ("policy", "critics", "value", "value_target"):
        for one, other in zip(leaves(getattr(without, name)), leaves(getattr(with_ratio, name)), strict=True):
            np.testing.assert_array_equal(one, other)


def reference_update(algorithm, state, batch, key, action_q):
    """SAC or DAC with loops over the batch, densities from their definition, optax.adam, R itself (not its log)."""
    alpha, d = algorithm.alpha, batch.action.shape[-1]
    noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)

    def density(gaussian, action):
        u = jnp.arctanh(jnp.clip(action, -0.999, 0.999))
        normal = jnp.exp(-0.5 * ((u - gaussian.mean) / jnp.exp(gaussian.log_std)) ** 2) / (
            jnp.exp(gaussian.log_std) * jnp.sqrt(2 * jnp.pi)
        )
        return jnp.prod(normal / (1 - jnp.tanh(u) ** 2))

    def sample(policy, i):
        gaussian: Gaussian = policy(batch.obs[i])
        u = gaussian.mean + jnp.exp(gaussian.log_std) * noise[i]
        normal = -0.5 * noise[i] ** 2 - gaussian.log_std - 0.5 * jnp.log(2 * jnp.pi)
        return jnp.tanh(u), jnp.sum(normal - jnp.log(1 - jnp.tanh(u) ** 2))

    def ratio_of(net, i, action):
        odds = jnp.exp(net(batch.obs[i], action)) * alpha / (1 - alpha)
        return odds / (1 + odds)

    def twin(i, action, critics):
        return list(twin_values(critics, batch.obs[i][None], action[None])[:, 0])

    n = range(batch.obs.shape[0])

    def policy_loss(policy):
        total = 0.0
        for i in n:
            action, log_pi = sample(policy, i)
            q = twin(i, action, state.critics.model)
            total += -(q[0] + alpha * (jnp.log(ratio_of(state.ratio.model, i, action)) - log_pi))
        return total / len(n)

    drawn = [sample(state.policy.model, i) for i in n]

    def value_loss(value):
        total = 0.0
        for i in n:
            action, log_pi = drawn[i]
            r_pi = ratio_of(state.ratio.model, i, action)
            r_q = ratio_of(state.ratio.model, i, action_q[i])
            log_pi_q = jnp.log(density(state.policy.model(batch.obs[i]), action_q[i]))
            target = min(twin(i, action, state.critics.model))
            target += alpha * (jnp.log(r_pi) - jnp.log(alpha) - log_pi)
            target += (1 - alpha) * jnp.clip(jnp.log(r_q) - jnp.log(alpha) - log_pi_q, -d, d)
            total += 0.5 * (value(batch.obs[i]) - target) ** 2
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
            total -= alpha * jnp.log(ratio_of(net, i, drawn[i][0]))
            total -= (1 - alpha) * jnp.log(1 - ratio_of(net, i, action_q[i]))
        return total / len(n)

    new = {}
    losses = {"policy": policy_loss, "value": value_loss, "critics": critics_loss, "ratio": ratio_loss}
    for name, loss in losses.items():
        model = getattr(state, name).model
        rate = algorithm.ratio_rate if name == "ratio" else 1.0
        adam = optax.adam(rate * algorithm.learning_rate)
        updates, _ = adam.update(jax.grad(loss)(model), adam.init(model), model)
        new[name] = optax.apply_updates(model, updates)
    target = jax.tree.map(lambda t, v: 0.995 * t + 0.005 * v, state.value_target, new["value"])
    return new, target


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8, 1 - 1e-13])
def test_update_against_the_equations_written_out(x64, alpha):
    """One update of every network; the last alpha is SAC's, where R itself can still be computed."""
    algorithm = DAC(alpha=alpha, beta=0.5, gamma=0.9, learning_rate=1e-3, ratio_rate=0.3, hidden=(8, 8))
    state = algorithm.init(jax.random.key(5), SPEC)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    new, target = reference_update(algorithm, state, batch, key, batch.action)
    found, metrics = jax.jit(algorithm.update)(state, batch, key)
    for name, model in new.items():
        for one, other in zip(leaves(getattr(found, name).model), leaves(model), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    for one, other in zip(leaves(found.value_target), leaves(target), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    assert all(np.isfinite(v) for v in metrics.values())
    assert float(metrics["alpha_mean"]) == pytest.approx(alpha)


def test_alpha_zero_is_actor_critic_without_entropy_of_the_policy():
    """The ratio and the policy's density have no part in the policy's gradient."""
    algorithm = DAC(alpha=0.0, hidden=(8, 8))
    state = algorithm.init(jax.random.key(0), SPEC)
    other_ratio = dataclasses.replace(state, ratio=DAC(hidden=(8, 8)).init(jax.random.key(1), SPEC).ratio)
    update = jax.jit(algorithm.update)
    one = update(state, make_batch(), jax.random.key(2))[0]
    two = update(other_ratio, make_batch(), jax.random.key(2))[0]
    for a, b in zip(leaves(one.policy), leaves(two.policy), strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.isfinite(leaf).all() for leaf in leaves(one))


def test_min_and_first_q_differ():
    first, _ = run(DAC(hidden=(8, 8), policy_q="first"), updates=2)
    smaller, _ = run(DAC(hidden=(8, 8), policy_q="min"), updates=2)
    assert any((a != b).any() for a, b in zip(leaves(first.policy.model), leaves(smaller.policy.model), strict=True))


def test_clip_bounds_the_rings_term():
    """With the clip off the value target moves, with a wide clip it is the same as off."""
    losses = {}
    for clip in (1.0, 100.0, float("inf")):
        algorithm = DAC(hidden=(8, 8), clip=clip)
        state = algorithm.init(jax.random.key(0), SPEC)
        losses[clip] = float(algorithm.update(state, make_batch(), jax.random.key(1))[1]["value_loss"])
    assert losses[100.0] == losses[float("inf")]
    assert losses[1.0] != losses[100.0]


@pytest.mark.parametrize("gradient", ["paper", "code"])
def test_alpha_adaptation_follows_its_control(gradient):
    """With c far below every entropy, H(m) - alpha c is smallest at the smallest alpha; far above, at the largest."""
    means = {}
    for control in (-20.0, 20.0):
        algorithm = DAC(adapt=True, control=control, learning_rate=3e-3, hidden=(8, 8), alpha_gradient=gradient)
        state, metrics = run(algorithm, updates=300)
        means[control] = float(metrics["alpha_mean"])
        assert state.mixing is not None
    assert means[-20.0] < 0.55
    assert means[20.0] > 0.9


def test_regularisation_shrinks_the_alpha_network():
    weak, _ = run(DAC(adapt=True, regularisation=0.0, hidden=(8, 8)), updates=50)
    strong, _ = run(DAC(adapt=True, regularisation=100.0, hidden=(8, 8)), updates=50)
    norm = [sum((leaf**2).sum() for leaf in leaves(s.mixing.model)) for s in (weak, strong)]
    assert norm[1] < norm[0]


def test_everything_moves():
    """A smoke test that can fail: after one update each network differs from its start, the target by tau of it."""
    algorithm = DAC(adapt=True, hidden=(8, 8))
    start = algorithm.init(jax.random.key(0), SPEC)
    end, _ = algorithm.update(start, make_batch(), jax.random.key(1))
    for name in ("policy", "critics", "value", "ratio", "mixing"):
        before, after = leaves(getattr(start, name).model), leaves(getattr(end, name).model)
        assert any((a != b).any() for a, b in zip(before, after, strict=True)), name
    for t0, t1, v1 in zip(leaves(start.value_target), leaves(end.value_target), leaves(end.value.model), strict=True):
        np.testing.assert_allclose(t1, t0 + np.float32(0.005) * (v1 - t0), rtol=1e-6)


NETWORKS = ("policy", "critics", "value", "value_target", "ratio", "mixing")


def assert_same_networks(one, other):
    for name in NETWORKS:
        for a, b in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_with_a_window_the_auto_encoders_actions_stand_for_the_rings(x64):
    """In the ratio objective and in the value target; the critics and the policy's part see what was really done."""
    plain = DAC(alpha=0.4, beta=0.5, gamma=0.9, learning_rate=1e-3, hidden=(8, 8))
    algorithm = WithWindow(plain, q_window=100)
    state = algorithm.init(jax.random.key(5), SPEC)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    recent = Recent(make_batch(8, size=6), jnp.array(False))
    vae, drawn, _ = learn_and_draw(
        state.vae, recent.transitions, batch.obs, side_key(key, AUTO_ENCODER), 1e-3, 0.5, 1.0
    )
    assert (jnp.abs(drawn - batch.action) > 1e-3).all()
    new, target = reference_update(plain, state, batch, key, drawn)
    found, metrics = jax.jit(algorithm.update)(state, Batch(**vars(batch), recent=recent), key)
    for name, model in [*new.items(), ("vae", vae.model)]:
        for one, other in zip(leaves(getattr(found, name).model), leaves(model), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    for one, other in zip(leaves(found.value_target), leaves(target), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    assert {"vae_loss", "vae_reconstruction", "vae_kl"} <= metrics.keys()


def maze_loop(agent, sched):
    return DeviceLoop(agent, FourRoomMaze(), grid([0, 3], {"alpha": [0.5]}), sched)


def pendulum_loop(agent, sched):
    return HostLoop(agent, lambda n: make_gymnasium("Pendulum-v1", n), grid([0, 3], {"alpha": [0.5]}), sched)


def pendulum_loop_with_its_ring_on_the_host(agent, sched):
    members = grid([0, 3], {"alpha": [0.5]})
    return HostLoop(agent, lambda n: make_gymnasium("Pendulum-v1", n), members, sched, host_replay=True)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(maze_loop, marks=pytest.mark.slow),
        pytest.param(pendulum_loop, marks=pytest.mark.slow),
        pytest.param(pendulum_loop_with_its_ring_on_the_host, marks=pytest.mark.slow),
    ],
)
def test_a_window_over_the_whole_ring_is_plain_dac(make):
    """Bit for bit, also once a ring of 60 has been written over twice; and the auto-encoder learned meanwhile."""
    sched = schedule(150, capacity=60, update_after=30)
    plain, windowed = (make(WithWindow(tiny(), q_window=w), sched) for w in (0, 60))
    start = leaves(windowed.states.vae.model)
    for loop in (plain, windowed):
        loop.advance(150)
    assert plain.states.vae is None
    assert_same_networks(plain.states, windowed.states)
    measured = windowed.measure()
    for name, value in plain.measure().items():
        np.testing.assert_array_equal(value, measured[name], err_msg=name)
    assert all((a != b).any() for a, b in zip(start, leaves(windowed.states.vae.model), strict=True))
    for loop in (plain, windowed):
        loop.close()


@pytest.mark.parametrize("task", ["maze", "gym:Pendulum-v1"])
@pytest.mark.slow
def test_a_run_with_such_a_window_records_the_same(tmp_path, task):
    settings = {"hidden": (8, 8), "batch_size": 16, "steps": 200, "eval_every": 100, "update_after": 50}
    runs = [dac.train("dac", task, out=tmp_path / str(w), q_window=w, **settings) for w in (0, 1_000_000)]
    tables = [list(csv.DictReader((run.directory / "metrics.csv").read_text().splitlines())) for run in runs]
    assert len(tables[0]) == len(tables[1]) == 2
    for plain, windowed in zip(*tables, strict=True):
        assert windowed.keys() - plain.keys() == {"vae_loss", "vae_reconstruction", "vae_kl"}
        assert {name: windowed[name] for name in plain} == plain


@pytest.mark.slow
def test_a_small_window_is_plain_dac_until_it_is_full():
    """40 transitions: the same as without up to the update that sees 41, and another agent, finite, after it."""
    sched = schedule(150, update_after=30)
    plain, windowed = maze_loop(tiny(), sched), maze_loop(WithWindow(tiny(), q_window=40), sched)
    for loop in (plain, windowed):
        loop.advance(41)  # the last update saw 40
    assert_same_networks(plain.states, windowed.states)
    for loop in (plain, windowed):
        loop.advance(42)
    assert any((a != b).any() for a, b in zip(leaves(plain.states.ratio), leaves(windowed.states.ratio), strict=True))
    windowed.advance(150)
    assert all(np.isfinite(leaf).all() for leaf in leaves(windowed.states))
    assert all(np.isfinite(value).all() for value in windowed.measure().values())
