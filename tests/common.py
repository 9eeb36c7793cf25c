"""What several tests use: a short schedule, a tiny agent, and whether there is something to draw with."""

import functools
import subprocess
import sys

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


@functools.cache
def can_draw() -> bool:
    """Whether this machine has OpenGL at all; asked in another process, where a failure leaves nothing behind."""
    program = (
        "import gymnasium; from dac.envs.registration import register; register();"
        "env = gymnasium.make('dac/Hopper-v0', render_mode='rgb_array'); env.reset(); env.render(); env.close()"
    )
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True).returncode == 0
