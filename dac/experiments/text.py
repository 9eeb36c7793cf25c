"""Numbers and durations as a person reads them."""

from __future__ import annotations

import re


def with_options(text: str) -> str:
    """Write the settings that an error names in backticks, `on_nan=freeze`, as options: --on-nan freeze."""
    return re.sub("`([a-z_]+)=([^`]*)`", lambda found: f"--{found[1].replace('_', '-')} {found[2]}".rstrip(), text)


def short(steps: float) -> str:
    """Three digits and a unit: 54M for 54,000,000 steps."""
    return f"{steps / 1e6:,.3g}M" if 1e6 <= steps < 1e9 else f"{steps / 1e9:,.3g}G" if steps >= 1e9 else f"{steps:,.0f}"


def duration(seconds: float) -> str:
    """Seconds, minutes, hours or days, whichever gives a small number."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} days"
