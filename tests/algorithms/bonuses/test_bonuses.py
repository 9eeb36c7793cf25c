"""Bonuses: what each pays, how it reaches the algorithm, and the fixed-sigma actor-critic the paper puts them on."""

import csv
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dac
from dac.algorithms import BONUSES, SAC, FixedSigma, RandomNetworkDistillation, StateEntropy, WithBonus, make_algorithm
from dac.algorithms.base import Batch, number
from dac.algorithms.bonuses.base import AbstractBonus
from dac.algorithms.bonuses.maxent_state import StateEntropyState
from dac.cli.main import main
from dac.config import resolve
from dac.core.networks import twin_values
from dac.core.population import grid, pick
from dac.core.types import EnvSpec, Transition, UsageError
from dac.envs.maze import FourRoomMaze
from dac.envs.mujoco import make_mujoco
from dac.envs.probes import Target
from dac.training.device import DeviceLoop
from dac.training.host import HostLoop
from tests.common import schedule, tiny

SPEC = EnvSpec(obs_size=3, action_size=2)
SMALL = {"hidden": (8, 8), "batch_size": 16}


class Nothing(eqx.Module):
    """No state."""


def make_batch(seed=0, size=16, next_obs=None):
    keys = jax.random.split(jax.random.key(seed), 5)
    return Batch(
        obs=jax.random.normal(keys[0], (size, 3)),
        action=jnp.tanh(2 * jax.random.normal(keys[1], (size, 2))),
        reward=jax.random.normal(keys[2], (size,)),
        terminated=(jax.random.uniform(keys[3], (size,)) < 0.3).astype(jnp.zeros(()).dtype),
        truncated=jnp.zeros(size),
        next_obs=jax.random.normal(keys[4], (size, 3)) if next_obs is None else next_obs,
    )


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def hoppers(num):
    return make_mujoco("SparseHopper", num, horizon=60)


# random network distillation


def test_rnd_forgets_what_it_has_seen_and_pays_for_what_it_has_not():
    """States of one half of a box, again and again: their error falls below a hundredth of what it was; that of the
    other half, never shown but whitened with the same moments, stays above ten times theirs."""
    bonus = RandomNetworkDistillation(bonus_hidden=(32, 32), bonus_learning_rate=1e-3)
    state = bonus.init(jax.random.key(0), SPEC)
    seen = jax.random.uniform(jax.random.key(1), (256, 3), minval=0.0, maxval=1.0)
    new = -seen
    update = jax.jit(bonus.update)
    state, first, _ = update(state, make_batch(size=256, next_obs=seen))
    for _ in range(1000):
        state, paid, metrics = update(state, make_batch(size=256, next_obs=seen))
    _, elsewhere, _ = update(state, make_batch(size=256, next_obs=new))
    assert paid.mean() < 0.01 * first.mean()
    assert elsewhere.mean() > 10 * paid.mean()
    assert float(metrics["bonus_loss"]) == pytest.approx(float(paid.mean()) / 5, rel=1e-4)


def test_rnd_against_the_equations_written_out(x64):
    """Bonus and one step of the predictor, state by state, on the second batch, whitened with both."""
    bonus = RandomNetworkDistillation(bonus_scale=5.0, bonus_learning_rate=1e-3, bonus_hidden=(8, 8), bonus_outputs=4)
    start = bonus.init(jax.random.key(0), SPEC)
    scale, shift = jnp.array([[1.0, 100.0, 0.01]]), jnp.array([[0.0, 50.0, 3.0]])
    batches = [make_batch(i, next_obs=jax.random.normal(jax.random.key(i), (16, 3)) * scale + shift) for i in (1, 2)]
    state, _, _ = bonus.update(start, batches[0])
    found, paid, _ = jax.jit(bonus.update)(state, batches[1])

    seen = np.concatenate([b.next_obs for b in batches])
    white = np.clip((np.asarray(batches[1].next_obs) - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8), -5, 5)

    def network(net, x):
        for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
            x = jnp.maximum(0, jnp.array([x @ weight[:, j] + bias[j] for j in range(weight.shape[1])]))
        return x @ net.weights[-1] + net.biases[-1]

    def error(net, i):
        difference = network(net, jnp.asarray(white[i])) - network(start.target, jnp.asarray(white[i]))
        return sum(difference[j] ** 2 for j in range(4))

    np.testing.assert_allclose(paid, [5 * error(state.predictor.model, i) for i in range(16)], rtol=1e-6)
    gradient = jax.grad(lambda net: sum(error(net, i) for i in range(16)) / 16)(state.predictor.model)
    adam = optax.adam(1e-3)
    first = jax.grad(lambda net: bonus.update(dataclasses.replace(start, predictor=dataclasses.replace(
        start.predictor, model=net)), batches[0])[1].mean() / 5)(start.predictor.model)  # fmt: skip
    moments = adam.update(first, adam.init(start.predictor.model))[1]
    expected = optax.apply_updates(state.predictor.model, adam.update(gradient, moments)[0])
    for one, other in zip(leaves(found.predictor.model), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-9)
    for one, other in zip(leaves(found.target), leaves(start.target), strict=True):
        np.testing.assert_array_equal(one, other)  # never trained


