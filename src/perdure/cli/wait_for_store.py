"""Waiting for a store that cannot be reached yet, as a service does that is started together with its database."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from perdure.cli.console import Console
from perdure.kernel.json_values.values import SECOND
from perdure.views.errors import StoreLocked, StoreUnreachable
from perdure.views.times import span
from perdure.wiring import url_without_password

T = TypeVar("T")

TRY_EVERY = 2.0  # seconds
SAY_EVERY = 30.0  # seconds between two lines that say the same


async def opened(open: Callable[[], T], address: str, most: float | None, talk: Console) -> T:
    """What `open` gives, tried again while nothing answers, for at most so many seconds; None: however long it takes.

    Only for what may pass by itself: any other error is an error at once.
    """
    try:
        return await _tried(open, address, most, talk)
    except asyncio.CancelledError:
        talk.always(f"stopped before {url_without_password(address)} answered; nothing was changed")
        raise


async def _tried(open: Callable[[], T], address: str, most: float | None, talk: Console) -> T:
    began = said_at = monotonic()
    last_text = ""
    while True:
        try:
            result = await _aside(open)
        except (StoreUnreachable, StoreLocked) as error:
            now = monotonic()
            remaining = TRY_EVERY if most is None else began + most - now
            if remaining <= 0:
                raise
            text = str(error)
            if not last_text:
                bound = "" if most is None else f" for at most {_span(most)}"
                talk.always(f"waiting{bound} for a store that does not answer: {text}")
                talk.always(f"trying again every {TRY_EVERY:g} seconds; stop with Ctrl-C or SIGTERM")
                talk.always(f"{talk.paint('hint:', 'dim')} {error.advice}")
            elif text != last_text or now - said_at >= SAY_EVERY:
                talk.always(f"still waiting, for {_span(now - began)} now: {text}")
            else:
                now = said_at
            last_text, said_at = text, now
            await asyncio.sleep(min(TRY_EVERY, remaining))
        else:
            if last_text:
                talk.always(f"{url_without_password(address)} answers, after {_span(monotonic() - began)}")
            return result


def _span(seconds: float) -> str:
    return span(int(seconds * SECOND))


async def _aside(call: Callable[[], T]) -> T:
    """On a thread that nobody waits for: connecting to a silent machine takes long, and a signal ends us at once."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return  # whoever waited was cancelled
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name="perdure-opening", daemon=True).start()
    return await answer
