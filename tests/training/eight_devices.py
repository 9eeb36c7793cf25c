"""Tests that need eight devices: `test_devices.py` runs them in a process in which XLA divides the CPU into as many."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import DAC, PPO, SAC
from dac.core.population import grid
from dac.core.types import UsageError, row_size
from dac.envs.probes import Target
from dac.tasks import find_task
from dac.training import device as device_loop
from dac.training import host_programs
from dac.training.device import DeviceLoop
from dac.training.devices import choose_devices, split
from dac.training.host import HostLoop
from dac.training.memory import place_replay
from tests.common import everything, schedule
from tests.training.test_resume import TINY, files, killed_and_resumed

SMALL = {"hidden": (8,), "batch_size": 16}
MEMBERS, TWICE = grid(range(8), {}), grid(range(16), {})
COLLECTIVES = r"all-reduce|all-gather|all-to-all|collective|reduce-scatter|partition-id|\bsend\b|\brecv\b"


def make(kind, agent, count, members=MEMBERS, **more):
    mesh, changes, settings = choose_devices(count, len(members))[0], {"envs": 2, "steps": 240}, SMALL
    if agent is PPO:
        changes = {"random_steps": 0, "rollout": 40, "capacity": 40}
        settings = {"hidden": (8,), "rollout": 40, "minibatches": 4, "epochs": 1}
    changes |= {"offline_share": 0.5} if "dataset" in more else {}
    agent, sched = agent(**settings), schedule(**changes)
    if kind == "device":
        return DeviceLoop(agent, Target(), members, sched, mesh=mesh, **more)
    return HostLoop(agent, find_task("Hopper").make_envs, members, sched, mesh=mesh, host_replay=kind == "host", **more)


def trained(loop, poisoned=5):
    """Train, break a member on the way, and return all there is to know of the loop and of its evaluation."""
    loop.advance(70)
    before = jax.tree.leaves(loop.states)
    loop.replace_states(jax.tree.map(lambda leaf: _spoil(leaf, poisoned), loop.states))
    loop.advance(100)
    assert set(loop.health.failures) == {poisoned}
    assert all(leaf.sharding == before[0].sharding for leaf in jax.tree.leaves(loop.states))
    episodes = loop.evaluate(2)
    measured = {f"measured {name}": value for name, value in loop.measure().items()}
    return everything(loop) | measured | {"returns": episodes.returns, "lengths": episodes.lengths}


def _spoil(leaf, member):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    spoilt = np.array(leaf)
    spoilt[member] = np.nan
    return jax.device_put(spoilt, leaf.sharding)


slow = pytest.mark.slow
CASES = [
    ("device", SAC, 2),
    pytest.param("device", SAC, 8, marks=slow),
    pytest.param("ring on the device", SAC, 2, marks=slow),
    pytest.param("ring on the device", SAC, 8, marks=slow),
    pytest.param("host", DAC, 8, marks=slow),
    pytest.param("device", DAC, 2, marks=slow),
    pytest.param("device", PPO, 8, marks=slow),
    pytest.param("ring on the device", PPO, 2, marks=slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", "ring on the device", "host"])
def test_a_dataset_is_on_every_device(kind):
    spec = (Target() if kind == "device" else find_task("Hopper")).spec
    rows = np.random.default_rng(0).uniform(-1, 1, (50, row_size(spec if kind == "device" else spec())))
    _compare(kind, SAC, 4, MEMBERS, dataset=rows.astype(np.float32))


@pytest.mark.parametrize(("kind", "agent", "count"), CASES)
def test_a_device_has_the_population_of_its_members_to_the_bit(kind, agent, count):
    """Networks, optimisers, replay buffers, measurements and episodes; the frozen member is on the second device."""
    _compare(kind, agent, count, TWICE if count == 8 else MEMBERS)


def _compare(kind, agent, count, members, **more):
    """The members of the second device, of which one breaks, with a population that has no others."""
    own = len(members) // count
    several = trained(make(kind, agent, count, members, **more), poisoned=own + 1)
    alone = trained(make(kind, agent, 1, members[own : 2 * own], **more), poisoned=1)
    assert several.keys() == alone.keys()
    share = {name: np.split(array, count)[1] for name, array in several.items()}  # of its environments too
    assert [name for name in alone if not np.array_equal(alone[name], share[name], equal_nan=True)] == []


def test_each_device_has_its_members_and_no_program_speaks_to_another():
    loop = make("device", SAC, 2)
    loop.advance(70)
    old = loop._carry.state
    loop.advance(71)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))  # the update reused their memory
    for leaf in jax.tree.leaves(loop._carry):
        assert [shard.data.shape[0] for shard in leaf.addressable_shards] == [4, 4]
        assert len({shard.device for shard in leaf.addressable_shards}) == 2
    carry = split(loop._carry, loop.mesh)
    assert {device for leaf in jax.tree.leaves(carry[1]) for device in leaf.devices()} == {jax.devices()[1]}
    arguments = [*(part[1] for part in loop._constants()), carry[1], None, jnp.int32(71), loop.env]
    program = device_loop._run_any_length.lower(*arguments, loop.schedule.program, True, jnp.int32(1), None).compile()
    assert not re.search(COLLECTIVES, program.as_text())
    assert "num_partitions=1" in program.as_text() or "num_partitions" not in program.as_text()


@pytest.mark.slow
def test_the_update_of_the_host_loop_speaks_to_no_other_device_and_reuses_memory():
    loop = make("ring on the device", SAC, 2)
    loop.advance(60)
    old = loop._state, loop._ring
    packed = loop._upload(loop._packed)
    arguments = loop._context[1], loop._state[1], loop._ring[1], packed[1], loop._clock[1], None, None
    program = host_programs.learn.lower(loop._layout, *arguments).compile()
    assert not re.search(COLLECTIVES, program.as_text())
    loop.advance(61)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))


def test_the_largest_number_of_devices_that_divides_the_members_is_taken_and_said():
    assert choose_devices(0, 8) == (None, None)  # a CPU is one device unless it is asked for more
    assert choose_devices(1, 8) == (None, None)
    mesh, line = choose_devices(8, 16)
    assert mesh.size == 8
    assert line == "devices: 16 members on 8 of 8 cpu devices, 2 on each"
    mesh, line = choose_devices(8, 8)  # the program of a single member has other last bits
    assert mesh.size == 4
    assert line == "devices: 8 members on 4 of 8 cpu devices, 2 on each (8 devices need 16, 24, ... members)"
    mesh, line = choose_devices(8, 12)
    assert mesh.size == 6
    assert line == "devices: 12 members on 6 of 8 cpu devices, 2 on each (8 devices need 16, 24, ... members)"
    mesh, line = choose_devices(4, 7)
    assert mesh is None
    assert line.startswith("devices: 7 members on 1 of 8 cpu devices, 7 on each (4 devices need 8, 12, ")
    with pytest.raises(UsageError, match="devices must be from 0 to 8, as many cpu devices as there are, not 9"):
        choose_devices(9, 9)


def test_every_accelerator_is_taken_by_default(monkeypatch):
    class Gpu:
        platform = "gpu"

    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()] * 4)
    mesh, line = choose_devices(0, 8)
    assert mesh.size == 4
    assert line == "devices: 8 members on 4 of 4 gpu devices, 2 on each"
    assert choose_devices(1, 8) == (None, None)


def test_the_memory_of_all_devices_counts(monkeypatch):
    """What does not fit one device fits four of them; the fullest of them decides."""

    class Gpu:
        platform = "gpu"

        def __init__(self, free):
            self.free = free

        def memory_stats(self):
            return {"bytes_limit": 2 * self.free, "bytes_in_use": self.free}

    spec = find_task("target").spec()
    row = 4 * (2 * spec.obs_size + spec.action_size + 3)
    sched = schedule(1000, capacity=1000)
    free = 2 * 1000 * row / 0.8  # of two members
    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu(4 * free), Gpu(2 * free), Gpu(free), Gpu(2 * free)])
    assert place_replay("auto", 8, sched, spec, on_host=True, devices=1) == "device"
    assert place_replay("auto", 9, sched, spec, on_host=True, devices=1) == "host"
    assert place_replay("auto", 8, sched, spec, on_host=True, devices=4) == "device"
    assert place_replay("auto", 12, sched, spec, on_host=True, devices=4) == "host"


RUN = TINY | SMALL | {"steps": 90, "eval_every": 30, "checkpoint_every": 30, "seeds": range(4)}


@pytest.mark.parametrize(
    ("algorithm", "task", "settings"),
    [
        ("sac", "target", {}),
        pytest.param("dac", "maze", {"alpha": "adapt"}, marks=slow),
        pytest.param("sac", "Hopper", {"replay": "host", "envs": 2, "update_ratio": 0.5}, marks=slow),
        pytest.param("rnd", "DelayedHopper", {"bonus_hidden": (8, 8)}, marks=slow),
        pytest.param("mme", "target", {}, marks=slow),
        pytest.param("ppo", "target", {"rollout": 30, "minibatches": 3, "random_steps": 0}, marks=slow),
    ],
)
def test_a_run_resumes_on_another_number_of_devices_to_the_bit(
    algorithm, task, settings, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", logger="dac")
    settings = {**RUN, **settings}
    if algorithm == "ppo":
        settings = {name: value for name, value in settings.items() if name not in ("batch_size", "update_after")}
    whole = dac.train(algorithm, task, out=tmp_path / "whole", **settings)
    resumed = killed_and_resumed(algorithm, task, tmp_path / "killed", monkeypatch, 60, **settings, devices=2)
    assert "devices: 4 members on 2 of 8 cpu devices, 2 on each" in caplog.text
    same = ["metrics.csv", "policy.safetensors"]
    assert [files(whole)[name] == files(resumed)[name] for name in same] == [True, True]
    assert (whole.summary["devices"], resumed.summary["devices"]) == (1, 2)
    more = dac.resume(whole.directory, steps=120)
    moved = dac.resume(resumed.directory, steps=120, devices=1)
    assert [files(more)[name] == files(moved)[name] for name in same] == [True, True]
    assert moved.config.training.devices == 1
