"""Max-min entropy: SAC with another sign, both updates against their equations, and where the weight leads."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dac
from dac.algorithms import DAC, DEMME, MME, SAC
from dac.core.networks import twin_values
from tests.algorithms.test_dac import SPEC, leaves, make_batch, run

SIDES = ("policy", "critics", "value", "value_target")


def sample(policy, obs, noise):
    """Action and log-density of one observation, the density from its definition."""
    gaussian = policy(obs)
    u = gaussian.mean + jnp.exp(gaussian.log_std) * noise
    density = jnp.exp(-0.5 * noise**2) / (jnp.exp(gaussian.log_std) * jnp.sqrt(2 * jnp.pi)) / (1 - jnp.tanh(u) ** 2)
    return jnp.tanh(u), jnp.log(jnp.prod(density))


def twins(critics, obs, action):
    return list(twin_values(critics, obs[None], action[None])[:, 0])


def adam_step(loss, model, rate):
    adam = optax.adam(rate)
    updates, _ = adam.update(jax.jit(jax.grad(loss))(model), adam.init(model), model)
    return optax.apply_updates(model, updates)


def paid_for(log_pis, weight):
    """alpha_Q (log pi - min(0, min over the batch of log pi)) for every state."""
    lowest = min(0.0, *log_pis)
    return [weight * (log_pi - lowest) for log_pi in log_pis]


def squares(batch, critics, targets):
    """Half the squared errors of both critics, averaged over the batch."""
    errors = [
        0.5 * (q - y) ** 2
        for o, a, y in zip(batch.obs, batch.action, targets, strict=True)
        for q in twins(critics, o, a)
    ]
    return sum(errors) / len(targets)


def same(found, expected):
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_the_update_against_the_equations_written_out(x64):
    """Loops over the batch: SAC but for the value target."""
    algorithm = MME(beta=0.5, gamma=0.9, learning_rate=1e-3, hidden=(8, 8), value_entropy=-0.7)
    state = algorithm.init(jax.random.key(5), SPEC)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)
    drawn = [sample(state.policy.model, o, n) for o, n in zip(batch.obs, noise, strict=True)]
    paid = paid_for([log_pi for _, log_pi in drawn], 0.7)
    q_min = [min(twins(state.critics.model, o, a)) for o, (a, _) in zip(batch.obs, drawn, strict=True)]

    def policy_loss(policy):
        both = [sample(policy, o, n) for o, n in zip(batch.obs, noise, strict=True)]
        return sum(lp - twins(state.critics.model, o, a)[0] for o, (a, lp) in zip(batch.obs, both, strict=True)) / 6

    def value_loss(value):
        return sum(0.5 * (value(o) - q - p) ** 2 for o, q, p in zip(batch.obs, q_min, paid, strict=True)) / 6

    next_v = [state.value_target(o) for o in batch.next_obs]
    targets = [r / 0.5 + 0.9 * (1 - t) * v for r, t, v in zip(batch.reward, batch.terminated, next_v, strict=True)]
    found, _ = jax.jit(algorithm.update)(state, batch, key)
    same(found.policy.model, adam_step(policy_loss, state.policy.model, 1e-3))
    same(found.value.model, adam_step(value_loss, state.value.model, 1e-3))
    same(found.critics.model, adam_step(lambda c: squares(batch, c, targets), state.critics.model, 1e-3))


def test_the_disentangled_update_against_the_equations_written_out(x64):
    """Two policies, two values, two pairs of critics, each against its own loss."""
    algorithm = DEMME(beta=0.5, gamma=0.9, learning_rate=1e-3, hidden=(8, 8), value_entropy=-1.5)
    state = algorithm.init(jax.random.key(5), SPEC)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    noises = jax.random.normal(key, (2, *batch.action.shape), batch.action.dtype)
    reward_q, novelty_q = state.task.critics.model, state.novelty.critics.model
    drawn = [sample(state.task.policy.model, o, n) for o, n in zip(batch.obs, noises[0], strict=True)]
    drawn_e = [sample(state.novelty.policy.model, o, n) for o, n in zip(batch.obs, noises[1], strict=True)]

    def policy_loss(policy):
        total = 0.0
        for o, n in zip(batch.obs, noises[0], strict=True):
            action, log_pi = sample(policy, o, n)
            total += log_pi - twins(reward_q, o, action)[0] - twins(novelty_q, o, action)[0]
        return total / 6

    def explorer_loss(policy):
        total = 0.0
        for o, n in zip(batch.obs, noises[1], strict=True):
            action, log_pi = sample(policy, o, n)
            total += log_pi - twins(novelty_q, o, action)[0]
        return total / 6

    wanted_r = [min(twins(reward_q, o, a)) for o, (a, _) in zip(batch.obs, drawn, strict=True)]
    paid = paid_for([log_pi for _, log_pi in drawn_e], 1.5)
    wanted_e = [min(twins(novelty_q, o, a)) + p for o, (a, _), p in zip(batch.obs, drawn_e, paid, strict=True)]

    def value_loss(wanted):
        return lambda value: sum(0.5 * (value(o) - v) ** 2 for o, v in zip(batch.obs, wanted, strict=True)) / 6

    def bootstrap(side, rewards):
        next_v = [side.value_target(o) for o in batch.next_obs]
        return [r + 0.9 * (1 - t) * v for r, t, v in zip(rewards, batch.terminated, next_v, strict=True)]

    targets = bootstrap(state.task, batch.reward / 0.5), bootstrap(state.novelty, np.zeros(6))
    found, metrics = jax.jit(algorithm.update)(state, batch, key)
    for side, old, loss, wanted, target in (
        (found.task, state.task, policy_loss, wanted_r, targets[0]),
        (found.novelty, state.novelty, explorer_loss, wanted_e, targets[1]),
    ):
        same(side.policy.model, adam_step(loss, old.policy.model, 1e-3))
        value = adam_step(value_loss(wanted), old.value.model, 1e-3)
        same(side.value.model, value)
        same(side.critics.model, adam_step(lambda c, y=target: squares(batch, c, y), old.critics.model, 1e-3))
        same(side.value_target, jax.tree.map(lambda t, v: 0.995 * t + 0.005 * v, old.value_target, value))
    assert all(np.isfinite(value) for value in metrics.values())


def test_mme_is_sac_with_a_negative_weight():
    """Bit for bit; and a member of a population of SAC may be one."""
    mme, _ = run(MME(hidden=(8, 8), value_entropy=-0.5))
    sac, _ = run(SAC(hidden=(8, 8), value_entropy=-0.5))
    for one, other in zip(leaves(mme), leaves(sac), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("weight", [1.0, 0.0, -0.5])
def test_dac_at_alpha_one_has_the_same_weights(x64, weight):
    dac_state, _ = run(DAC(alpha=1.0, hidden=(8, 8), value_entropy=weight))
    sac_state, _ = run(SAC(hidden=(8, 8), value_entropy=weight))
    for name in SIDES:
        for one, other in zip(leaves(getattr(dac_state, name)), leaves(getattr(sac_state, name)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_it_learns_a_probe_with_a_known_answer(tmp_path):
    run = dac.train("de-mme", "target", seeds=range(3), out=tmp_path / "run", value_entropy=-0.1)
    assert (run.metrics["return"][-1] > -0.02).all()
    assert (run.metrics["return"][0] < -0.02).any()


@pytest.mark.slow
def test_one_population_holds_every_weight(tmp_path):
    """Rewards for entropy, none, and rewards for its lack, in one program."""
    settings = {"hidden": (8, 8), "batch_size": 16, "update_after": 50, "random_steps": 30, "steps": 150}
    run = dac.train("sac", "maze", value_entropy=[1.0, 0.0, -1.0], out=tmp_path / "run", eval_every=50, **settings)
    assert [member.hyper["value_entropy"] for member in run.members] == [1.0, 0.0, -1.0]
    assert len(set(run.metrics["v_mean"][-1])) == 3
