"""A type checker finds what is wrong in a user's program, and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).with_name("sample.py")


def test_a_program_is_checked_from_outside(tmp_path):
    """With the settings of a user, not ours: every line marked as wrong is found, for that reason."""
    root = Path(__file__).parents[2]
    (tmp_path / "program.py").write_text(SAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    skipped = ", ".join(
        f"{name}.*" for name in ("jax", "jaxlib", "jaxtyping", "equinox", "optax", "rich", "safetensors")
    )
    settings = f"[mypy]\nfollow_imports = silent\n[mypy-{skipped.replace(', ', ',')}]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings + "ignore_missing_imports = true\n")
    arguments = ["--config-file", "mypy.ini", "--cache-dir", str(root / ".mypy_cache" / "sample"), "program.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        cwd=tmp_path,
        env={"MYPYPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
    )
    found = {}
    for line in done.stdout.splitlines():
        if match := re.fullmatch(r"program\.py:(\d+): error: (.*)", line):
            found[int(match[1])] = match[2]
    wrong = {
        number: line.partition("# error: ")[2]
        for number, line in enumerate(SAMPLE.read_text(encoding="utf-8").splitlines(), 1)
        if "# error: " in line
    }
    assert found.keys() == wrong.keys(), done.stdout + done.stderr
    for number, reason in wrong.items():
        assert reason in found[number]