def test_rnd_does_not_care_about_units():
    """Raw positions of 0 to 100 pay what the same positions in other units pay."""
    bonus = RandomNetworkDistillation(bonus_hidden=(8, 8))
    state = bonus.init(jax.random.key(0), SPEC)
    obs = jax.random.uniform(jax.random.key(1), (64, 3))
    one = bonus.update(state, make_batch(size=64, next_obs=obs))[1]
    other = bonus.update(state, make_batch(size=64, next_obs=100 * obs + 7))[1]
    np.testing.assert_allclose(one, other, rtol=2e-3)
    far = obs.at[0].set(1e6)  # clipped at 5 standard deviations, not let through
    assert float(bonus.update(state, make_batch(size=64, next_obs=far))[1].max()) < 50 * float(one.max())


# state entropy


def refreshed(bonus, states, count=None):
    state = bonus.init(jax.random.key(0), EnvSpec(states.shape[1], 2))
    zeros = jnp.zeros(len(states))
    window = Transition(states, jnp.zeros((len(states), 2)), zeros, zeros, zeros, states)
    return jax.jit(bonus.refresh)(state, window, jnp.int32(len(states) if count is None else count))


def paid_for(bonus, state, states):
    zeros = jnp.zeros(len(states))
    return np.asarray(bonus.update(state, Transition(states, zeros[:, None], zeros, zeros, zeros, states))[1])


@pytest.mark.parametrize("centre", [True, False])
def test_state_entropy_pays_minus_the_log_of_counts(centre):
    """Cells visited 60, 30, 9 and 1 times in 100 steps, and one never: by hand. Only the first 100 rows count."""
    cells = np.repeat([[0.5, 0.5], [0.5, 1.5], [-3.5, 7.5], [90.1, 99.9]], [60, 30, 9, 1], axis=0)
    rows = np.concatenate([np.random.default_rng(0).permutation(cells), np.full((50, 2), 0.5)]).astype(np.float32)
    bonus = StateEntropy(bonus_density="histogram", bonus_centre=centre, bonus_window=200)
    state = refreshed(bonus, jnp.asarray(rows), 100)
    queries = jnp.array([[0.9, 0.1], [0.0, 1.0], [-3.1, 7.0], [90.9, 99.0], [40.0, 40.0]])
    share = np.array([0.6, 0.3, 0.09, 0.01, 0.01])
    entropy = -sum(p * np.log(p) for p in share[:4])
    # the entropy comes from an even sample of all 150 rows given: each of the 100 is drawn once or twice
    assert float(state.entropy) == pytest.approx(entropy, abs=0.1)
    offset = float(state.entropy) if centre else 0.0
    np.testing.assert_allclose(paid_for(bonus, state, queries), 0.02 * (-np.log(share) - offset), atol=1e-6)


