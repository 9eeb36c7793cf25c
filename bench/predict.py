"""What does `model.predict` cost on one observation, beside a network of the same size written in plain NumPy?

python bench/predict.py [--hidden 256,256] [--calls 2000] [--rounds 9]

HalfCheetah's shapes: 17 observation entries, 6 actions. Everything is measured in turns in one process, and the fastest
round counts: what else the machine does only adds. Stable-Baselines3 and SBX are measured where they are installed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from common import report

import dac


class Shapes(gym.Env):
    """An environment that has HalfCheetah's spaces and does nothing."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(17), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(17), 0.0, False, False, {}


def bare_network(sizes: list[int]) -> Callable[[np.ndarray], np.ndarray]:
    """A policy's network with ReLU and tanh, and nothing around it."""
    random = np.random.default_rng(0)
    shapes = itertools.pairwise(sizes)
    layers = [(random.normal(size=s, scale=0.1).astype(np.float32), np.zeros(s[1], np.float32)) for s in shapes]

    def act(obs: np.ndarray) -> np.ndarray:
        x = obs.astype(np.float32)
        for weight, bias in layers[:-1]:
            x = np.maximum(x @ weight + bias, 0)
        weight, bias = layers[-1]
        return np.tanh((x @ weight + bias)[:6])

    return act


def candidates(hidden: list[int]) -> dict[str, Callable[[np.ndarray], Any]]:
    model = dac.SAC(Shapes, hidden=hidden)
    found: dict[str, Callable[[np.ndarray], Any]] = {
        "numpy": bare_network([17, *hidden, 12]),
        "dac": model.predict,
        "dac, sampling": lambda obs: model.predict(obs, deterministic=False),
    }
    for package, name in (("stable_baselines3", "SB3"), ("sbx", "SBX")):
        if importlib.util.find_spec(package) is not None:
            peer = importlib.import_module(package).SAC("MlpPolicy", Shapes(), policy_kwargs={"net_arch": hidden})
            found[name] = lambda obs, peer=peer: peer.predict(obs, deterministic=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", default="256,256")
    parser.add_argument("--calls", type=int, default=2000, help="calls per round")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    obs = np.random.default_rng(1).normal(size=17)
    functions = candidates([int(size) for size in options.hidden.split(",")])
    best = dict.fromkeys(functions, np.inf)
    for _ in range(options.rounds):
        for name, function in functions.items():
            function(obs)
            start = time.perf_counter()
            for _ in range(options.calls):
                function(obs)
            best[name] = min(best[name], (time.perf_counter() - start) / options.calls)
    bare = best["numpy"]
    for name, seconds in best.items():
        figures = {"microseconds": 1e6 * seconds, "more_than_numpy": 1e6 * (seconds - bare), "ratio": seconds / bare}
        report(f"predict {name} {options.hidden}", **figures)


if __name__ == "__main__":
    main()
