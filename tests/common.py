"""What several tests use: a short schedule and a tiny agent."""

from dac.algorithms import DAC
from dac.training.schedule import Schedule


def schedule(steps=150, **changes):
    values = {
        "steps": steps,
        "envs": 1,
        "random_steps": 20,
        "update_after": 50,
        "update_ratio": 1,
        "capacity": 120,
        "eval_every": 50,
    }
    return Schedule(**(values | changes))


def tiny(**changes):
    return DAC(hidden=(8, 8), batch_size=16, **changes)
