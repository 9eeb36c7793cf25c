"""The one exception that is meant for a person. It lives apart so that a help text does not wait for JAX."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


class UsageError(ValueError):
    """The caller asked for something that does not exist or cannot be; the message is one line.

    A setting that would help is written as in Python, `out=` or `on_nan=freeze`; the command line makes it an option.
    """


def did_you_mean(name: object, accepted: Iterable[str]) -> str:
    """Return a hint at the nearest of the accepted names, to put behind what an error says; empty if none is near."""
    close = difflib.get_close_matches(str(name), list(accepted), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def missing_extra(extra: str, what: str) -> UsageError:
    """Return the error that names the extra of this package without which something cannot be done."""
    return UsageError(f"{what} needs the extra {extra!r}: pip install 'diversity-actor-critic[{extra}]'")


@contextlib.contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import what an extra brings inside of this, and an import that fails is one line that names the extra.

    A library that is there and cannot be imported, because something that it needs is missing or does not fit, is
    said to be so: installing the extra again may mend that, but one has to know.
    """
    try:
        yield
    except ModuleNotFoundError:
        raise missing_extra(extra, what) from None
    except ImportError as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(f"{missing_extra(extra, what)} (it is there, but cannot be imported: {why})") from error
