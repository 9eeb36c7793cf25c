"""Exported policies act as ours: in onnxruntime, in plain NumPy and as StableHLO."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import export as jax_export

import dac
from dac.algorithms import ALGORITHMS, make_algorithm
from dac.cli import main
from dac.core.architectures import ACTIVATIONS, NETWORKS, NORMS
from dac.core.architectures import __name__ as architectures
from dac.core.networks import NormalisedGaussianPolicy, WhitenedPolicy
from dac.core.types import EnvSpec, UsageError
from dac.envs.bounds import ActionBounds
from dac.export import to_onnx
from dac.export.graph import OPERATIONS, describe
from dac.export.members import Actor, read_actor
from dac.export.numpy_page import numpy_page, weights_file
from dac.export.onnx_file import NODES, onnx_model
from dac.export.stablehlo import stablehlo_program

SPEC = EnvSpec(obs_size=3, action_size=2)
BOUNDS = ActionBounds(np.array([-2.0, 0.5]), np.array([1.0, 3.5]), np.dtype(np.float32), (2,))
FACTS = {"algorithm": "dac", "task": "gym:Some-v0", "member": 0, "label": "seed 0"}
SHAPES = {"mlp": {}, "residual": {"network": "residual"}, "norm": {"norm": "layer"}}
SHAPES |= {name: {"activation": name} for name in ACTIVATIONS}
WHITENED = {"normalise_obs": True}


def actor_of(name, **settings):
    """A policy whose every parameter is random, so that none is 0 or 1 where a mistake would not show."""
    algorithm = make_algorithm(name, ALGORITHMS[name].bonus, {"hidden": (16, 16)} | settings)
    shapes = jax.eval_shape(lambda: algorithm.policy(algorithm.init(jax.random.key(1), SPEC)))
    rng = np.random.default_rng(2)
    policy = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape), jnp.float32), shapes)
    if isinstance(policy, NormalisedGaussianPolicy | WhitenedPolicy):  # a variance is not negative
        moments = dataclasses.replace(
            policy.moments, variance=jnp.array([0.1, 2.0, 30.0]), mean=jnp.array([1.0, 0, -2])
        )
        policy = dataclasses.replace(policy, moments=moments)
    return Actor(policy, SPEC, BOUNDS, 0, FACTS)


def inputs_of(actor):
    rng = np.random.default_rng(3)
    shapes = describe(actor.policy, SPEC, BOUNDS).inputs
    return {name: rng.normal(0, 2, (1000, size)).astype(np.float32) for name, size in shapes.items()}


def ours(actor, obs, noise=None):
    """The policy's own action, stretched and clipped as the environments do."""
    policy, key = actor.policy, jax.random.key(0)
    if noise is not None:
        return BOUNDS.stretch(np.asarray(jax.vmap(policy)(obs, noise)))
    return BOUNDS.stretch(np.asarray(jax.vmap(lambda o: policy.act(o, key, explore=False))(obs)))


def load_page(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy()


def write_page(actor, folder):
    graph = describe(actor.policy, actor.spec, actor.bounds)
    (folder / "policy.npz").write_bytes(weights_file(graph))
    (folder / "policy.py").write_text(numpy_page(actor, graph, folder / "policy.npz"))
    return load_page(folder / "policy.py")


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((n, {}) for n in ALGORITHMS), *(("sac", s) for s in SHAPES.values()), ("sac", WHITENED), ("sql", WHITENED)],
    ids=[*ALGORITHMS, *SHAPES, "sac-whitened", "sql-whitened"],
)
def test_every_format_acts_as_the_policy_does(name, settings, tmp_path):
    actor = actor_of(name, **settings)
    inputs = inputs_of(actor)
    expected = ours(actor, **inputs)
    assert expected.std(axis=0).min() > 0.03  # they tell observations apart
    assert (expected >= BOUNDS.low).all()
    assert (expected <= BOUNDS.high).all()
    session = onnxruntime.InferenceSession(onnx_model(actor).SerializeToString())
    (by_onnx,) = session.run(["action"], inputs)
    page = write_page(actor, tmp_path)
    by_numpy = page.act(**inputs)
    program = jax_export.deserialize(bytearray(stablehlo_program(actor).serialize()))
    by_stablehlo = np.asarray(program.call(*inputs.values()))
    for actions in (by_onnx, by_numpy, by_stablehlo):
        assert actions.dtype == np.float32
        np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-5)
    # one observation alone, and another number of them
    one = {key: values[:1] for key, values in inputs.items()}
    np.testing.assert_allclose(page.act(**{key: values[0] for key, values in one.items()}), expected[0], atol=1e-5)
    np.testing.assert_allclose(session.run(["action"], one)[0], expected[:1], atol=1e-5)
    np.testing.assert_allclose(program.call(*one.values()), expected[:1], atol=1e-5)


