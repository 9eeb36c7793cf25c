"""Layer norm and residual blocks against NumPy, learning with them, and one registry for all algorithms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dac.algorithms import ALGORITHMS, DAC, make_algorithm
from dac.config import resolve
from dac.core.architectures import ACTIVATIONS, MLP, NETWORKS, Architecture, ResidualMLP
from dac.core.population import grid
from dac.core.trees import name_leaves
from dac.core.types import EnvSpec, UsageError
from dac.envs.probes import Target
from dac.training.device import DeviceLoop
from tests.common import schedule

SPEC = EnvSpec(obs_size=3, action_size=2)
X = np.array([0.3, -1.2, 2.0])


def perturbed(network, seed=0):
    """The network with every parameter moved, so that none is 0 or 1 where a mistake would not show."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + jnp.asarray(rng.normal(0, 0.3, leaf.shape)), network)


def normalised(x, norm):
    x = (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 1e-6)
    return x * np.asarray(norm.weight) + np.asarray(norm.bias)


def test_layer_norm_stands_between_a_layer_and_its_activation(x64):
    mlp = perturbed(MLP(jax.random.key(1), 3, (5, 4), 2, norm="layer"))
    weights, biases = ([np.asarray(part) for part in parts] for parts in (mlp.weights, mlp.biases))
    hidden = X
    for weight, bias, norm in zip(weights, biases, mlp.norms, strict=False):
        hidden = np.maximum(normalised(hidden @ weight + bias, norm), 0)
    np.testing.assert_allclose(mlp(jnp.asarray(X)), hidden @ weights[-1] + biases[-1], rtol=1e-12)


def test_residual_blocks_against_numpy(x64):
    network = perturbed(ResidualMLP(jax.random.key(1), 3, (4, 4), 2, activation=jnp.tanh))
    hidden = X @ np.asarray(network.weights[0]) + np.asarray(network.biases[0])
    for block in network.blocks:
        assert [weight.shape for weight in block.weights] == [(4, 16), (16, 4)]
        (w1, w2), (b1, b2) = ([np.asarray(part) for part in parts] for parts in (block.weights, block.biases))
        hidden = hidden + np.tanh(normalised(hidden, block.norm) @ w1 + b1) @ w2 + b2
    expected = normalised(hidden, network.norm) @ np.asarray(network.weights[1]) + np.asarray(network.biases[1])
    np.testing.assert_allclose(network(jnp.asarray(X)), expected, rtol=1e-12)


@pytest.mark.parametrize("settings", [{"norm": "layer"}, {"network": "residual"}])
def test_every_parameter_learns(settings):
    """Those of the norms too: each is reached by the gradient."""
    network = perturbed(Architecture((8, 8), activation="tanh", **settings)(jax.random.key(0), 3, 2))
    gradient = jax.grad(lambda n: jnp.sum(n(jnp.asarray(X, jnp.float32)) ** 2))(network)
    names = name_leaves(gradient)
    assert any("norm" in name for name in names)
    assert all((np.asarray(leaf) != 0).any() for leaf in names.values())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"norm": "layer", "activation": "silu"}, {"network": "residual"}])
def test_dac_learns_a_probe_with_other_networks(settings):
    """See s, act s/2: all three seeds reach almost 0."""
    agent = DAC(beta=0.01, hidden=(16, 16), batch_size=64, learning_rate=3e-3, **settings)
    loop = DeviceLoop(agent, Target(), grid(range(3), {}), schedule(2000, capacity=2000))
    loop.advance(2000)
    assert (loop.evaluate(20).returns.mean(axis=1) > -0.01).all()


def test_the_plain_network_has_the_leaves_that_checkpoints_know():
    names = name_leaves(DAC(hidden=(8, 8)).init(jax.random.key(0), SPEC))
    assert {
        "policy.model.mlp.weights.0",
        "value.opt_state.nu.mlp.biases.2",
        "value_target.mlp.weights.1",
    } <= names.keys()
    assert not any("norm" in name for name in names)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_name_in_the_registry_serves_every_algorithm(name, monkeypatch):
    """A new architecture is asked for by its name, and every network of an algorithm is then one of it."""

    class Doubled(MLP):
        def __call__(self, x):
            return 2 * super().__call__(x)

    monkeypatch.setitem(NETWORKS, "doubled", Doubled)
    if name == "acktr":
        with pytest.raises(UsageError, match="acktr needs network mlp"):
            resolve(name, "maze", settings={"network": "doubled"})
        return
    config = resolve(name, "maze", settings={"network": "doubled", "hidden": (8, 8)})
    assert config.make_algorithm()
    algorithm = make_algorithm(name, settings={"network": "doubled", "hidden": (8, 8)})
    found = jax.tree.leaves(algorithm.init(jax.random.key(0), SPEC), is_leaf=lambda part: isinstance(part, MLP))
    networks = [part for part in found if isinstance(part, MLP)]
    assert networks
    assert all(isinstance(network, Doubled) for network in networks)


@pytest.mark.parametrize(
    ("algorithm", "settings", "words"),
    [
        ("dac", {"network": "transformer"}, "network must be one of mlp, residual"),
        ("sac", {"activation": "sine"}, "activation must be one of relu, tanh, elu, gelu, silu"),
        ("td3", {"norm": "batch"}, "norm must be one of none, layer"),
        ("sql", {"network": "residual", "hidden": (64, 32)}, "hidden layers of one size, such as 256,256, not 64,32"),
        ("dac", {"network": "residual", "norm": "layer"}, "norm must be none, not layer"),
        ("acktr", {"norm": "layer"}, "acktr needs network mlp with norm none, not mlp with layer"),
        ("acktr", {"network": "residual"}, "acktr needs network mlp with norm none"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(algorithm, settings, words):
    with pytest.raises(UsageError, match=words) as caught:
        resolve(algorithm, "maze", settings=settings)
    assert "\n" not in str(caught.value)


def test_activations_are_what_their_names_say():
    x = np.linspace(-3, 3, 7)
    sigmoid = 1 / (1 + np.exp(-x))
    expected = {
        "relu": np.maximum(x, 0),
        "tanh": np.tanh(x),
        "elu": np.where(x > 0, x, np.exp(x) - 1),
        "gelu": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "silu": x * sigmoid,
    }
    assert expected.keys() == ACTIVATIONS.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(ACTIVATIONS[name](jnp.asarray(x, jnp.float32)), values, rtol=1e-5, atol=1e-6)