def test_entropy_of_the_window_is_that_of_a_gaussian():
    """20,000 normal states in two dimensions: log(2 pi e) = 2.84, and the mean bonus of the window is 0."""
    states = 30 * jax.random.normal(jax.random.key(0), (20_000, 2)) + 10
    bonus = StateEntropy(bonus_window=20_000)
    state = refreshed(bonus, states)
    assert float(state.entropy) == pytest.approx(np.log(2 * np.pi * np.e), abs=0.05)
    paid = paid_for(bonus, state, states[:5000])
    assert abs(paid.mean()) < 0.05 * 0.02
    radius = np.linalg.norm((np.asarray(states[:5000]) - 10) / 30, axis=1)
    rare, common = paid[radius > 2.5], paid[radius < 1.5]
    assert rare.min() > common.max()


def test_a_window_of_nothing_pays_nothing():
    """Asked before anything is stored: finite, the same for all, and 0 if centred."""
    states = 100 * jax.random.normal(jax.random.key(0), (50, 3))
    for density in ("kernel", "histogram"):
        bonus = StateEntropy(bonus_density=density, bonus_window=50)
        np.testing.assert_allclose(paid_for(bonus, refreshed(bonus, states, 0), states), 0, atol=1e-6)
        start = bonus.init(jax.random.key(0), SPEC)
        assert np.isfinite(paid_for(bonus, start, states)).all()
        assert jax.tree.structure(start) == jax.tree.structure(refreshed(bonus, states))
        shapes = [[leaf.shape for leaf in jax.tree.leaves(s)] for s in (start, refreshed(bonus, states[:20]))]
        assert shapes[0] == shapes[1]


def test_a_histogram_of_many_entries_is_refused():
    bonus = StateEntropy(bonus_density="histogram")
    with pytest.raises(UsageError, match=r"at most 3 entries, these have 17 \(accepted: kernel\)"):
        bonus.init(jax.random.key(0), EnvSpec(17, 6))


# a bonus on an algorithm


class Constant(StateEntropy):
    """Pays 1, 2, 3, ... to the transitions of a batch."""

    def update(self, state, batch):
        return state, jnp.arange(1.0, len(batch.reward) + 1), {}


@pytest.mark.slow
def test_the_algorithm_learns_from_reward_plus_bonus():
    batch, key = make_batch(), jax.random.key(4)
    for algorithm in (SAC(**SMALL), tiny(), FixedSigma(**SMALL)):
        both = WithBonus(algorithm, Constant(bonus_window=10))
        state = both.init(jax.random.key(0), SPEC)
        found, metrics = both.update(state, batch, key)
        paid = dataclasses.replace(batch, reward=batch.reward + jnp.arange(1.0, 17.0))
        expected, plain = algorithm.update(algorithm.init(jax.random.key(0), SPEC), paid, key)
        for one, other in zip(leaves(found.algorithm), leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)
        assert float(metrics["bonus_mean"]) == 8.5
        assert metrics.keys() - plain.keys() == {"bonus_mean", "bonus_std"}


