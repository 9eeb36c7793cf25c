"""A policy as a short list of plain operations: what the ONNX file and the page of NumPy are written from.

`describe` walks through a policy and its network. What it does not know it refuses by name; it never guesses. To add an
architecture, write a function and name it in `ARCHITECTURES`; a policy's, in `POLICIES`; an operation has an entry in
`OPERATIONS` here, as NumPy, and one in `NODES` of `dac/export/onnx_file.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from dac.algorithms.fixed_sigma import FixedSigmaPolicy
from dac.algorithms.sql import Sampler
from dac.algorithms.td3 import DeterministicPolicy
from dac.core.architectures import ACTIVATIONS, MLP, ResidualMLP
from dac.core.networks import OBS_BOUND, NormalisedGaussianPolicy, SquashedGaussianPolicy, WhitenedPolicy
from dac.core.types import EnvSpec, UsageError
from dac.envs.bounds import ActionBounds

OPERATIONS: dict[str, str] = {
    "linear": '{0} @ w["{name}_weight"] + w["{name}_bias"]',
    "layer_norm": 'layer_norm({0}, w["{name}_scale"], w["{name}_offset"], {eps:g})',
    "relu": "np.maximum({0}, 0)",
    "tanh": "np.tanh({0})",
    "elu": "np.where({0} > 0, {0}, np.expm1(np.minimum({0}, 0)))",
    "gelu": "0.5 * {0} * (1 + np.tanh(0.7978845608 * ({0} + 0.044715 * {0} ** 3)))",
    "silu": "0.5 * {0} * (1 + np.tanh(0.5 * {0}))",
    "add": "{0} + {1}",
    "concat": "np.concatenate([{0}, {1}], axis=-1)",
    "first": "{0}[..., :{count}]",
    "whiten": 'np.clip(({0} - w["{name}_mean"]) / w["{name}_std"], -{bound:g}, {bound:g})',
    "stretch": (
        'np.clip(w["{name}_middle"] + w["{name}_reach"] * np.clip({0}, -1, 1), w["{name}_low"], w["{name}_high"])'
    ),
}
"""Every operation in NumPy, by its name: {0} and {1} are its inputs, `w` holds the weights."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation and the value it makes."""

    operation: str
    inputs: tuple[str, ...]
    output: str
    name: str
    """What the names of its weights begin with."""
    attributes: dict[str, Any]


class Graph:
    """Steps in their order, from the inputs to the action."""

    def __init__(self, inputs: dict[str, int]):
        self.inputs = inputs
        """Sizes of the inputs by name: `obs` and, for a policy that draws its actions, `noise`."""
        self.steps: list[Step] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, operation: str, *inputs: str, name: str | None = None, weights: Any = None, **attributes: Any) -> str:
        """Append an operation with its weights, and return the name of the value it makes."""
        name = f"{operation}{sum(step.operation == operation for step in self.steps)}" if name is None else name
        for part, array in (weights or {}).items():
            self.weights[f"{name}_{part}"] = np.asarray(array, np.float32)
        self.steps.append(Step(operation, inputs, f"x{len(self.steps)}", name, attributes))
        return self.steps[-1].output

    @property
    def output(self) -> str:
        return self.steps[-1].output


def describe(policy: Any, spec: EnvSpec, bounds: ActionBounds) -> Graph:
    """The best guess of one member's policy, from the observation to the action in the environment's own range."""
    noise = {"noise": spec.action_size} if needs_noise(policy) else {}
    graph = Graph({"obs": spec.obs_size} | noise)
    action = act(policy, graph, "obs")
    arrays = {"middle": bounds.middle, "reach": bounds.reach, "low": bounds.low, "high": bounds.high}
    graph.add("stretch", action, name="action", weights=arrays)
    return graph


def needs_noise(policy: Any) -> bool:
    """Whether the policy's best guess is itself a draw: it takes standard normal noise beside the observation."""
    inner = policy.policy if isinstance(policy, WhitenedPolicy) else policy
    return isinstance(inner, Sampler)


def act(policy: Any, graph: Graph, obs: str) -> str:
    """Append a policy's best guess for an observation to a graph, and return the name of the action in [-1, 1]."""
    if type(policy) not in POLICIES:
        raise UsageError(f"export does not know the policy {type(policy).__name__}; --format stablehlo takes any")
    return POLICIES[type(policy)](policy, graph, obs)