def test_a_policy_of_a_bf16_run_keeps_its_precision_in_stablehlo_and_is_float32_elsewhere(tmp_path):
    actor = actor_of("sac", precision="bf16")
    inputs = inputs_of(actor)
    expected, exact = ours(actor, **inputs), ours(actor_of("sac"), **inputs)
    program = jax_export.deserialize(bytearray(stablehlo_program(actor).serialize()))
    assert "xbf16>" in program.mlir_module()
    # another order of adding may round an activation to the other side
    np.testing.assert_allclose(np.asarray(program.call(*inputs.values())), expected, rtol=0, atol=0.02)
    (by_onnx,) = onnxruntime.InferenceSession(onnx_model(actor).SerializeToString()).run(["action"], inputs)
    for actions in (by_onnx, write_page(actor, tmp_path).act(**inputs)):
        np.testing.assert_allclose(actions, exact, rtol=0, atol=1e-5)
        assert 1e-4 < np.abs(actions - expected).mean() < 0.02


def test_every_architecture_activation_and_norm_is_exported():
    """What is registered is in the cases above, and what is an operation can be written in both forms."""
    cases = [make_algorithm("sac", "none", {"hidden": (16, 16)} | shape) for shape in SHAPES.values()]
    assert {case.network for case in cases} == set(NETWORKS)
    assert {case.activation for case in cases} == set(ACTIVATIONS)
    assert {case.norm for case in cases} == set(NORMS)
    assert set(OPERATIONS) == set(NODES)


def test_what_export_does_not_know_is_refused_by_name(monkeypatch):
    class Strange(NETWORKS["mlp"]):
        def __call__(self, x):
            return 2 * super().__call__(x)

    def sine(x):
        return jnp.sin(x)

    monkeypatch.setitem(sys.modules[architectures].NETWORKS, "strange", Strange)
    monkeypatch.setitem(sys.modules[architectures].ACTIVATIONS, "sine", sine)
    with pytest.raises(UsageError, match="does not know the architecture Strange; --format stablehlo takes any"):
        onnx_model(actor_of("sac", network="strange"))
    with pytest.raises(UsageError, match="does not know the activation sine; --format stablehlo takes any"):
        onnx_model(actor_of("td3", activation="sine"))
    with pytest.raises(UsageError, match="does not know the policy object"):
        onnx_model(dataclasses.replace(actor_of("sac"), policy=object()))
    actor = actor_of("sac", network="strange")
    obs = np.random.default_rng(3).normal(0, 2, (10, SPEC.obs_size)).astype(np.float32)
    np.testing.assert_allclose(stablehlo_program(actor).call(obs), ours(actor, obs), atol=1e-5)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {"steps": 96, "eval_every": 48, "rollout": 32, "minibatches": 4, "hidden": (8, 8)}
    return dac.train("ppo", "gym:Pendulum-v1", seeds=[0, 1], out=tmp_path_factory.mktemp("run"), **settings)


OUTSIDE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib", "dac", "equinox", "scipy", *BLOCKED):
            raise ImportError(f"{name} is not for this process")

