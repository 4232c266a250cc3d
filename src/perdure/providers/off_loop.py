"""Blocking work off the event loop, in a thread of its own.

Unlike those of the loop's executor such a thread holds up nobody: a program may end while it still waits for a server.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")


def run_in_thread(work: Callable[[], _T], name: str) -> asyncio.Future[_T]:
    """Begin `work`; what it gives or raises can be awaited, and may go unheard."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_T] = loop.create_future()
    ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def live() -> None:
        try:
            settle: Callable[[], None] = partial(ended.set_result, work())
        except Exception as error:
            settle = partial(ended.set_exception, error)
        try:
            loop.call_soon_threadsafe(lambda: None if ended.done() else settle())
        except RuntimeError:  # the loop is closed: nobody is left to hear
            pass

    threading.Thread(target=live, name=name, daemon=True).start()
    return ended
