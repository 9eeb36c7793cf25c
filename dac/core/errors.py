"""The one exception that is meant for a person. It lives apart so that a help text does not wait for JAX."""

from __future__ import annotations


class UsageError(ValueError):
    """The caller asked for something that does not exist or cannot be; the message is one line.

    A setting that would help is written as in Python, `out=` or `on_nan=freeze`; the command line makes it an option.
    """


def missing_extra(extra: str, what: str) -> UsageError:
    """Return the error that names the extra of this package without which something cannot be done."""
    return UsageError(f"{what} needs the extra {extra!r}: pip install 'diversity-actor-critic[{extra}]'")
