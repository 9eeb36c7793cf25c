"""Functional environments in the device loop: ends, time-outs, observations before a reset, and what is refused."""

import types

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dac
from dac.algorithms import SAC
from dac.cli import main
from dac.core.population import grid
from dac.core.types import UsageError
from dac.envs.functional import FunctionalEnv
from dac.envs.pace import Pace
from dac.envs.paced_device import PacedEnv
from dac.tasks import find_task
from dac.training.device import DeviceLoop
from tests.common import everything, schedule, tiny
from tests.docs.blocks import ROOT, blocks
from tests.envs.functional import Clock, Counting, Drawn, Gymnax, Params
from tests.envs.test_pace import OWN, PACES, by_hand
from tests.training.test_device import schedule as training
from tests.training.test_resume import TINY, files, killed_and_resumed


@pytest.mark.parametrize("last", [100, OWN, 8, 6])
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("kind", [Counting, Gymnax])
def test_ends_and_observations_are_those_of_a_loop_by_hand(kind, pace, last):
    """The episode is cut by the environment itself, which is no termination; a termination in that step wins."""
    assert Params().cut == OWN
    env = FunctionalEnv(kind(), Params(last))
    env = env if pace == Pace() else PacedEnv(env, pace)

    def step(state, key):
        state, now = env.step(state, jnp.zeros(1), key)
        return state, jnp.stack([now.next_obs[0], now.reward, now.terminated, now.truncated, now.obs[0]])

    keys = jax.random.split(jax.random.key(0), 20)
    seen = jax.lax.scan(step, env.reset(keys[0])[0], keys)[1]
    np.testing.assert_array_equal(seen, by_hand(20, pace, last))


def test_the_horizon_cuts_where_the_environment_does_not():
    env = FunctionalEnv(Counting(), Params(last=1000, cut=1000))
    step = jax.jit(env.step)
    state, _ = env.reset(jax.random.key(0))
    for number in range(1, 181):
        state, now = step(state, jnp.zeros(1), jax.random.key(number))
        assert (now.terminated, now.truncated) == (0, number % 90 == 0)
        assert now.next_obs[0] == (number - 1) % 90 + 1


