"""Trains for a moment with every axis checked: `python -m tests.axes ALGORITHM [BONUS]`.

Annotations are checked by beartype in the rooms that compute on arrays, and rank promotion raises. It is a process of
its own, because an import hook must come before the first import of the package, and checks make tracing slow.
"""

import os
import sys
from pathlib import Path

import jax
import jaxtyping
from beartype import BeartypeConf, beartype

# a whole number is a float too, as for mypy
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
PACKAGE = Path(__file__).parents[1] / "dac"


def main(algorithm: str, bonus: str = "none") -> None:
    """Run both kinds of loop, evaluation and measurement; an annotation that does not hold raises."""
    from dac.algorithms import ALGORITHMS, AbstractOnPolicy, make_algorithm
    from dac.core.population import grid
    from dac.core.schedule import Schedule
    from dac.envs.mujoco import make_mujoco
    from dac.envs.probes import Target
    from dac.training.device import DeviceLoop
    from dac.training.host import HostLoop

    on_policy = issubclass(ALGORITHMS[algorithm].algorithm, AbstractOnPolicy)
    settings = {"hidden": (8, 8)} | ({"rollout": 40} if on_policy else {"batch_size": 16})
    settings |= {"minibatches": 4} if algorithm == "ppo" else {}
    settings |= {"adapt": True, "q_window": 30} if algorithm == "dac" else {}
    made = make_algorithm(algorithm, bonus if bonus != "none" else ALGORITHMS[algorithm].bonus, settings)
    random = 0 if on_policy else 20
    schedule = Schedule(120, 2, random, 40, 1, 80, 40, 40 if on_policy else 0)
    members = grid([0, 1, 2], {})
    for loop in (
        DeviceLoop(made, Target(), members, schedule),
        HostLoop(made, lambda num: make_mujoco("SparseHopper", num), members, schedule),
    ):
        loop.advance(50)
        loop.measure()
        loop.evaluate(2)
        loop.close()
    print("checked", algorithm, bonus)


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    rooms = [path for room in ("core", "algorithms", "training") for path in (PACKAGE / room).rglob("*.py")]
    annotated = [path for path in rooms if "jaxtyping" in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in annotated]
    import tests

    # the hook names this module
    tests.axes = sys.modules["tests.axes"] = sys.modules["__main__"]  # type: ignore[attr-defined]
    jaxtyping.install_import_hook(names, "tests.axes.check")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    main(*sys.argv[1:])
