"""The loop on probes with known answers: truncation bootstraps, termination does not, and DAC learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms import DAC, SAC
from dac.core.population import grid, pick
from dac.core.schedule import Schedule
from dac.core.types import UsageError
from dac.envs.probes import Clock, Target
from dac.training.device import DeviceLoop


def schedule(steps, **changes):
    values = {
        "steps": steps,
        "envs": 1,
        "random_steps": 100,
        "update_after": 100,
        "update_ratio": 1,
        "capacity": steps,
        "eval_every": steps // 4,
    }
    return Schedule(**(values | changes))


@pytest.mark.parametrize("algorithm", [DAC, pytest.param(SAC, marks=pytest.mark.slow)])
@pytest.mark.parametrize("terminates", [False, True])
def test_a_time_out_bootstraps_and_a_termination_does_not(algorithm, terminates):
    """Reward 1 per step, gamma 1/2, episodes of 2 steps that look alike. Ended by time-out, every state is worth
    1 / (1 - 1/2) = 2. Ended by termination, half of the steps do not bootstrap: Q = 1 + 1/2 * 1/2 * Q, so Q = 4/3.
    beta = 0.01 makes rewards 100 times the entropy, which adds less than 0.02."""
    agent = algorithm(beta=0.01, gamma=0.5, hidden=(16, 16), batch_size=64, learning_rate=3e-3, tau=0.05)
    loop = DeviceLoop(agent, Clock(horizon=2, terminates=terminates), grid([0, 1], {}), schedule(4000))
    loop.advance(4000)
    q = loop.measure()["q_mean"] * 0.01
    np.testing.assert_allclose(q, 4 / 3 if terminates else 2.0, atol=0.05)


def test_dac_learns_a_probe_with_a_known_answer():
    """See s, act s/2: all five seeds, from a return of about -0.4 to almost 0."""
    agent = DAC(beta=0.01, hidden=(32, 32), batch_size=64, learning_rate=1e-3)
    loop = DeviceLoop(agent, Target(), grid(range(5), {}), schedule(3000))
    before = loop.evaluate(20).returns.mean(axis=1)
    start = jax.tree.map(np.asarray, loop.policies())
    loop.advance(3000)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert loop.schedule.updates(loop.step) == 2900
    assert (after > -0.01).all()
    assert after.mean() > before.mean()
    moved = zip(jax.tree.leaves(start), jax.tree.leaves(loop.policies()), strict=True)
    assert all((a != np.asarray(b)).any() for a, b in moved)
    for k in range(5):
        policy = pick(loop.policies(), k)
        for s in (-0.8, 0.0, 0.8):
            action = policy.act(jnp.array([s]), jax.random.key(0), explore=False)
            assert float(action[0]) == pytest.approx(s / 2, abs=0.12)


def test_random_steps_are_uniform_and_then_the_policy_acts():
    agent = DAC(hidden=(8, 8), batch_size=16, learning_rate=0.0)
    loop = DeviceLoop(agent, Target(), grid([0], {}), schedule(4000, random_steps=2000, update_after=4000))
    loop.advance(4000)
    actions = np.asarray(loop.latest_rows(0)[0, :, 1])
    uniform = actions[:2000]
    assert abs(np.sort(uniform) - np.linspace(-1, 1, 2000)).max() < 0.06  # Kolmogorov-Smirnov at 99.9% is 0.087
    assert abs(np.sort(actions[2000:]) - np.linspace(-1, 1, 1999)).max() > 0.1


def test_update_ratio_counts_updates():
    sched = schedule(400, update_ratio=3)
    assert sched.updates(400) == 900
    agent = DAC(hidden=(8, 8), batch_size=16)
    loop = DeviceLoop(agent, Target(), grid([0], {}), sched)
    loop.advance(400)
    count = jax.tree.leaves(loop.states.policy.opt_state)[0]
    assert int(count[0]) == 900


def test_envs_and_update_ratio_must_fit_together():
    assert schedule(400, envs=4, update_ratio=0.25).updates_per_iteration == 1
    with pytest.raises(UsageError, match="whole number"):
        schedule(400, envs=4, update_ratio=0.3)
    with pytest.raises(UsageError, match="multiple"):
        schedule(401, envs=4, capacity=400, eval_every=100)


def test_chunk_divides_the_boundaries():
    sched = Schedule(300_000, 1, 1000, 1000, 1, 300_000, 5000)
    assert sched.chunk == 500
    odd = Schedule(12_345, 1, 1000, 777, 1, 12_345, 1000)
    assert odd.chunk == 500
