"""Text for a person that may find nobody there: a closed pipe, a lost terminal, a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any, TextIO, cast


class Lasting:
    """A text stream that falls silent when it cannot be written to, so that what is being done goes on.

    It does what the stream does in every other way.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        self._try(self._stream.flush)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            # nobody will read it any more: the rest goes nowhere, also what Python writes when it ends
            if error.errno in (errno.EPIPE, errno.EIO):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    nowhere = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nowhere, self._stream.fileno())
                    os.close(nowhere)


def lasting(stream: TextIO) -> TextIO:
    """Return the stream as one whose failure stops nothing."""
    return cast("TextIO", Lasting(stream))
