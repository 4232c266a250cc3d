"""A client of a server with the interface of the embedded engine: `perdure.connect(url, token)`.

It knows the API by its routes, and needs none of the packages of a server.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from perdure.engine.handle import RunFailed
from perdure.kernel import jsontext
from perdure.kernel.errors import PerdureError
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status
from perdure.kernel.values import RunId
from perdure.views.api_errors import ApiError

API = "/api/v1"
POLL = 30  # seconds that one request waits for a result

T = TypeVar("T")


def error_of(status: int, body: Any) -> PerdureError:
    """The error that the embedded engine would have raised, by its code."""
    problem = body if isinstance(body, dict) else {}
    message = str(problem.get("detail") or f"the server answered {status}")
    hint = str(problem.get("hint") or "")
    facts = {"problems": problem["problems"]} if "problems" in problem else {}
    kind = next((kind for kind in _kinds(PerdureError) if kind.code == problem.get("code")), None)
    if kind is None or kind is PerdureError or kind is RunFailed:
        error = ApiError(message, hint=hint, **facts)
        error.__dict__["status"] = status
        return error
    error_of_kind = kind.__new__(kind)
    PerdureError.__init__(error_of_kind, message, hint=hint, **facts)
    return error_of_kind


def _kinds(kind: type[PerdureError]) -> list[type[PerdureError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in _kinds(below))]


class RemoteEngine:
    """An engine behind a server: `async with perdure.connect(url, token) as engine`."""

    def __init__(self, url: str, token: str | None = None, *, ca: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        verify: Any = True if ca is None else ca
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, verify=verify, timeout=httpx.Timeout(POLL + 30, connect=10), trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request of the API; what it answers, or the error that it is refused with."""
        content = None if body is None else jsontext.encode(body)
        sent = headers | ({} if content is None else {"Content-Type": "application/json"})
        try:
            reply = await self._http.request(method, path, content=content, headers=sent)
        except httpx.TransportError as error:
            raise ApiError(
                f"the server cannot be reached: {error}", hint="Check its address, and that it runs."
            ) from None
        value = jsontext.decode(reply.content) if reply.content else None
        if reply.status_code >= 400:
            raise error_of(reply.status_code, value)
        return value

    # Starting.

    async def start(
        self,
        document: str | Path | bytes | Mapping[str, Any],
        input: Any = None,
        *,
        name: str | None = None,
        chosen: str = "",
        applied: Sequence[str] = (),
        token: str | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> "RemoteHandle":
        """Start a document; answers once the start is on disk. The same token starts the same run only once."""
        body: dict[str, Any] = {"document": _text(document), "input": input, "labels": dict(labels or {})}
        body |= {"apply": list(applied)} if applied else {}
        body |= {"token": token} if token is not None else {}
        body |= {"name": chosen} if chosen else {}
        body |= {"namespace": namespace} if namespace is not None else {}
        started = await self.call("POST", f"{API}/runs", body)
        return RemoteHandle(self, RunId(started["id"]))

    async def start_named(
        self, name: str, input: Any = None, *, token: str | None = None, namespace: str | None = None
    ) -> "RemoteHandle":
        """Start a document of the catalog."""
        body: dict[str, Any] = {"name": name, "input": input} | ({"token": token} if token is not None else {})
        body |= {"namespace": namespace} if namespace is not None else {}
        return RemoteHandle(self, RunId((await self.call("POST", f"{API}/runs", body))["id"]))

    def handle(self, run: str) -> "RemoteHandle":
        return RemoteHandle(self, RunId(run))

    # Looking.

    async def show(self, run: str, at: int | None = None) -> Any:
        return await self.call("GET", f"{_run(run)}/picture{f'?at={at}' if at is not None else ''}")

    async def history(self, run: str, after: int = 0, *, raw: bool = False) -> list[dict[str, Any]]:
        """Everything recorded after event `after`, by page."""
        events: list[dict[str, Any]] = []
        while True:
            mode = "true" if raw else "false"
            page = await self.call("GET", f"{_run(run)}/events?after={after}&limit=1000&raw={mode}")
            events += page["items"]
            if "next" not in page:
                return events
            after = page["next"]

    async def follow(self, run: str, after: int = 0, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]:
        """The history as it grows, until the run has ended; a connection that breaks is made anew."""
        path = f"{_run(run)}/events?raw={'true' if raw else 'false'}"
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
            try:
                async with self._http.stream("GET", path, headers=headers) as reply:
                    if reply.status_code == 204:
                        return
                    if reply.status_code >= 400:
                        raise error_of(reply.status_code, jsontext.decode(await reply.aread()))
                    async for line in reply.aiter_lines():
                        if line.startswith("data: "):
                            event = jsontext.decode(line.removeprefix("data: "))
                            after = event["seq"]
                            yield event
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            if Status((await self.call("GET", _run(run)))["status"]).is_final:
                return

    async def runs(self, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Runs that match, the latest first, page after page."""
        given = "&".join(f"{name}={quote(value)}" for name, value in filters.items())
        cursor = ""
        while True:
            page = await self.call("GET", f"{API}/runs?{given}{cursor}")
            for item in page["items"]:
                yield item
            if "next" not in page:
                return
            cursor = f"&cursor={page['next']}"

    # Steering.

    async def cancel(self, run: str, reason: str = "", *, cascade: bool = False) -> dict[str, Any]:
        return await self._steer(run, "cancel", {"reason": reason, "cascade": cascade})

    async def signal(self, run: str, name: str, value: Any = None, *, key: str | None = None) -> dict[str, Any]:
        body = {"value": value} | ({"key": key} if key is not None else {})
        return await self._steer(run, f"signals/{quote(name, safe='')}", body)

    async def redrive(self, run: str, step: str = "", *, key: str | None = None) -> dict[str, Any]:
        return await self._steer(run, "redrive", {"from": step} | ({"key": key} if key is not None else {}))

    async def fork(self, run: str, at: int | None = None) -> "RemoteHandle":
        forked = await self._steer(run, "fork", {} if at is None else {"at": at})
        return RemoteHandle(self, RunId(forked["id"]))

    async def _steer(self, run: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        sent: dict[str, Any] = await self.call("POST", f"{_run(run)}/{verb}", body)
        return sent

    async def apply(self, documents: Sequence[str | Mapping[str, Any]], namespace: str = "") -> dict[str, Any]:
        """Put what these documents declare into the catalog, all or nothing."""
        applied: dict[str, Any] = await self.call(
            "POST", f"{API}/resources:apply", {"documents": list(documents), "namespace": namespace}
        )
        return applied


class RemoteHandle:
    """A run behind a server."""

    def __init__(self, engine: RemoteEngine, id: RunId) -> None:
        self._engine = engine
        self.id = id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self) -> Any:
        """The value the run ends with; raises `RunFailed` when it ends otherwise."""
        while True:
            ended = await self._engine.call("GET", f"{_run(self.id)}/result?wait={POLL}")
            status = Status(ended["status"])
            if status.has_result and "value" in ended:
                return ended["value"]
            if status.is_final and "error" in ended:
                raise RunFailed(self.id, status, _outcome(ended["error"]))

    async def status(self) -> Status:
        return Status((await self._engine.call("GET", _run(self.id)))["status"])

    async def cancel(self, reason: str = "") -> dict[str, Any]:
        return await self._engine.cancel(self.id, reason)

    async def pause(self, reason: str = "") -> dict[str, Any]:
        return await self._engine._steer(self.id, "pause", {"reason": reason})

    async def unpause(self, reason: str = "") -> dict[str, Any]:
        return await self._engine._steer(self.id, "resume", {"reason": reason})

    async def signal(self, name: str, value: Any = None, *, key: str | None = None) -> dict[str, Any]:
        return await self._engine.signal(self.id, name, value, key=key)

    async def show(self, at: int | None = None) -> Any:
        return await self._engine.show(self.id, at)

    async def history(self, *, raw: bool = False) -> list[dict[str, Any]]:
        return await self._engine.history(self.id, raw=raw)

    async def events(self, *, raw: bool = False) -> AsyncIterator[dict[str, Any]]:
        async for event in self._engine.follow(self.id, raw=raw):
            yield event


def _outcome(error: Any) -> Outcome:
    if not isinstance(error, dict):
        return Cancelled()
    if error.get("code") == "Cancelled":
        return Cancelled(str(error.get("message", "")))
    return Failed(str(error.get("code", "")), str(error.get("message", "")))


def _run(run: str) -> str:
    return f"{API}/runs/{quote(run, safe='')}"


def _text(document: str | Path | bytes | Mapping[str, Any]) -> Any:
    """A path is read here; the server has other files."""
    match document:
        case bytes():
            return document.decode()
        case str() | Path():
            return Path(document).read_text("utf-8")
        case _:
            return dict(document)


def connect(url: str, token: str | None = None, *, ca: str | None = None) -> RemoteEngine:
    """The engine behind a server; `ca` is a file with the authority that its certificate is from."""
    return RemoteEngine(url, token, ca=ca)


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

    def signal(self, run: str, name: str, value: Any = None, *, key: str | None = None) -> dict[str, Any]:
        return self._wait(self._engine.signal(run, name, value, key=key))

    def cancel(self, run: str, reason: str = "") -> dict[str, Any]:
        return self._wait(self._engine.cancel(run, reason))

    def apply(self, documents: Sequence[str | Mapping[str, Any]], namespace: str = "") -> dict[str, Any]:
        return self._wait(self._engine.apply(documents, namespace))


async def _made(url: str, token: str | None, ca: str | None) -> RemoteEngine:
    return RemoteEngine(url, token, ca=ca)


async def _next(events: AsyncIterator[dict[str, Any]]) -> dict[str, Any]:
    return await anext(events)


def connect_sync(url: str, token: str | None = None, *, ca: str | None = None) -> SyncEngine:
    return SyncEngine(url, token, ca=ca)
