"""Telling how far long work has come: a line that is redrawn in a terminal, a line now and then elsewhere."""

import time

from perdure.cli.console import BlockLine, Console

REDRAWN_EVERY = 0.1  # seconds
SAID_EVERY = 5.0


class Throttle:
    def __init__(self, talk: Console) -> None:
        self._talk = talk
        self._next = time.monotonic() + (0.0 if talk.is_live else SAID_EVERY)

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        if self._talk.is_live:
            self._talk.draw([BlockLine(text, has_spinner=True)])
            self._next = now + REDRAWN_EVERY
        else:
            self._talk.say(text)
            self._next = now + SAID_EVERY

    def done(self) -> None:
        self._talk.clear()
