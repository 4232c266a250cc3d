"""The thread that waits for the disk, so that the event loop does not."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from perdure.stores.errors import StoreError

T = TypeVar("T")


class SyncThread:
    """Runs one call at a time. A call that was begun is always waited for, also when its caller is cancelled:
    nobody may touch the connection while it is in use here."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None]
        self._calls = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    async def run(self, call: Callable[[], T], cancelled: Callable[[], None] | None = None) -> T:
        """`cancelled` tells a call that may take long that nobody wants it any more."""
        if self._is_closed:
            raise StoreError("the store was closed")  # nobody would ever answer
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def hand_over(result: Any, error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                pass  # the loop was closed under us, as in a crash: nobody waits for the answer

        self._calls.put((call, hand_over))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if cancelled is not None:
                cancelled()
            await asyncio.wait([answer])
            answer.exception()  # nobody waits for it any more, and nobody has to be warned of that
            raise

    def close(self, wait: float | None = None) -> bool:
        """End after what was handed over; False when that takes longer than `wait` seconds. May be called again."""
        self._is_closed = True
        self._calls.put(None)
        self._thread.join(wait)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, hand_over = item
            try:
                result = call()
            except BaseException as error:
                hand_over(None, error)
            else:
                hand_over(result, None)
