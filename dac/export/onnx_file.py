"""A policy as an ONNX file, which runs in onnxruntime and its like, without Python if need be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dac._version import __version__
from dac.api import Run
from dac.core.errors import needs_extra
from dac.export.graph import Graph, Step, describe
from dac.export.members import Actor, as_run, place, read_actor, write_new

OPSET, IR_VERSION = 20, 9
"""Of January 2024: opset 20 is the first with Gelu; every onnxruntime since 1.17 reads both."""


def to_onnx(
    run: Run | Path | str, path: Path | str | None = None, member: int | None = None, *, force: bool = False
) -> Path:
    """Write a member's policy, the best one's if None, as an ONNX file, and return its path.

    Input `obs` (batch, observation), output `action` (batch, action) in the environment's own range, both float32; a
    policy that draws its actions (Soft Q-Learning) has the second input `noise` (batch, action), standard normal.
    """
    run = as_run(run)
    actor = read_actor(run, member)
    path = place(run, actor, path, ".onnx")
    write_new({path: onnx_model(actor).SerializeToString()}, force)
    return path


def onnx_model(actor: Actor) -> Any:
    """Return an actor as a checked `onnx.ModelProto`."""
    with needs_extra("onnx", "export to onnx"):
        import onnx
    graph = describe(actor.policy, actor.spec, actor.bounds)
    writer = _Writer(graph)
    for step in graph.steps:
        NODES[step.operation](writer, step)
    writer.node("Identity", graph.output, output="action")

    def value(name: str, size: int) -> Any:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])

    inputs = [value(name, size) for name, size in graph.inputs.items()]
    outputs = [value("action", actor.spec.action_size)]
    body = onnx.helper.make_graph(writer.nodes, "policy", inputs, outputs, writer.constants)
    model = onnx.helper.make_model(
        body,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="dac",
        producer_version=__version__,
        doc_string=actor.title(),
    )
    texts = {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in actor.facts.items()}
    onnx.helper.set_model_props(model, texts)
    onnx.checker.check_model(model, full_check=True)
    return model


class _Writer:
    """Collects nodes and constants."""

    def __init__(self, graph: Graph):
        from onnx import numpy_helper

        self._from_array = numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants = [self._from_array(array, name) for name, array in graph.weights.items()]

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Append a node and return the name of its value."""
        from onnx import helper

        output = f"{kind.lower()}_{len(self.nodes)}" if output is None else output
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: np.ndarray) -> str:
        """Append a constant and return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._from_array(value, name))
        return name


def _plain(kind: str, **attributes: Any) -> Callable[[_Writer, Step], str]:
    """One node that takes the step's inputs as they are."""
    return lambda writer, step: writer.node(kind, *step.inputs, output=step.output, **attributes)


def _linear(writer: _Writer, step: Step) -> str:
    return writer.node("Gemm", *step.inputs, f"{step.name}_weight", f"{step.name}_bias", output=step.output)


def _layer_norm(writer: _Writer, step: Step) -> str:
    weights = f"{step.name}_scale", f"{step.name}_offset"
    eps = step.attributes["eps"]
    return writer.node("LayerNormalization", *step.inputs, *weights, output=step.output, axis=-1, epsilon=eps)


def _silu(writer: _Writer, step: Step) -> str:
    return writer.node("Mul", *step.inputs, writer.node("Sigmoid", *step.inputs), output=step.output)


def _first(writer: _Writer, step: Step) -> str:
    span = [writer.constant(np.array([value], np.int64)) for value in (0, step.attributes["count"], 1)]
    return writer.node("Slice", *step.inputs, *span, output=step.output)


def _clip(writer: _Writer, x: str, bound: float, output: str | None = None) -> str:
    low, high = (writer.constant(np.array(value, np.float32)) for value in (-bound, bound))
    return writer.node("Clip", x, low, high, output=output)


def _whiten(writer: _Writer, step: Step) -> str:
    centred = writer.node("Sub", *step.inputs, f"{step.name}_mean")
    return _clip(writer, writer.node("Div", centred, f"{step.name}_std"), step.attributes["bound"], step.output)


def _stretch(writer: _Writer, step: Step) -> str:
    scaled = writer.node("Mul", _clip(writer, step.inputs[0], 1.0), f"{step.name}_reach")
    above = writer.node("Max", writer.node("Add", scaled, f"{step.name}_middle"), f"{step.name}_low")
    return writer.node("Min", above, f"{step.name}_high", output=step.output)


NODES: dict[str, Callable[[_Writer, Step], str]] = {
    "linear": _linear,
    "layer_norm": _layer_norm,
    "relu": _plain("Relu"),
    "tanh": _plain("Tanh"),
    "elu": _plain("Elu"),
    "gelu": _plain("Gelu", approximate="tanh"),
    "silu": _silu,
    "add": _plain("Add"),
    "concat": _plain("Concat", axis=1),
    "first": _first,
    "whiten": _whiten,
    "stretch": _stretch,
}
"""Every operation of `dac/export/graph.py` as ONNX nodes."""
