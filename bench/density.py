"""What does a bonus cost, as a share of the update it goes with? HalfCheetah's shapes, a window of 100,000 states.

The update is that of the fixed-sigma actor-critic alone, the cheapest one a bonus goes with. The bonus is one query or
one predictor step per update, and for the density one fit per 1000 updates.

python bench/density.py [--members 1,4] [--updates 20]
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
from common import report, seconds
from update import SPEC, random_batch, updates_per_second

from dac.algorithms import RandomNetworkDistillation, StateEntropy
from dac.algorithms.bonuses.base import AbstractBonus
from dac.core.population import each_member, grid, stack_keys


def bonus_seconds(bonus: AbstractBonus, members: int, updates: int) -> tuple[float, float, int]:
    """Seconds of one batch's bonus, seconds of one refresh, and bytes of state, for all members together."""
    keys = stack_keys(grid(range(members), {}))
    states = jax.jit(each_member(lambda k: bonus.init(k, SPEC)))(keys)
    refresh_time = 0.0
    if bonus.refresh_every:
        window = jax.vmap(lambda k: random_batch(k, bonus.refresh_window))(keys)
        filled = jnp.int32(bonus.refresh_window)
        refresh = jax.jit(each_member(lambda s, w: bonus.refresh(s, w, filled)))
        refresh_time = seconds(lambda: refresh(states, window), repeats=5)
        states = refresh(states, window)
        del window
    batches = jax.vmap(lambda k: jax.vmap(lambda j: random_batch(j, 256))(jax.random.split(k, updates)))(keys)

    @jax.jit
    def ask(states, batches):
        def one(state, batches):
            def body(state, batch):
                state, paid, _ = bonus.update(state, batch)
                return state, jnp.sum(paid)

            state, paid = jax.lax.scan(body, state, batches)
            # a window that no update changes is not handed back: that would be timed as a copy
            return None if bonus.refresh_every else state, jnp.sum(paid)

        return each_member(one)(states, batches)

    size = sum(leaf.nbytes for leaf in jax.tree.leaves(states))
    return seconds(lambda: ask(states, batches)) / updates, refresh_time, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", default="1,4")
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    bonuses = {"rnd": RandomNetworkDistillation(), "maxent-state": StateEntropy()}
    for members in (int(m) for m in options.members.split(",")):
        for name, bonus in bonuses.items():
            rates = [updates_per_second(name, members, options.updates, bonus="none")]
            query, fit, size = bonus_seconds(bonus, members, options.updates)
            rates.append(updates_per_second(name, members, options.updates, bonus="none"))
            update = members * 2 / sum(rates)
            report(
                f"bonus {name} x{members}",
                update_ms=1e3 * update,
                bonus_ms=1e3 * query,
                refresh_ms=1e3 * fit,
                share_of_update=(query + fit / 1000) / update,
                state_mib_per_member=size / members / 2**20,
            )


if __name__ == "__main__":
    main()