@pytest.mark.parametrize("terminates", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_time_out_bootstraps_and_a_termination_does_not(terminates):
    """As in tests/training/test_device.py: Q is 1 / (1 - 1/2) with time-outs, and 4/3 where every second step ends."""
    agent = SAC(beta=0.01, gamma=0.5, hidden=(16, 16), batch_size=64, learning_rate=3e-3, tau=0.05)
    loop = DeviceLoop(agent, FunctionalEnv(Clock(terminates)), grid([0, 1], {}), training(4000))
    loop.advance(4000)
    np.testing.assert_allclose(loop.measure()["q_mean"] * 0.01, 4 / 3 if terminates else 2.0, atol=0.06)


def test_actions_are_stretched_over_bounds_of_any_shape():
    seen = []

    class Watching(Drawn):
        def step(self, key, state, action, params):
            seen.append(action)
            return super().step(key, state, action, params)

    env = FunctionalEnv(Watching())
    assert env.spec == dac.core.types.EnvSpec(3, 2)
    world = env.start(jax.random.key(0))
    for given, expected in [([-1, -1], [-0.1, 0]), ([1, 1], [0.3, 5]), ([0, 0.5], [0.1, 3.75]), ([-3, 9], [-0.1, 5])]:
        env.move(world, jnp.array(given, float), jax.random.key(0))
        assert seen[-1].shape == (2, 1)
        np.testing.assert_allclose(seen[-1].ravel(), np.float32(expected), rtol=1e-6)
    assert seen[2].ravel().tolist() == np.float32([0.3, 5]).tolist()  # the bounds themselves to the bit


def test_dictionaries_are_laid_out_in_the_order_of_their_keys():
    env = FunctionalEnv(Drawn())
    world = env.start(jax.random.key(3))
    obs = env.observe(world)
    assert obs[0] == 0
    assert obs[1:].tolist() == world.state["at"].tolist()
    assert obs.dtype == jnp.float32


def test_members_depend_on_their_seed_alone():
    env = FunctionalEnv(Drawn())
    loops = [DeviceLoop(tiny(), env, grid(seeds, {}), schedule(100)) for seeds in ([4], [3, 4])]
    for loop in loops:
        loop.advance(100)
    alone, among = everything(loops[0], 0), everything(loops[1], 1)
    assert alone.keys() == among.keys()
    for name in alone:
        np.testing.assert_allclose(alone[name], among[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert (everything(loops[1], 0)["replay"] != among["replay"]).any()


def test_visited_cells_are_counted_and_those_outside_are_not():
    loop = DeviceLoop(tiny(), FunctionalEnv(Counting()), grid([0], {}), schedule(50))
    loop.advance(22)  # two episodes of 11 steps, of which steps 6 to 11 are in the grid
    assert loop.visited().tolist() == [6]
    assert np.flatnonzero(loop.visits()[0]).tolist() == [6, 7, 8, 9, 10, 11]
    assert loop.visits()[0][6] == 2


DRAWN = f"jax:{Drawn.__module__}:Drawn"


def test_killed_and_resumed_is_the_same_to_the_bit(tmp_path, monkeypatch):
    settings = TINY | {"steps": 200, "eval_every": 50, "checkpoint_every": 70}
    whole = dac.train("dac", DRAWN, out=tmp_path / "whole", **settings)
    parts = killed_and_resumed("dac", DRAWN, tmp_path / "parts", monkeypatch, 150, **settings)
    assert files(whole) == files(parts)
    assert (whole.metrics["length"] <= Drawn.horizon).all()


def test_by_name_and_as_an_object_it_is_one_task(tmp_path, capsys):
    """Trained, evaluated and loaded; what is predicted is in the environment's own range and shape."""
    command = f"train sac {DRAWN} --steps 60 --hidden 8,8 --batch-size 8 --random-steps 20 --update-after 20"
    assert main([*command.split(), "--eval-every", "60", "--out", str(tmp_path / "named"), "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path / "named"), "--episodes", "2"]) == 0
    settings = {"hidden": (8, 8), "batch_size": 8, "random_steps": 20, "update_after": 20, "eval_every": 60}
    env = Drawn()
    run = dac.train("sac", env, steps=60, out=tmp_path / "given", **settings)
    named = dac.Run(tmp_path / "named")
    assert run.metrics["return"].tolist() == named.metrics["return"].tolist()
    model = run.model()
    action, _ = model.predict(np.zeros((5, 3)))
    assert action.shape == (5, 2, 1)
    assert (action >= [[-0.1], [0.0]]).all()
    assert (action <= np.float32([[0.3], [5.0]])).all()
    assert find_task(DRAWN).device() is find_task(DRAWN).device()
    for stand_in in (env, (env, None), DRAWN):  # a later process gives the object, a pair, or the name
        model = dac.SAC.load(tmp_path / "given", env=stand_in)
        assert model.evaluate(episodes=2).returns.shape == (2,)


def test_a_module_that_makes_environments_by_id_is_asked_for_one(monkeypatch):
    module = types.ModuleType("makes_by_id")
    module.make = lambda id, **options: (Counting(), Params(last={"Short-v1": 5}[id]))
    monkeypatch.setitem(__import__("sys").modules, "makes_by_id", module)
    task = find_task("jax:makes_by_id:Short-v1")
    assert task.device().functions.params.last == 5
    with pytest.raises(UsageError, match="could not be made: KeyError: 'Long-v1'"):
        find_task("jax:makes_by_id:Long-v1").spec()


def changed(**members):
    return type("Odd", (Counting,), members)()


def returning(*values):
    return changed(step=lambda self, key, state, action, params: values)


STATE = jnp.int32(1)
OBS = jnp.zeros(1)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            types.SimpleNamespace(reset=len, step=len),
            r"is no functional environment: it must have reset",
        ),
        (changed(step=lambda self, state, action: None), "is no functional environment"),
        (changed(action_space=lambda self, p: gymnasium.spaces.Discrete(3)), "actions must be real numbers.*DQN"),
        (changed(action_space=lambda self, p: types.SimpleNamespace(n=3)), r"the action space is Discrete\(3\)"),
        (changed(action_space=lambda self, p: gymnasium.spaces.Box(-np.inf, 1, (1,))), "must have finite bounds"),
        (changed(action_space=lambda self, p: gymnasium.spaces.Box(-1, 1, (0,))), "must not be empty"),
        (changed(action_space=lambda self, p: None), "actions must be real numbers"),
        (changed(horizon=None), "Odd says no time limit: give it an attribute horizon"),
        (changed(horizon=0), "horizon of Odd must be a whole number of at least 1, not 0"),
        (changed(horizon="10"), "horizon of Odd must be a whole number of at least 1, not '10'"),
        (
            changed(reset=lambda self, key, params: OBS),
            "reset of Odd must return an observation and a state; got",
        ),
        (changed(reset=lambda self, key, params: 1 / 0), "reset of Odd failed: ZeroDivisionError"),
        (changed(reset=lambda self, key, p: (jnp.zeros((8, 8), jnp.uint8), 0)), "images are not supported"),
        (changed(reset=lambda self, key, p: (key, 0)), "observations of Odd must be arrays of numbers"),
        (returning(OBS, STATE, 1.0), "step of Odd must return .* terminated, truncated and info; got"),
        (returning(OBS, STATE, 1.0, False, {}), "a time-out cannot be told from a termination"),
        (returning(jnp.zeros(2), STATE, 1.0, False, False, {}), "must return observations of the form that reset"),
        (returning(OBS, (STATE, STATE), 1.0, False, False, {}), "must return states of the form that reset"),
        (returning(OBS, STATE, jnp.ones(2), False, False, {}), "the reward of Odd must be one number"),
        (returning(OBS, STATE, 1.0, False, jnp.zeros(3), {}), "truncated of Odd must be one number"),
        (changed(visit_cell=None), r"Odd has visit_grid, and so must have visit_cell\(observation\)"),
        (changed(visit_cell=lambda self, obs: jnp.zeros(3)), "visit_cell of Odd must be one number"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(env, message):
    from dac.envs.functional import make_functional

    with pytest.raises(UsageError, match=message) as error:
        make_functional(lambda: env)
    assert "\n" not in str(error.value)


def test_bad_names_end_a_command_with_one_line(capsys, tmp_path):
    for task, said in [
        ("jax:nowhere:Room", "cannot import the environment factory 'nowhere:Room'"),
        ("jax:math:pi", "'math:pi' is not a function"),
        ("jax:math:floor", "could not be made: TypeError"),
        ("jax:tests.envs.strange:Plain", "is no functional environment"),
        ("python:tests.envs.functional:Counting", "a functional environment in JAX is named jax:MODULE:FACTORY"),
    ]:
        assert main(["train", "sac", task, "--out", str(tmp_path / "run")]) == 2
        err = capsys.readouterr().err
        assert said in err.replace("\n", " "), err
    assert not (tmp_path / "run").exists()
    assert main(["train", "sac", DRAWN, "--workers", "2"]) == 2
    with pytest.raises(UsageError, match=r"is not a gymnasium.Env; .*functional environment in JAX has reset"):
        dac.SAC(types.SimpleNamespace(reset=len, step=len))


@pytest.mark.slow
def test_the_room_of_the_page_is_learnt():
    """The page's own code: with every seed DAC goes to the corner and stays, where uniform actions hardly come."""
    code = next(block.code for block in blocks(ROOT / "docs/jax-environments.md") if "class Room" in block.code)
    page = {}
    exec(compile(code, "jax-environments.md", "exec"), page)
    env = FunctionalEnv(page["Room"]())

    def step(state, key):
        state, now = env.step(state, jax.random.uniform(key, (2,), float, -1, 1), key)
        return state, now.reward

    keys = jax.random.split(jax.random.key(0), 10_000)
    uniform = jax.lax.scan(step, env.reset(keys[0])[0], keys)[1].mean() * env.horizon
    settings = {"hidden": (64, 64), "batch_size": 64, "learning_rate": 1e-3, "eval_episodes": 10, "eval_every": 4000}
    trained = dac.Population("dac", page["Room"](), seeds=range(3), **settings).learn(4000)
    assert uniform < 5
    assert (trained.metrics["return"][-1] > 80).all()
