"""A policy as a file of weights and a page of Python that needs NumPy and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from dac._version import __version__
from dac.api import Run
from dac.export.graph import OPERATIONS, Graph, describe
from dac.export.members import Actor, as_run, place, read_actor, write_new

PAGE = '''"""{title}; written by dac {version}.

    from {module} import Policy
    policy = Policy()               # its weights are in {weights}, beside this page
    action = policy.act(obs)        # obs ({obs_size},) or (batch, {obs_size}), the environment's own, laid out flat

The action has the entries of the environment's, in the environment's own range:

    from {low}
    to {high}
{more}"""

from pathlib import Path

import numpy as np


class Policy:
    """The policy's best guess; it needs NumPy and nothing else."""

    def __init__(self, path=Path(__file__).with_name("{weights}")):
        with np.load(path, allow_pickle=False) as file:
            self.weights = dict(file)
{state}
    def act(self, {arguments}):
        w, obs = self.weights, np.asarray(obs, np.float32)
        if obs.shape[-1:] != ({obs_size},):
            raise ValueError(f"an observation has {obs_size} entries; got the shape {{obs.shape}}")
{body}
        return {output}
{helpers}'''
LAYER_NORM = '''

def layer_norm(x, scale, offset, eps):
    """The entries of x with mean 0 and variance 1, scaled and moved."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(eps)) * scale + offset
'''
NOISE = """        if noise is None:
            noise = self.random.standard_normal((*obs.shape[:-1], {size}))
        noise = np.asarray(noise, np.float32)
"""


def to_numpy(
    run: Run | Path | str, path: Path | str | None = None, member: int | None = None, *, force: bool = False
) -> Path:
    """Write a member's policy, the best one's if None, as NAME.npz with NAME.py beside it; return the first's path."""
    run = as_run(run)
    actor = read_actor(run, member)
    stem = place(run, actor, path, "")
    stem = stem.with_suffix("") if stem.suffix in (".npz", ".py") else stem
    path = stem.with_name(stem.name + ".npz")
    graph = describe(actor.policy, actor.spec, actor.bounds)
    write_new(
        {path: weights_file(graph), stem.with_name(stem.name + ".py"): numpy_page(actor, graph, path).encode()}, force
    )
    return path


def weights_file(graph: Graph) -> bytes:
    """Return the content of the file of weights."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **graph.weights)
    return buffer.getvalue()


def numpy_page(actor: Actor, graph: Graph, path: Path) -> str:
    """Return the page for an actor whose weights are at `path`."""
    lines = [
        f"{step.output} = {OPERATIONS[step.operation].format(*step.inputs, name=step.name, **step.attributes)}"
        for step in graph.steps
    ]
    noisy = "noise" in graph.inputs
    return PAGE.format(
        title=actor.title(),
        version=__version__,
        module=path.stem,
        weights=path.name,
        low=actor.bounds.low.tolist(),
        high=actor.bounds.high.tolist(),
        more="\nThe policy draws its actions: give `noise`, standard normal, or it is drawn anew.\n" if noisy else "",
        state="        self.random = np.random.default_rng()\n" if noisy else "",
        arguments="obs, noise=None" if noisy else "obs",
        body=(NOISE.format(size=actor.spec.action_size) if noisy else "") + "\n".join(f"        {x}" for x in lines),
        output=graph.output,
        helpers=LAYER_NORM if any(step.operation == "layer_norm" for step in graph.steps) else "",
        obs_size=actor.spec.obs_size,
    )