sys.meta_path.insert(0, Blocked())
import numpy as np
obs = np.load(sys.argv[1])
"""
BY_NUMPY = """
sys.path.insert(0, sys.argv[2])
from policy_member1 import Policy
np.save(sys.argv[3], Policy().act(obs))
"""
BY_ONNX = """
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[2])
np.save(sys.argv[3], session.run(None, {session.get_inputs()[0].name: obs})[0])
"""


def test_a_run_is_exported_to_processes_without_jax(run, tmp_path, capsys):
    obs = np.random.default_rng(0).normal(0, 3, (50, 3)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    for name in ("onnx", "numpy", "stablehlo"):
        assert main(["export", str(run.directory), "--format", name, "--member", "1"]) == 0
    names = [str(run.directory / f"policy_member1.{suffix}") for suffix in ("onnx", "npz", "stablehlo")]
    assert capsys.readouterr().out.split() == names
    actor = read_actor(run, 1)
    key = jax.random.key(0)
    expected = actor.bounds.stretch(np.asarray(jax.vmap(lambda o: actor.policy.act(o, key, explore=False))(obs)))
    assert np.abs(expected).max() > 1e-3
    cases = [(BY_NUMPY, ("onnxruntime", "onnx"), run.directory), (BY_ONNX, ("onnx",), names[0])]
    for program, blocked, source in cases:
        command = OUTSIDE.replace("*BLOCKED", f"*{blocked}") + program
        answer = tmp_path / "action.npy"
        arguments = [str(tmp_path / "obs.npy"), str(source), str(answer)]
        done = subprocess.run([sys.executable, "-c", command, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.load(answer), expected, atol=1e-5)
    program = jax_export.deserialize(bytearray((run.directory / "policy_member1.stablehlo").read_bytes()))
    np.testing.assert_allclose(program.call(obs), expected, atol=1e-5)
    assert set(program.platforms) == {"cpu", "cuda", "tpu"}


def test_the_onnx_file_says_what_it_is(run, tmp_path):
    path = to_onnx(run.directory, tmp_path / "deep" / "policy.onnx", member=0)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["algorithm"] == "ppo"
    assert facts["task"] == "gym:Pendulum-v1"
    assert facts["dac"] == dac.__version__
    assert json.loads(facts["obs_size"]) == 3
    assert json.loads(facts["action_low"]) == [-2.0]
    assert json.loads(facts["action_high"]) == [2.0]
    assert [value.name for value in model.graph.input] == ["obs"]
    assert [value.name for value in model.graph.output] == ["action"]
    assert model.ir_version <= 10  # what onnxruntime 1.20 reads
    assert model.opset_import[0].version <= 21


def test_nothing_is_replaced_without_being_asked(run, tmp_path, capsys):
    out = tmp_path / "policy.onnx"
    command = ["export", str(run.directory), "--format", "onnx", "--out", str(out)]
    out.write_text("precious")
    assert main(command) == 2
    assert capsys.readouterr().err == f"dac: {out} exists already; give another --out, or --force to replace it\n"
    assert out.read_text() == "precious"
    assert main([*command, "--force"]) == 0
    onnx.checker.check_model(onnx.load(out))
    (tmp_path / "page.py").write_text("precious")  # the second file of two: the first is not written either
    assert main(["export", str(run.directory), "--format", "numpy", "--out", str(tmp_path / "page")]) == 2
    assert not (tmp_path / "page.npz").exists()
    assert main([*command, "--member", "2"]) == 2
    assert capsys.readouterr().err.endswith("dac: member must be from 0 to 1, not 2\n")
    assert main(["export", str(run.directory), "--format", "pickle"]) == 2
    assert main(["export", str(run.directory), "--format", "onnx", "--out", str(tmp_path), "--force"]) == 2


def test_a_missing_extra_is_one_line(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(run.directory), "--format", "onnx"]) == 2
    line = "dac: export to onnx needs the extra 'onnx': pip install 'diversity-actor-critic[onnx]'\n"
    assert capsys.readouterr().err == line


def test_a_page_refuses_other_observations(tmp_path):
    policy = write_page(actor_of("sql"), tmp_path)
    with pytest.raises(ValueError, match=r"an observation has 3 entries; got the shape \(5, 4\)"):
        policy.act(np.zeros((5, 4)))
    drawn = policy.act(np.zeros((100, 3)))  # without noise it draws its own
    assert drawn.std(axis=0).min() > 0.01
