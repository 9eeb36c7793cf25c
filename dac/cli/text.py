"""How the command line writes what an error names."""

from __future__ import annotations

import re


def with_options(text: str) -> str:
    """Write the settings that an error names in backticks, `on_nan=freeze`, as options: --on-nan freeze."""
    return re.sub("`([a-z_]+)=([^`]*)`", lambda found: f"--{found[1].replace('_', '-')} {found[2]}".rstrip(), text)
