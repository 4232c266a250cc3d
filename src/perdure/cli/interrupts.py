"""Ctrl-C and SIGTERM end the process in order: what is decided is committed, the rest waits for the next owner."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from perdure.cli.exit_codes import Exit

_SIGNALS = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


def complete(work: Coroutine[Any, Any, int], *, stopped: Exit | None = None) -> int:
    """Run a verb to its end. A signal cancels it, and is then its exit code, unless there is a code for `stopped`; a
    second one ends the process at once.
    """
    return asyncio.run(_guarded(work, stopped))


async def _guarded(work: Coroutine[Any, Any, int], stopped: Exit | None) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    caught: list[Exit] = []

    def stop(code: Exit) -> None:
        caught.append(code)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        task.cancel()

    for number, code in _SIGNALS.items():
        loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError:
        if caught:
            return caught[0] if stopped is None else stopped
        raise
