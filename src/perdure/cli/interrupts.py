"""Ctrl-C and SIGTERM end the process in order: what is decided is committed, the rest waits for the next owner."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from typing import Any

from perdure.cli.exit_codes import Exit

SIGNALS: Mapping[int, Exit] = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


def complete(
    work: Coroutine[Any, Any, int], *, stopped: Exit | None = None, signals: Mapping[int, Exit] = SIGNALS
) -> int:
    """Run a verb to its end. A signal cancels it, and is then its exit code, unless there is a code for `stopped`; a
    second one ends the process at once.
    """
    return asyncio.run(_guarded(work, stopped, signals))


async def _guarded(work: Coroutine[Any, Any, int], stopped: Exit | None, signals: Mapping[int, Exit]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    caught: list[Exit] = []

    def stop(code: Exit) -> None:
        caught.append(code)
        for number in signals:
            loop.remove_signal_handler(number)
        task.cancel()

    for number, code in signals.items():
        loop.add_signal_handler(number, stop, code)
    try:
        return await task
    except asyncio.CancelledError:
        if caught:
            return caught[0] if stopped is None else stopped
        raise
