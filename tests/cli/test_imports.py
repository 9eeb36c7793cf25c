"""What is quick stays quick: a help text, `import dac` and a worker process wait for no library they do not need."""

import json
import subprocess
import sys

import pytest

HEAVY = ["jax", "equinox", "optax", "gymnasium", "mujoco", "matplotlib", "scipy"]


def loaded_by(statement):
    """Which of the heavy libraries a fresh process has loaded after a statement."""
    program = f"import json, sys\n{statement}\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def command(words):
    return f"from dac.cli import main\ntry: main({words.split()!r})\nexcept SystemExit: pass"


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("import dac", []),
        (command("--help"), []),
        (command("--version"), []),
        (command("list"), []),
        (command("completion bash"), []),
        (command("completion --for tr"), []),
        (command("list tasks"), []),
        ("import dac.envs.gymnasium", ["gymnasium"]),
        ("import dac.envs.workers", ["gymnasium"]),  # all that a worker process loads
        (command("list algorithms"), ["jax", "equinox", "optax"]),
        (command("train --help"), ["jax", "equinox", "optax"]),
        (command("train dac maze --help"), ["jax", "equinox", "optax"]),
    ],
)
def test_only_what_is_needed_is_loaded(statement, needed):
    assert loaded_by(statement) == needed
