"""What several tests use: a short schedule, a tiny agent, a run that breaks off, and whether there is OpenGL."""

import dataclasses
import functools
import subprocess
import sys

import numpy as np

from dac.algorithms import DAC
from dac.core.schedule import Schedule
from dac.rundir.writing import Recorder
from dac.tasks import TASKS


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


def shrink_maze(patch):
    """Give the maze small networks by default, for tests that run the paper's own experiments on it."""
    maze = TASKS["maze"]
    small = dataclasses.replace(maze, hyper={**maze.hyper, "hidden": (16, 16), "batch_size": 32})
    patch.setitem(TASKS, "maze", small)


def interrupt_at(patch, step):
    """Break runs off when the evaluation of that step is to be written."""
    real = Recorder.append

    def failing(self, rows):
        if rows[0]["step"] == step:
            raise KeyboardInterrupt
        return real(self, rows)

    patch.setattr(Recorder, "append", failing)


def everything(loop, member=None):
    """All that a loop's future depends on, by name: of one member, or of all of them."""
    kept = max(0, loop.stored - loop.capacity)
    arrays = {name: np.asarray(array) for name, array in loop.snapshot().items()}
    arrays["replay"] = np.asarray(loop.latest_rows(kept))
    return arrays if member is None else {name: array[member] for name, array in arrays.items()}


@functools.cache
def can_draw() -> bool:
    """Whether this machine has OpenGL at all; asked in another process, where a failure leaves nothing behind."""
    program = (
        "import gymnasium; from dac.envs.registration import register; register();"
        "env = gymnasium.make('dac/Hopper-v0', render_mode='rgb_array'); env.reset(); env.render(); env.close()"
    )
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True).returncode == 0
