"""Members do not leak into each other, and nothing compiles twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms import SAC
from dac.core.keys import member_key
from dac.core.population import Member, each_member, grid, pick, stack_algorithms, stack_keys
from dac.envs.maze import FourRoomMaze
from dac.training import device
from dac.training.device import DeviceLoop
from tests.common import everything, schedule, tiny


def test_grid_is_every_combination_with_the_seed_fastest():
    members = grid([3, 4], {"alpha": [0.5, 1.0], "beta": [0.1]})
    assert members == [Member(s, {"alpha": a, "beta": 0.1}) for a in (0.5, 1.0) for s in (3, 4)]
    assert members[0].label() == "seed 3, alpha 0.5"  # beta is the same for all
    assert Member(3, {"alpha": 0.5, "beta": 0.1}).label() == "seed 3, alpha 0.5, beta 0.1"


def test_hyperparameters_become_arrays_over_members():
    stacked = stack_algorithms(tiny(gamma=0.9), grid([0, 1], {"alpha": [0.25, 0.5]}))
    np.testing.assert_allclose(stacked.alpha, [0.25, 0.25, 0.5, 0.5])
    np.testing.assert_allclose(stacked.gamma, [0.9] * 4)
    assert stacked.hidden == (8, 8)


def test_seeds_give_different_keys_and_equal_seeds_equal_ones():
    keys = jax.random.key_data(stack_keys(grid([0, 1, 2], {"alpha": [0.1, 0.2]})))
    assert len({tuple(k) for k in np.asarray(keys).tolist()}) == 3
    np.testing.assert_array_equal(keys[1], jax.random.key_data(member_key(1)))
    np.testing.assert_array_equal(keys[1], keys[4])


@pytest.mark.parametrize("adapt", [pytest.param(False, marks=pytest.mark.slow), True])
def test_member_k_of_four_equals_the_solo_run(x64, adapt):
    """100 updates in float64: networks, ring, environment and visits of each member, alone and among others."""
    members = [
        Member(seed, {"alpha": alpha, "beta": beta})
        for seed, alpha, beta in [(0, 0.5, 1.0), (7, 0.5, 0.3), (0, 1.0, 1.0), (3, 0.8, 2.0)]
    ]
    together = DeviceLoop(tiny(adapt=adapt), FourRoomMaze(), members, schedule())
    together.advance(150)
    for k, member in enumerate(members):
        alone = DeviceLoop(tiny(adapt=adapt), FourRoomMaze(), [member], schedule())
        alone.advance(150)
        one, other = everything(alone, 0), everything(together, k)
        assert one.keys() == other.keys()
        assert all(np.allclose(one[name], other[name], rtol=1e-9, atol=1e-9) for name in one)
    # and the members do differ from each other: in parameters, minibatches and experience
    for j, k in [(0, 1), (1, 3)] if adapt else [(0, 1), (0, 2), (1, 3)]:
        a, b = (jax.tree.leaves(pick(together.policies(), i)) for i in (j, k))
        assert any((x != y).any() for x, y in zip(a, b, strict=True))


def test_the_same_seed_twice_is_the_same_run():
    runs = []
    for _ in range(2):
        loop = DeviceLoop(tiny(), FourRoomMaze(), grid([5], {}), schedule())
        loop.advance(150)
        runs.append(everything(loop))
    assert all((runs[0][name] == runs[1][name]).all() for name in runs[0])


def test_evaluating_changes_nothing_in_training():
    plain, watched = (DeviceLoop(tiny(), FourRoomMaze(), grid([5], {}), schedule()) for _ in range(2))
    plain.advance(150)
    for until in (60, 110, 150):
        watched.advance(until)
        watched.evaluate(2)
        watched.measure()
    one, other = everything(plain), everything(watched)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-6)


def test_each_program_compiles_once(monkeypatch):
    """Traces are counted: one for acting without learning, one for learning, for all chunks and all values."""
    traces = []
    original = device.one_step

    def counted(env, sched, training, *rest):
        traces.append(training)
        return original(env, sched, training, *rest)

    monkeypatch.setattr(device, "one_step", counted)
    unique = schedule(steps=400, capacity=333)  # a shape no other test uses
    for alphas in ([0.5, 1.0], [0.1, 0.9]):  # other values, the same program
        loop = DeviceLoop(tiny(), FourRoomMaze(), grid([0], {"alpha": alphas}), unique)
        loop.advance(400)
    assert sorted(traces) == [False, True]


def test_shared_arguments_stay_scalars():
    seen = []

    def function(x, step):
        seen.append((x.shape, step.shape))
        return x + step

    result = each_member(function, shared=(1,))(jnp.zeros((3, 2)), jnp.float32(1))
    assert seen == [((2,), ())]
    assert result.shape == (3, 2)


def test_several_environments_per_member_fill_the_ring_in_order():
    loop = DeviceLoop(tiny(), FourRoomMaze(), grid([0], {}), schedule(envs=3, steps=90, eval_every=30, capacity=90))
    loop.advance(21)
    ring = np.asarray(loop.latest_rows(0)[0])
    assert len(ring) == 60  # 20 of 21 steps are inserted, the last is pending
    assert (np.abs(ring).sum(axis=1) > 0).all()
    # each environment's next observation is its following observation
    np.testing.assert_array_equal(ring[0:57, -2:], ring[3:60, :2])


@pytest.mark.slow
def test_sac_runs_in_the_same_loop():
    loop = DeviceLoop(SAC(hidden=(8, 8), batch_size=16), FourRoomMaze(), grid([0, 1], {"beta": [0.5, 1]}), schedule())
    loop.advance(150)
    assert loop.visits().sum() == 4 * 150
    assert (loop.first_visits() > 0).sum() == (loop.visits() > 0).sum()