@pytest.mark.parametrize("bonus", [pytest.param("rnd", marks=pytest.mark.slow), "maxent-state", "novelty"])
def test_a_bonus_of_scale_zero_changes_nothing(bonus):
    """150 steps of DAC in the maze, with none and with one that pays 0."""
    small = {"bonus_window": 60, "bonus_refresh": 40} if bonus == "maxent-state" else {"bonus_hidden": (8,)}
    if bonus == "novelty":
        small["bonus_scale"] = 1.0  # what it pays by default moves these few updates of small networks by 3e-5
    loops = [
        DeviceLoop(make_algorithm("dac", *given), FourRoomMaze(), grid([0, 1], {"alpha": [0.5]}), schedule())
        for given in (("none", SMALL), (bonus, SMALL | small | {"bonus_scale": 0.0}), (bonus, SMALL | small))
    ]
    for loop in loops:
        loop.advance(150)
    plain, unpaid, paid = (leaves(loop.policies()) for loop in loops)
    for one, other in zip(plain, unpaid, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert any((abs(a - b) > 1e-4).any() for a, b in zip(plain, paid, strict=True))


class Altitude(AbstractBonus[Nothing]):
    """Pays for the first entry of the next observation."""

    bonus_weight: float = number(0.5, 0)
    """What the entry is multiplied by."""

    def init(self, key, spec, precision="float32"):
        return Nothing()

    def update(self, state, batch):
        return state, self.bonus_weight * batch.next_obs[:, 0], {}


def test_a_new_bonus_is_one_line_in_the_registry(monkeypatch, capsys):
    """Its name is accepted, its settings are explained and checked, and any off-policy algorithm is paid by it."""
    with pytest.raises(
        UsageError, match="bonus must be one of none, rnd, maxent-state, novelty, count, not 'altitude'"
    ):
        resolve("sac", "maze", settings={"bonus": "altitude"})
    monkeypatch.setitem(BONUSES, "altitude", Altitude)
    config = resolve("sac", "maze", settings={"bonus": "altitude", "bonus_weight": [1.0, 2.0]} | SMALL)
    assert config.varied() == ["bonus_weight"]
    with pytest.raises(UsageError, match="bonus_weight must be a number of at least 0"):
        resolve("sac", "maze", settings={"bonus": "altitude", "bonus_weight": -1.0})
    with pytest.raises(SystemExit):
        main(["train", "sac", "--help"])
    assert "What the entry is multiplied by" in " ".join(capsys.readouterr().out.split())
    algorithm = make_algorithm("sac", "altitude", SMALL | {"bonus_weight": 2.0})
    batch = make_batch()
    _, metrics = algorithm.update(algorithm.init(jax.random.key(0), SPEC), batch, jax.random.key(1))
    assert float(metrics["bonus_mean"]) == pytest.approx(2 * float(batch.next_obs[:, 0].mean()), rel=1e-5)


class Counting(StateEntropy):
    """Counts its refreshes and remembers what the last one saw."""

    def init(self, key, spec, precision="float32"):
        return Counts(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    def refresh(self, state, latest, count):
        rising = jnp.all(jnp.diff(latest.reward[:20]) == -1)  # newest first
        return Counts(state.times + 1, count.astype(float), latest.reward[0], rising.astype(float))

    def update(self, state, batch):
        return state, jnp.zeros(len(batch.reward)), {"times": state.times}


class Counts(StateEntropyState):
    times: jax.Array
    count: jax.Array
    newest: jax.Array
    rising: jax.Array

    def __init__(self, times, count, newest, rising):
        self.times, self.count, self.newest, self.rising = times, count, newest, rising
        self.projection = self.density = self.entropy = jnp.zeros(())


class Ticking(Target):
    """Pays the number of the step."""

    def start(self, key):
        return jnp.zeros(1)

    def move(self, world, action, key):
        return world + 1, world[0], jnp.zeros(())


def test_refresh_comes_at_the_first_update_and_then_every_so_many_steps():
    """First update at 50, refresh every 40: at 50, 80, 120 and 160; each sees what is in the ring, newest first."""
    agent = WithBonus(FixedSigma(**SMALL), Counting(bonus_window=60, bonus_refresh=40))
    loop = DeviceLoop(agent, Ticking(), grid([0, 1], {}), schedule(200, capacity=200, eval_every=100))
    seen = {}
    for until in (50, 51, 80, 81, 120, 121, 200):
        loop.advance(until)
        state = loop.states.bonus
        seen[until] = int(state.times[1]), int(state.count[1]), int(state.newest[1])
    assert seen == {
        50: (0, 0, 0),
        51: (1, 49, 48),
        80: (1, 49, 48),
        81: (2, 60, 78),
        120: (2, 60, 78),
        121: (3, 60, 118),
        200: (4, 60, 158),
    }
    assert float(loop.states.bonus.rising[1]) == 1
    assert float(loop.measure()["times"][0]) == 4


@pytest.mark.parametrize("algorithm", ["dac", "sac"])
@pytest.mark.parametrize("bonus", ["rnd", "maxent-state", "novelty", "count"])
@pytest.mark.slow
def test_a_bonus_goes_with_other_algorithms(tmp_path, algorithm, bonus):
    """Through `dac.train`, on the host, with the ring in either place: the same curves, and the bonus is paid."""
    windowed = bonus in ("maxent-state", "count")
    small = {"bonus_window": 120, "bonus_refresh": 50} if windowed else {"bonus_hidden": (8, 8)}
    runs = [
        dac.train(
            algorithm, "SparseHopper", seeds=[0, 1], bonus=bonus, steps=200, eval_every=100, random_steps=50,
            update_after=60, replay=place, out=tmp_path / place, **SMALL, **small,
        )
        for place in ("device", "host")
    ]  # fmt: skip
    for name, column in runs[0].metrics.items():
        np.testing.assert_allclose(runs[1].metrics[name], column, rtol=2e-3, atol=2e-3, err_msg=name)
    metrics = runs[0].metrics
    assert (metrics["bonus_std"] > 0).all()
    if bonus == "rnd":
        assert (metrics["bonus_mean"][-1] < metrics["bonus_mean"][0]).all()
    assert runs[0].evaluate(1).returns.shape == (2, 1)
    assert runs[0].config.training.bonus == bonus


@pytest.mark.parametrize("bonus", ["rnd", "maxent-state"])
@pytest.mark.slow
def test_the_maze_has_a_bonus_of_its_own(tmp_path, bonus):
    """The named algorithms in the device loop: sigma swept, metrics named, policies saved with their sigma."""
    small = {"bonus_hidden": (8, 8)} if bonus == "rnd" else {"bonus_window": 120, "bonus_refresh": 50}
    run = dac.train(
        bonus, "maze", seeds=[0], sigma=[0.1, 0.6], steps=200, eval_every=100, random_steps=50, update_after=60,
        out=tmp_path / "run", **SMALL, **small,
    )  # fmt: skip
    with open(run.directory / "metrics.csv", newline="") as file:
        columns = next(csv.reader(file))
    assert {"bonus_mean", "bonus_std", "action_saturation", "bonus_loss" if bonus == "rnd" else "state_entropy"} <= set(
        columns
    )
    np.testing.assert_allclose(run.policies().sigma, [0.1, 0.6], rtol=1e-6)
    if bonus == "maxent-state":
        assert run.config.hyper["bonus_density"] == "histogram"
        assert resolve(bonus, "SparseHopper").hyper["bonus_density"] == "kernel"


@pytest.mark.parametrize("bonus", ["rnd", "maxent-state"])
@pytest.mark.slow
def test_host_members_do_not_depend_on_each_other(x64, bonus):
    """Member k of three equals its solo run, bonus included: Hopper's 11 entries, projected to five."""
    small = {"bonus_hidden": (8, 8)} if bonus == "rnd" else {"bonus_window": 60, "bonus_refresh": 40}
    agent = make_algorithm(bonus, bonus, SMALL | small)
    members = grid([0, 5], {"bonus_scale": [1.0]}) + grid([5], {"bonus_scale": [3.0]})
    together = HostLoop(agent, hoppers, members, schedule())
    together.advance(150)
    for k, member in enumerate(members):
        alone = HostLoop(agent, hoppers, [member], schedule())
        alone.advance(150)
        for one, other in zip(leaves(pick(alone.states, 0)), leaves(pick(together.states, k)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
        alone.close()
    a, b = (leaves(pick(together.policies(), k)) for k in (1, 2))
    assert any((x != y).any() for x, y in zip(a, b, strict=True))
    together.close()


# the fixed-sigma actor-critic


def reference_update(algorithm, state, batch, key):
    """With loops over the batch and optax.adam."""
    noise = jax.random.normal(key, batch.action.shape, batch.action.dtype)
    n = range(batch.obs.shape[0])

    def action(mlp, i):
        return jnp.clip(jnp.tanh(mlp(batch.obs[i])) + algorithm.sigma * noise[i], -1, 1)

    def twin(i, action, critics):
        return list(twin_values(critics, batch.obs[i][None], action[None])[:, 0])

    def policy_loss(mlp):
        values = [twin(i, action(mlp, i), state.critics.model) for i in n]
        return -sum(q[0] if algorithm.policy_q == "first" else jnp.minimum(*q) for q in values) / len(n)

    def value_loss(value):
        targets = [min(twin(i, action(state.policy.model, i), state.critics.model)) for i in n]
        return sum(0.5 * (value(batch.obs[i]) - targets[i]) ** 2 for i in n) / len(n)

    def critics_loss(critics):
        total = 0.0
        for i in n:
            y = batch.reward[i]
            if batch.terminated[i] == 0:
                y += algorithm.gamma * state.value_target(batch.next_obs[i])
            total += sum(0.5 * (q - y) ** 2 for q in twin(i, batch.action[i], critics))
        return total / len(n)

    new = {}
    for name, loss in {"policy": policy_loss, "value": value_loss, "critics": critics_loss}.items():
        model = getattr(state, name).model
        adam = optax.adam(algorithm.learning_rate)
        updates, _ = adam.update(jax.grad(loss)(model), adam.init(model), model)
        new[name] = optax.apply_updates(model, updates)
    target = jax.tree.map(lambda t, v: 0.98 * t + 0.02 * v, state.value_target, new["value"])
    return new, target


@pytest.mark.parametrize("policy_q", ["first", "min"])
def test_fixed_sigma_against_the_equations_written_out(x64, policy_q):
    algorithm = FixedSigma(sigma=0.4, gamma=0.9, learning_rate=1e-3, tau=0.02, hidden=(8, 8), policy_q=policy_q)
    state = algorithm.init(jax.random.key(5), SPEC)
    other_target = algorithm.init(jax.random.key(6), SPEC).value_target
    state = dataclasses.replace(state, value_target=other_target)
    batch, key = make_batch(7, size=6), jax.random.key(11)
    assert 0 < float(batch.terminated.sum()) < 6
    new, target = reference_update(algorithm, state, batch, key)
    found, metrics = jax.jit(algorithm.update)(state, batch, key)
    for name, model in new.items():
        for one, other in zip(leaves(getattr(found, name).model), leaves(model), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    for one, other in zip(leaves(found.value_target), leaves(target), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
    assert all(np.isfinite(v) for v in metrics.values())


def test_the_policy_is_a_gaussian_of_fixed_width():
    """Also where its mean is at the edge: half of the actions are cut there, the others keep their distance."""
    algorithm = FixedSigma(sigma=0.3, hidden=(8, 8))
    policy = algorithm.policy(algorithm.init(jax.random.key(0), SPEC))
    keys = jax.random.split(jax.random.key(1), 20_000)

    def sample(policy):
        actions = jax.vmap(lambda k: policy.act(jnp.zeros(3), k, explore=True))(keys)
        return np.asarray(actions), np.asarray(policy.act(jnp.zeros(3), keys[0], explore=False))

    actions, best = sample(policy)
    np.testing.assert_allclose(best, 0, atol=1e-6)  # the networks have no bias yet
    np.testing.assert_allclose(actions.mean(axis=0), best, atol=0.01)
    np.testing.assert_allclose(actions.std(axis=0), 0.3, atol=0.01)
    biases = (*policy.mlp.biases[:-1], jnp.full(2, 20.0))
    saturated = dataclasses.replace(policy, mlp=eqx.tree_at(lambda m: m.biases, policy.mlp, biases))
    actions, best = sample(saturated)
    np.testing.assert_allclose(best, 1)
    assert actions.max() == 1
    np.testing.assert_allclose((actions < 1).mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(np.sqrt(((1 - actions[actions < 1]) ** 2).mean()), 0.3, atol=0.01)


@pytest.mark.slow
def test_fixed_sigma_learns_a_probe_with_a_known_answer():
    """See s, act s/2: all five seeds."""
    agent = FixedSigma(hidden=(32, 32), batch_size=64, learning_rate=1e-3)
    sched = schedule(3000, random_steps=100, update_after=100, capacity=3000, eval_every=1000)
    loop = DeviceLoop(agent, Target(), grid(range(5), {}), sched)
    before = loop.evaluate(20).returns.mean(axis=1)
    loop.advance(3000)
    after = loop.evaluate(20).returns.mean(axis=1)
    assert (after > -0.01).all()
    assert after.mean() > before.mean()
    for k in range(5):
        policy = pick(loop.policies(), k)
        for s in (-0.8, 0.0, 0.8):
            action = policy.act(jnp.array([s]), jax.random.key(0), explore=False)
            assert float(action[0]) == pytest.approx(s / 2, abs=0.12)
