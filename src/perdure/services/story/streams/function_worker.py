"""Workers that are Python functions: a coroutine function that reads messages, or a plain one that gets each (STR-091).

A plain function runs in a thread of its own. Nobody waits for that thread: a function that does not return is left
behind when its session ends, and what it would answer later does not count.
"""

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from perdure.services.story.streams.stream_session import CHANNEL
from perdure.services.story.streams.worker_context import InboundMessage, StreamContext, WorkerSession

SLICE = 0.005  # seconds that a plain function works through messages before their results are taken

Handled = tuple[int, Exception | None]


def is_plain(function: Callable[..., Any]) -> bool:
    return not inspect.iscoroutinefunction(function)


async def run_function(
    function: Callable[..., Any], config: Any, session: WorkerSession, context: StreamContext
) -> None:
    if is_plain(function):
        await _call_for_each(function, config, session, context)
    else:
        await function(*[config, session.messages(), context][: _parameters(function)])


def _parameters(function: Callable[..., Any]) -> int:
    return min(3, len(inspect.signature(function).parameters))


class _Thread:
    """Runs one call at a time."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Handled], asyncio.Future[Handled]] | None]
        self._calls = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def run(self, call: Callable[[], Handled]) -> "asyncio.Future[Handled]":
        answer: asyncio.Future[Handled] = self._loop.create_future()
        self._calls.put((call, answer))
        return answer

    def close(self) -> None:
        """End after the call that is at work."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, answer = item
            handled = call()
            try:
                self._loop.call_soon_threadsafe(_settle, answer, handled)
            except RuntimeError:  # the loop is closed: nobody is waiting
                return


def _settle(answer: "asyncio.Future[Handled]", handled: Handled) -> None:
    if not answer.done():
        answer.set_result(handled)


async def _call_for_each(
    function: Callable[..., Any], config: Any, session: WorkerSession, context: StreamContext
) -> None:
    """Call the function for every message; what it returns is published, then the message is done.

    At most as many messages as the channel holds are handed over at a time (STR-076).
    """
    count = _parameters(function)

    def handle(messages: list[InboundMessage]) -> Handled:
        """How many were handled before the time was over, and what the next one raised."""
        until = time.monotonic() + SLICE
        for place, message in enumerate(messages):
            context.message = message
            try:
                result = function(*[config, message, context][:count])
                if result is not None:
                    message.staged.append(session.answer({"payload": result}, message))
            except Exception as error:
                message.staged.clear()
                return place, error
            except BaseException as error:  # such as SystemExit: it ends the worker, not the thread
                message.staged.clear()
                return place, RuntimeError(f"the worker raised {type(error).__name__}: {error}")
            if time.monotonic() > until:
                return place + 1, None
        return len(messages), None

    thread = _Thread(f"perdure-stream {session.step}")
    try:
        while (first := await session.next()) is not None:
            waiting = [first, *session.take_some(CHANNEL - 1)]
            while waiting:
                handled, error = await thread.run(lambda messages=waiting: handle(messages))  # type: ignore[misc]
                session.note_life()
                for message in waiting[:handled]:
                    await session.finish(message)
                waiting = waiting[handled:]
                if error is not None:
                    session.put_back(waiting[1:])
                    raise error
                if session.is_stopping:
                    session.put_back(waiting)
                    return
    finally:
        thread.close()
