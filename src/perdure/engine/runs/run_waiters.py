"""Those who wait for a run to end. A waiting run itself need not be in memory for that."""

import asyncio
from collections.abc import Callable

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Outcome, Status

Ended = tuple[Status, Outcome]


class RunWaiters:
    def __init__(self) -> None:
        self._futures: dict[RunId, list[asyncio.Future[Ended | None]]] = {}
        self.listener: Callable[[RunId, Ended], None] | None = None  # hears of every end

    def wait(self, run: RunId) -> "asyncio.Future[Ended | None]":
        """How the run ends; None when it is worth looking again, because it may have another owner now."""
        future: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(run, []).append(future)
        return future

    def leave(self, run: RunId, future: "asyncio.Future[Ended | None]") -> None:
        waiting = self._futures.get(run, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._futures[run]

    def settle(self, run: RunId, result: Ended | None) -> None:
        if self.listener is not None and result is not None:
            self.listener(run, result)
        for future in self._futures.pop(run, ()):
            if not future.done():
                future.set_result(result)

    def look_again(self) -> None:
        """Some runs are not ours any more; which ones those who wait find out themselves."""
        for run in list(self._futures):
            self.settle(run, None)

    def fail(self, reason: PerdureError) -> None:
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(reason)
                    future.exception()  # whoever still waits sees it; nobody has to
        self._futures.clear()
