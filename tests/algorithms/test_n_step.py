"""n-step returns against a loop over episodes: ends, several environments, the ring's ends, datasets, bonuses."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import SAC, WithReturns, make_algorithm, off_policy
from dac.algorithms.base import Batch, Following
from dac.algorithms.n_step import sum_rewards
from dac.cli import main
from dac.config import resolve
from dac.core import replay
from dac.core.population import grid
from dac.core.types import EnvSpec, Transition, UsageError, pack, unpack
from dac.envs.maze import FourRoomMaze
from dac.envs.probes import Clock
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.common import everything, schedule, tiny
from tests.training.test_host import hoppers, leaves, mazes
from tests.training.test_resume import TINY, files, killed_and_resumed

SPEC = EnvSpec(obs_size=1, action_size=1)


def life(rng, steps, constant=False):
    """Transitions of one environment, in order: each ends with a chance; observations are numbers of their own."""
    rows, obs = [], rng.normal()
    for _ in range(steps):
        next_obs, end = rng.normal(), rng.uniform()
        terminated, truncated = end < 0.15, 0.15 <= end < 0.3
        seen, led = (0.0, 0.0) if constant else (obs, next_obs)
        rows.append([seen, rng.normal(), rng.normal(), terminated, truncated, led])
        obs = rng.normal() if terminated or truncated else next_obs
    return np.array(rows, float)


def by_hand(rows, start, n, gamma):
    """Reward, terminated and next observation of the n-step transition, the weight of what follows with them."""
    total, weight = 0.0, 1.0
    for row in rows[start : start + n]:
        total += weight * row[2]
        weight *= gamma
        last = row
        if row[3] or row[4]:
            break
    return total, (0.0 if last[3] else weight), last[5], last[4]


def summed(rows, positions, following, gamma):
    later = unpack(jnp.asarray(rows)[following], SPEC)
    where = np.concatenate([np.asarray(positions)[:, None], following], axis=1)
    first = unpack(jnp.asarray(rows)[positions], SPEC)
    batch = Batch(**vars(first), following=Following(later, jnp.asarray(where[:, 1:] != where[:, :-1])))
    return sum_rewards(batch, jnp.asarray(gamma))


@pytest.mark.parametrize(("envs", "n", "constant"), [(1, 3, False), (3, 4, True), (2, 30, False)])
def test_sums_are_those_of_a_loop(x64, envs, n, constant):
    """A ring that went round almost three times, every row of it; observations that tell nothing make no difference."""
    capacity, steps, gamma = 12 * envs, 34, 0.9
    rng = np.random.default_rng(envs)
    lives = [life(rng, steps, constant) for _ in range(envs)]
    ring = replay.empty(capacity, SPEC)
    for step in range(steps):
        now = np.stack([rows[step] for rows in lives])
        ring = replay.insert(ring, jnp.int32(step * envs), jnp.asarray(now))
    positions = jnp.arange(capacity)
    following = np.asarray(replay.following(capacity, jnp.int32(steps * envs), positions, n - 1, envs))
    found = summed(ring, positions, following, gamma)
    for position in range(capacity):
        env = position % envs
        step = next(s for s in range(steps) if s * envs + env >= (steps - 12) * envs and s % 12 == position // envs)
        reward, weight, next_obs, truncated = by_hand(lives[env], step, n, gamma)
        assert found.obs[position, 0] == lives[env][step, 0]
        assert found.reward[position] == pytest.approx(reward, abs=1e-12)
        assert gamma * (1 - found.terminated[position]) == pytest.approx(weight, abs=1e-12)
        assert (found.next_obs[position, 0], found.truncated[position]) == (next_obs, truncated)


def test_a_dataset_is_followed_to_its_end_and_not_into_the_ring(x64):
    rng, capacity = np.random.default_rng(1), 4
    rows = life(rng, 20)
    positions = jnp.arange(capacity, capacity + 20)
    following = replay.following(capacity, jnp.int32(4), positions, 3, 1, replay.Mix(0.5, 20))
    found = summed(np.concatenate([rows[:capacity] + 100, rows]), positions, np.asarray(following), 0.8)
    for start in range(20):
        reward, weight, next_obs, _ = by_hand(rows, start, 4, 0.8)
        assert found.reward[start] == pytest.approx(reward, abs=1e-12)
        assert 0.8 * (1 - found.terminated[start]) == pytest.approx(weight, abs=1e-12)
        assert found.next_obs[start, 0] == next_obs


def test_a_sum_ends_where_an_episode_was_broken_off_without_a_word(x64):
    """An environment that cannot be saved begins a new episode when a run is resumed, and no flag says so."""
    rows = np.array([[0, 0, 1, 0, 0, 1], [1, 0, 2, 0, 0, 2], [7, 0, 4, 0, 0, 8]], float)
    following = np.asarray(replay.following(3, jnp.int32(3), jnp.arange(3), 2, 1))
    found = summed(rows, jnp.arange(3), following, 0.5)
    np.testing.assert_array_equal(found.reward, [1 + 0.5 * 2, 2, 4])
    np.testing.assert_array_equal(found.next_obs[:, 0], [2, 2, 8])
    np.testing.assert_array_equal(1 - found.terminated, [0.5, 1, 1])


@pytest.mark.parametrize("terminates", [False, True])
def test_a_time_out_bootstraps_and_a_termination_does_not(terminates):
    """Reward 1 per step, gamma 0.8, episodes of 2 steps that look alike, 3-step returns. Ended by time-out every state
    is worth 1 / (1 - 0.8) = 5, with whatever number of steps. Ended by termination, the last step is worth 1 and the
    first 1 + 0.8, and nothing bootstraps: 1.4 in the mean, where one-step targets give 1 / (1 - 0.4) = 1.67."""
    agent = WithReturns(
        SAC(beta=0.01, gamma=0.8, hidden=(16, 16), batch_size=64, learning_rate=3e-3, tau=0.05), n_step=3
    )
    sched = schedule(2400, envs=2, update_ratio=0.5, random_steps=100, update_after=100, capacity=2400, eval_every=600)
    loop = DeviceLoop(agent, Clock(horizon=2, terminates=terminates), grid([0], {}), sched)
    loop.advance(1200)
    np.testing.assert_allclose(loop.measure()["q_mean"] * 0.01, 1.4 if terminates else 5.0, rtol=0.04)


def test_both_loops_and_both_places_of_the_replay_buffer_agree():
    members = grid([0], {"gamma": [0.5, 0.99]})
    agent = WithReturns(SAC(hidden=(8, 8), batch_size=16), n_step=4)
    sched = schedule(160, envs=2)
    loops = [DeviceLoop(agent, FourRoomMaze(), members, sched)]
    loops += [HostLoop(agent, mazes, members, sched, host_replay=place) for place in (False, True)]
    for loop in loops:
        loop.advance(80)
    device, *hosts = (leaves(loop.states) for loop in loops)
    for host in hosts:
        for one, other in zip(device, host, strict=True):
            np.testing.assert_allclose(one, other, atol=5e-3)
    for one, other in zip(*(loop.measure().values() for loop in loops[1:]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for loop in loops:
        loop.close()


@pytest.mark.slow
def test_it_is_no_other_algorithm_where_every_sum_is_one_step(x64):
    """Episodes of one step: three-step returns are one-step returns, so the updates are the same."""
    sched = schedule(120)
    loops = [
        HostLoop(agent, lambda n: short(hoppers, n), grid([0], {}), sched)
        for agent in (tiny(), WithReturns(tiny(), n_step=3))
    ]
    for loop in loops:
        loop.advance(120)
    one, other = (everything(loop) for loop in loops)
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-9, atol=1e-12, err_msg=name)


def short(make, num):
    envs = make(num)
    envs.horizon = 1
    return envs


def test_a_bonus_is_paid_in_every_step():
    """A bonus that is the next observation itself: the sum has that of each of its steps."""

    class Here(dac.algorithms.AbstractBonus):
        def init(self, key, spec, precision):
            return jnp.zeros(())

        def update(self, state, batch):
            return state + 1, 10 * batch.next_obs[:, 0], {}

    class Watch(SAC):
        def update(self, state, batch, key):
            return state, {"reward": batch.reward, "end": batch.next_obs[:, 0]}

    agent = dac.algorithms.WithBonus(WithReturns(Watch(gamma=0.5), n_step=3), Here())
    ones = jnp.ones((1, 1))
    first = Transition(ones * 0, ones, jnp.ones(1), jnp.zeros(1), jnp.zeros(1), ones * 1)
    column = jnp.ones((1, 2))
    later = Transition(
        jnp.array([[[1.0], [2.0]]]), jnp.ones((1, 2, 1)), column, 0 * column, 0 * column, jnp.array([[[2.0], [3.0]]])
    )
    batch = Batch(**vars(first), following=Following(later, column > 0))
    state = agent.init(jax.random.key(0), SPEC)
    after, measured = agent.update(state, batch, jax.random.key(1))
    assert float(measured["reward"][0]) == 11 + 0.5 * 21 + 0.25 * 31
    assert float(measured["end"][0]) == 3
    assert float(after.bonus) == 1  # learnt from the batch alone


@pytest.mark.parametrize("name", [*off_policy(), "dac-window"])
def test_every_off_policy_algorithm_takes_it(name):
    settings = {"q_window": 10} if name == "dac-window" else {}
    algorithm = make_algorithm(
        name.removesuffix("-window"), "rnd", {"n_step": 3, "hidden": (8, 8), "batch_size": 16} | settings
    )
    spec = EnvSpec(obs_size=3, action_size=2)

    def once(key):
        from dac.training.step import fresh_state, learn

        state = fresh_state(algorithm, key, spec)
        return state, learn(algorithm, state, replay.empty(20, spec), key, jnp.int32(5), jnp.int32(10), spec, 2, 2)

    with jax.numpy_rank_promotion("raise"):
        before, after = jax.eval_shape(once, jax.random.key(0))
    assert jax.tree.structure(before) == jax.tree.structure(after)


def test_one_step_is_what_it_was_before_there_was_a_choice():
    config = resolve("sac", "maze", 0, {"hidden": (8, 8)})
    assert config.hyper["n_step"] == 1
    assert isinstance(config.make_algorithm(), SAC)
    older = dataclasses.replace(config, hyper={**config.hyper})
    assert config.fingerprint() == older.fingerprint() != resolve("sac", "maze", 0, {"n_step": 2}).fingerprint()


@pytest.mark.slow
def test_it_resumes_to_the_bit(tmp_path, monkeypatch):
    settings = TINY | {"steps": 200, "eval_every": 50, "checkpoint_every": 70, "n_step": 3, "envs": 2}
    whole = dac.train("sac", "SparseHopper", out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("sac", "SparseHopper", tmp_path / "parts", monkeypatch, 150, **settings)
    assert files(whole) == files(parts)


def test_what_cannot_be_is_said_in_one_line(capsys):
    with pytest.raises(UsageError, match="n_step must be from 1 to 100, not 0"):
        resolve("sac", "maze", 0, {"n_step": 0})
    assert main(["train", "ppo", "maze", "--n-step", "3"]) == 2
    assert "n-step" in capsys.readouterr().err


def test_pack_and_the_layout_of_a_batch_agree():
    """The rows of a batch and of what follows it come back by step and transition."""
    from dac.training.step import batch_positions, rows_per_batch, update_from_rows

    class Watch(SAC):
        def update(self, state, batch, key):
            return state, {"batch": batch}

    agent = Watch(batch_size=4)
    wrapped = WithReturnsAsItIs(agent, n_step=3)
    capacity, envs = 20, 2
    ring = jnp.stack([pack(row(i)) for i in range(capacity)])
    positions = batch_positions(wrapped, capacity, jnp.int32(capacity), jax.random.key(3), envs)
    assert len(positions) == rows_per_batch(wrapped) == 12
    rows = replay.gather(ring, positions)
    batch = update_from_rows(wrapped, None, rows, positions, jax.random.key(0), jnp.int32(20), capacity, SPEC)[1][
        "batch"
    ]
    for i, position in enumerate(np.asarray(positions[:4])):
        expected = [min(position + envs * k, capacity - envs + position % envs) for k in (1, 2)]
        np.testing.assert_array_equal(batch.following.transitions.obs[i, :, 0], expected)
        exist = [position + envs * k < capacity for k in (1, 2)]
        np.testing.assert_array_equal(batch.following.exist[i], exist)


class WithReturnsAsItIs(WithReturns):
    def update(self, state, batch, key):
        return self.algorithm.update(state, batch, key)


def row(i):
    zero = jnp.zeros(())
    return Transition(jnp.full(1, float(i)), jnp.zeros(1), zero, zero, zero, jnp.zeros(1))
