"""Our tasks of the DeepMind Control suite beside dm_control's own, in one process, under one MuJoCo."""

import numpy as np
import pytest
from dm_control import suite
from dm_control.utils import rewards

from dac.envs.dmc.envs import DmcEnvs, make_domain
from dac.envs.dmc.names import ENTRIES, HORIZON
from dac.envs.dmc.tolerance import SLOPES, tolerance


def load(name):
    """Return dm_control's own environment; seed 0 is the one whose springs our lqr has."""
    env = suite.load(*name.split("-"), task_kwargs={"random": 0}, environment_kwargs={"flat_observation": True})
    env.physics._make_rendering_contexts = lambda: None  # which would be told of a changed terrain
    return env


def test_every_task_is_here():
    assert set(ENTRIES) == {"-".join(task) for task in suite.ALL_TASKS}
    benchmark = {name for name, entry in ENTRIES.items() if entry.benchmark}
    assert benchmark == {"-".join(task) for task in suite.BENCHMARKING}


@pytest.mark.parametrize("name", ENTRIES)
def test_the_model_is_dm_controls(name):
    """Every array and every option; what a task changes in its model at a reset, it has changed by then."""
    ours, env = make_domain(name).model, load(name)
    theirs = env.physics.model.ptr
    drawn = {"geom_rgba", "site_rgba", "site_size", "geom_size", "dof_damping"}  # by `initialize_episode`
    compared = 0
    for field in dir(ours):
        value = getattr(ours, field)
        if isinstance(value, np.ndarray) and field not in drawn:
            np.testing.assert_array_equal(value, getattr(theirs, field), err_msg=field)
            compared += 1
    env.reset()
    for field in drawn:
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), err_msg=field)
    assert compared > 300
    for field in ("timestep", "integrator", "disableflags", "enableflags", "iterations", "cone", "solver", "tolerance"):
        assert getattr(ours.opt, field) == getattr(theirs.opt, field), field
    assert make_domain(name).substeps == env._n_sub_steps
    if name.startswith("lqr"):
        assert env._step_limit == np.inf
    else:
        assert env._step_limit == HORIZON


@pytest.mark.parametrize("name", ENTRIES)
def test_every_step_is_dm_controls(name):
    """The same start from the same generator, then the same actions: coordinates and velocities agree to the bit.

    A whole episode of 1000 steps, then twenty short ones, because some starts are near the goal.
    """
    env, envs = load(name), DmcEnvs(name, 2, threads=1)
    envs.reset([0, 1])
    actions = np.random.default_rng(0)
    for episode, steps in enumerate((HORIZON, *20 * [20])):
        env.task._random = np.random.RandomState(episode)
        envs._generators = [np.random.RandomState(episode) for _ in range(2)]  # dm_control's, in place of ours
        envs._begin(np.arange(2))
        theirs = env.reset()
        np.testing.assert_allclose(envs._obs[0], theirs.observation["observations"], rtol=1e-6, atol=1e-6)
        for number in range(1, steps + 1):
            action = actions.uniform(-1, 1, (2, envs.spec.action_size)).astype(np.float32)
            sent = envs.bounds.stretch(action[0]).astype(np.float64)
            last = envs._elapsed[0] + 1 == HORIZON
            world = watch(envs)
            step = envs.step(action)
            theirs = env.step(sent)
            np.testing.assert_array_equal(world["qpos"], env.physics.data.qpos, err_msg=f"step {number}")
            np.testing.assert_array_equal(world["qvel"], env.physics.data.qvel, err_msg=f"step {number}")
            np.testing.assert_allclose(world["obs"], theirs.observation["observations"], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(world["reward"], theirs.reward, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(step.next_obs[0], world["obs"].astype(np.float32))
            assert step.reward[0] == np.float32(world["reward"])
            terminated = theirs.last() and theirs.discount == 0
            assert step.terminated[0] == terminated
            assert step.truncated[0] == (last and not terminated)
            assert theirs.last() == (terminated or (last and not name.startswith("lqr")))
            if theirs.last():
                break


def watch(envs):
    """Return a record that is filled, in double precision, when the domain is asked for its observation and reward."""
    seen, domain = {}, envs.domain

    def earn(world):
        reward = type(domain).earn(domain, world)
        seen["reward"], seen["obs"] = reward[0], np.concatenate([part[0] for part in domain.observe(world)])
        seen["qpos"], seen["qvel"] = world["qpos"][0].copy(), world["qvel"][0].copy()
        return reward

    domain.earn = earn
    return seen


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("value", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (-0.3, 0.7), (1.0, np.inf)])
def test_tolerance_is_dm_controls(slope, value, low, high):
    x = np.concatenate([np.linspace(-4, 4, 801), [low, -1e6, 1e6]])
    for margin in (0.0, 0.5, 2.0):
        ours = tolerance(x, low, high, margin=margin, slope=slope, value=value)
        theirs = rewards.tolerance(x, (low, high), margin, slope, value)
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-300)
