"""Those who wait for a run to end. A waiting run itself need not be in memory for that."""

import asyncio

from perdure.kernel.errors import PerdureError
from perdure.kernel.outcomes import Outcome, Status
from perdure.kernel.values import RunId

Ended = tuple[Status, Outcome]


class Waiters:
    def __init__(self) -> None:
        self._futures: dict[RunId, list[asyncio.Future[Ended]]] = {}

    def wait(self, run: RunId) -> "asyncio.Future[Ended]":
        future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(run, []).append(future)
        return future

    def leave(self, run: RunId, future: "asyncio.Future[Ended]") -> None:
        waiting = self._futures.get(run, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._futures[run]

    def settle(self, run: RunId, ended: Ended) -> None:
        for future in self._futures.pop(run, ()):
            if not future.done():
                future.set_result(ended)

    def fail(self, reason: PerdureError) -> None:
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(reason)
                    future.exception()  # whoever still waits sees it; nobody has to
        self._futures.clear()
