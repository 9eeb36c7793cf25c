"""Messages to Python's logging, for runs without a progress bar."""

from __future__ import annotations

import logging

from dac.training.watchers import AbstractWatcher, Message


class Log(AbstractWatcher):
    """Sends warnings and other messages to the logger `dac`; Python prints the warnings unless it is told otherwise."""

    def on_message(self, message: Message) -> None:
        logging.getLogger("dac").log(logging.WARNING if message.warning else logging.INFO, message.text)
