"""How fast is one update, alone and for a population? HalfCheetah's shapes: 17 / 6, two layers of 256, batch 256.

python bench/update.py [--members 1,4] [--algorithm dac] [--updates 20]
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import FLOPS_PER_UPDATE, matmul_flops, report, seconds
from jaxtyping import PyTree

from dac.algorithms import ALGORITHMS, make_algorithm
from dac.core.population import each_member, grid, stack_algorithms, stack_keys
from dac.core.types import EnvSpec, Transition

SPEC = EnvSpec(obs_size=17, action_size=6)


def random_batch(key: jax.Array, size: int) -> Transition:
    keys = jax.random.split(key, 4)
    obs, next_obs = (jax.random.normal(k, (size, SPEC.obs_size)) for k in keys[:2])
    action = jnp.tanh(jax.random.normal(keys[2], (size, SPEC.action_size)))
    zeros = jnp.zeros(size)
    return Transition(obs, action, jax.random.normal(keys[3], (size,)), zeros, zeros, next_obs)


def updater(name: str, members: int, updates: int, bonus: str | None = None, **settings: Any) -> Callable[[], PyTree]:
    """A function that makes `updates` updates in one dispatch, with the algorithm's own bonus or another."""
    population = grid(range(members), {})
    bonus = ALGORITHMS[name].bonus if bonus is None else bonus
    algorithms = stack_algorithms(make_algorithm(name, bonus, settings), population)
    keys = stack_keys(population)
    batch = jax.vmap(lambda k: random_batch(k, settings.get("batch_size", 256)))(keys)
    start = jax.jit(each_member(lambda a, k: a.init(k, SPEC)))(algorithms, keys)
    # a copy: the target starts as the same buffers as the network, and one buffer cannot be donated twice
    holder = [jax.tree.map(jnp.copy, start)]

    @functools.partial(jax.jit, donate_argnums=0)
    def run(states):
        def body(states, step):
            update = each_member(lambda a, s, b, k, t: a.update(s, b, jax.random.fold_in(k, t))[0], shared=(4,))
            return update(algorithms, states, batch, keys, step), None

        return jax.lax.scan(body, states, jnp.arange(updates))[0]

    def once():
        holder[0] = run(holder[0])
        return holder[0]

    return once


def updates_per_second(name: str, members: int, updates: int, bonus: str | None = None) -> float:
    """Agent-updates per second, of `updates` updates in one dispatch."""
    return members * updates / seconds(updater(name, members, updates, bonus))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="1,4")
    parser.add_argument("--algorithm", default="dac", choices=sorted(ALGORITHMS))
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    for members in (int(m) for m in options.members.split(",")):
        before = matmul_flops()
        rate = updates_per_second(options.algorithm, members, options.updates)
        peak = (before + matmul_flops()) / 2
        report(
            f"update {options.algorithm} x{members}",
            agent_updates_per_second=rate,
            matmul_gflops=peak / 1e9,
            ratio_to_matmul=FLOPS_PER_UPDATE * rate / peak,
        )


if __name__ == "__main__":
    main()
