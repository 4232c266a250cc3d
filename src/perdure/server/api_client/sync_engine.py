"""The client of a server for programs without an event loop: `perdure.connect_sync(url, token)`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.outcomes import Status
from perdure.server.api_client.remote_engine import RemoteEngine

T = TypeVar("T")


class SyncEngine:
    """The same for programs without an event loop: each method of `RemoteEngine`, waited for."""

    def __init__(self, url: str, token: str | None = None, *, ca: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-client", daemon=True)
        self._thread.start()
        self._engine = self._wait(_made(url, token, ca))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._engine.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, document: str | Path | bytes | Mapping[str, Any], input: Any = None, **more: Any) -> str:
        """The id of the run."""
        return self._wait(self._engine.start(document, input, **more)).id

    def result(self, run: str) -> Any:
        return self._wait(self._engine.handle(run).result())

    def status(self, run: str) -> Status:
        return self._wait(self._engine.handle(run).status())

    def show(self, run: str, at: int | None = None) -> Any:
        return self._wait(self._engine.show(run, at))

    def history(self, run: str, after: int = 0, *, raw: bool = False) -> list[dict[str, Any]]:
        return self._wait(self._engine.history(run, after, raw=raw))

    def events(self, run: str, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        events = self._engine.follow(run, raw=raw)
        while True:
            try:
                yield self._wait(_next(events))
            except StopAsyncIteration:
                return

    def effects(self, run: str) -> list[dict[str, Any]]:
        return self._wait(self._engine.effects(run))

    def settle_effect(self, run: str, effect: str, result: Any = None, *, done: bool) -> None:
        self._wait(self._engine.handle(run).settle_effect(effect, result, done=done))

    def resources(self, kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
        return self._wait(self._engine.resources(kind, namespace))

    def resource(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return self._wait(self._engine.resource(kind, name, namespace))

    def delete_resource(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return self._wait(self._engine.delete_resource(kind, name, namespace))

    def redrive(self, run: str, step: str = "", *, key: str | None = None) -> SendResult:
        return self._wait(self._engine.redrive(run, step, key=key))

    def signal(self, run: str, name: str, value: Any = None, *, key: str | None = None) -> SendResult:
        return self._wait(self._engine.signal(run, name, value, key=key))

    def cancel(self, run: str, reason: str = "") -> SendResult:
        return self._wait(self._engine.cancel(run, reason))

    def apply(self, documents: Sequence[str | Mapping[str, Any]], namespace: str = "") -> dict[str, Any]:
        return self._wait(self._engine.apply(documents, namespace))


async def _made(url: str, token: str | None, ca: str | None) -> RemoteEngine:
    return RemoteEngine(url, token, ca=ca)


async def _next(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    return await anext(events)


def connect_sync(url: str, token: str | None = None, *, ca: str | None = None) -> SyncEngine:
    """As `connect`, for programs without an event loop: `with perdure.connect_sync(url, token) as engine`."""
    return SyncEngine(url, token, ca=ca)