def layers(network: Any, graph: Graph, x: str) -> str:
    """Append a network to a graph, and return the name of its output."""
    if type(network) not in ARCHITECTURES:
        raise UsageError(
            f"export does not know the architecture {type(network).__name__}; --format stablehlo takes any"
        )
    return ARCHITECTURES[type(network)](network, graph, x)


def _squashed_gaussian(policy: SquashedGaussianPolicy, graph: Graph, obs: str) -> str:
    both = layers(policy.mlp, graph, obs)
    return graph.add("tanh", graph.add("first", both, count=_width(graph) // 2))


def _squashed_mean(policy: DeterministicPolicy | FixedSigmaPolicy, graph: Graph, obs: str) -> str:
    return graph.add("tanh", layers(policy.mlp, graph, obs))


def _sampler(policy: Sampler, graph: Graph, obs: str) -> str:
    return graph.add("tanh", layers(policy.mlp, graph, graph.add("concat", obs, "noise")))


def _normalised_gaussian(policy: NormalisedGaussianPolicy, graph: Graph, obs: str) -> str:
    return layers(policy.mlp, graph, _whiten(policy.moments, graph, obs))


def _whitened(policy: WhitenedPolicy, graph: Graph, obs: str) -> str:
    return act(policy.policy, graph, _whiten(policy.moments, graph, obs))


def _whiten(moments: Any, graph: Graph, obs: str) -> str:
    std = np.sqrt(np.asarray(moments.variance) + 1e-8)
    return graph.add("whiten", obs, weights={"mean": moments.mean, "std": std}, bound=OBS_BOUND)


def _mlp(network: MLP, graph: Graph, x: str) -> str:
    *hidden, last = zip(network.weights, network.biases, strict=True)
    for i, (weight, bias) in enumerate(hidden):
        x = _linear(graph, x, weight, bias)
        if network.norms:
            x = _layer_norm(graph, x, network.norms[i])
        x = graph.add(_name(network.activation), x)
    return _linear(graph, x, *last)


def _residual(network: ResidualMLP, graph: Graph, x: str) -> str:
    x = _linear(graph, x, network.weights[0], network.biases[0])
    for block in network.blocks:
        inner = _layer_norm(graph, x, block.norm)
        inner = graph.add(_name(block.activation), _linear(graph, inner, block.weights[0], block.biases[0]))
        x = graph.add("add", x, _linear(graph, inner, block.weights[1], block.biases[1]))
    return _linear(graph, _layer_norm(graph, x, network.norm), network.weights[1], network.biases[1])


# by the very class: what derives from one of these may act in another way
POLICIES: dict[type, Callable[[Any, Graph, str], str]] = {
    SquashedGaussianPolicy: _squashed_gaussian,
    DeterministicPolicy: _squashed_mean,
    FixedSigmaPolicy: _squashed_mean,
    Sampler: _sampler,
    NormalisedGaussianPolicy: _normalised_gaussian,
    WhitenedPolicy: _whitened,
}
ARCHITECTURES: dict[type, Callable[[Any, Graph, str], str]] = {
    MLP: _mlp,
    ResidualMLP: _residual,
}


def _linear(graph: Graph, x: str, weight: Any, bias: Any) -> str:
    return graph.add("linear", x, weights={"weight": weight, "bias": bias})


def _layer_norm(graph: Graph, x: str, norm: Any) -> str:
    return graph.add("layer_norm", x, weights={"scale": norm.weight, "offset": norm.bias}, eps=norm.eps)


def _name(activation: Any) -> str:
    """The name of an activation function, if it is one that can be exported."""
    name = next((name for name, known in ACTIVATIONS.items() if known is activation), None)
    if name not in OPERATIONS:
        shown = name or getattr(activation, "__name__", repr(activation))
        raise UsageError(f"export does not know the activation {shown}; --format stablehlo takes any")
    return name


def _width(graph: Graph) -> int:
    """The size of what the last linear layer makes."""
    last = next(step for step in reversed(graph.steps) if step.operation == "linear")
    return graph.weights[f"{last.name}_bias"].size
