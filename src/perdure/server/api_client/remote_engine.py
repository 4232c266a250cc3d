"""A client of a server with the interface of the embedded engine: `perdure.connect(url, token)`.

It knows the API by its routes, and needs none of the packages of a server.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx

from perdure.engine.handle import RunFailed
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status
from perdure.kernel.pause import PAUSE, RESUME
from perdure.server.api_client.server_connection import (
    API,
    POLL,
    RetryPauses,
    ServerConnection,
    decode_answer,
    read_answer,
    read_lines,
)
from perdure.views.api_errors import ApiError

START_OPTIONS = {"args": "arguments", "entry_step": "target", "env": "env", "traceparent": "traceparent"}
"""Options of a start, and how the API names them."""


class RemoteEngine(ServerConnection):
    """An engine behind a server: `async with perdure.connect(url, token) as engine`."""

    # Starting.

    async def start(
        self,
        document: str | Path | bytes | Mapping[str, Any],
        input: Any = None,
        *,
        name: str | None = None,
        chosen: str = "",
        applied: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
        token: str | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> "RemoteHandle":
        """Start a document; answers once the start is on disk. The same token starts the same run only once.

        `applied` are texts that the document may refer to. `options`: `args`, `entry_step`, `env`, `traceparent`.
        """
        body: dict[str, Any] = {"document": _text(document)}
        body |= {"default_name": _name_of(document, name)} if _name_of(document, name) else {}
        body |= {"apply": [getattr(text, "text", text) for text in applied]} if applied else {}
        body |= {"name": chosen} if chosen else {}
        return await self._start(body, input, options, token, labels, namespace)

    async def start_named(
        self,
        name: str,
        input: Any = None,
        *,
        options: Mapping[str, Any] | None = None,
        token: str | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> "RemoteHandle":
        """Start a document of the catalog."""
        return await self._start({"name": name}, input, options, token, labels, namespace)

    async def _start(
        self,
        body: dict[str, Any],
        input: Any,
        options: Mapping[str, Any] | None,
        token: str | None,
        labels: Mapping[str, str] | None,
        namespace: str | None,
    ) -> "RemoteHandle":
        members = dict(options or {})
        body |= {"input": input, "labels": dict(labels or {})}
        body |= {"token": token} if token is not None else {}
        body |= {"namespace": namespace} if namespace is not None else {}
        body |= {ours: members.pop(name) for name, ours in START_OPTIONS.items() if name in members}
        if members:
            raise ApiError(f"a server takes no option {next(iter(members))!r} of a start", hint="Leave it out.")
        started = await self.call("POST", f"{API}/runs", body, key=secrets.token_hex(16))
        return RemoteHandle(self, RunId(started["id"]))

    async def check(
        self,
        document: str | Path | bytes | Mapping[str, Any],
        *,
        applied: Sequence[Any] = (),
        chosen: str = "",
        namespace: str | None = None,
    ) -> list[dict[str, Any]]:
        """The problems of a document and its warnings; nothing is stored."""
        checked = await self.check_whole(document, applied=applied, chosen=chosen, namespace=namespace)
        return [*checked["problems"], *checked["warnings"]]

    async def check_whole(
        self,
        document: str | Path | bytes | Mapping[str, Any],
        *,
        applied: Sequence[Any] = (),
        chosen: str = "",
        namespace: str | None = None,
    ) -> dict[str, Any]:
        """All that a check tells: `language`, `valid`, `problems`, `warnings`, `findings` and `graph`."""
        body: dict[str, Any] = {"document": _text(document), "apply": [getattr(text, "text", text) for text in applied]}
        body |= {"name": chosen} | ({"namespace": namespace} if namespace is not None else {})
        checked: dict[str, Any] = await self.call("POST", f"{API}/check", body)
        return checked

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
        pauses = RetryPauses(None)
        is_lost = False
        while True:
            before = after
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
            try:
                async with self.http.stream("GET", path, headers=headers) as reply:
                    if reply.status_code == 204:  # the run has ended, and everything was told
                        return
                    if reply.status_code >= 400 and reply.status_code != 503:
                        self.read(reply.status_code, reply.headers, await read_answer(reply))
                    if reply.status_code == 200:
                        if is_lost:
                            self.say(f"{self.url} answers again")
                        is_lost = False
                        pauses = RetryPauses(None)
                        self.was_reached = True
                        async for line in read_lines(reply):
                            if line.startswith("data: "):
                                event = decode_answer(line.removeprefix("data: ").encode())
                                after = event["seq"]
                                yield event
            except httpx.TransportError as error:
                if not self.was_reached:
                    raise self.unreachable(error) from None
            if after > before:
                continue  # whether that was all is asked at once
            if not is_lost:
                self.say(f"the connection to {self.url} is lost; trying again (Ctrl-C stops this command, not the run)")
            is_lost = True
            await pauses.pause()

    async def runs(self, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Runs that match, the latest first, page after page."""
        async for item in self.pages(f"{API}/runs", list(filters.items())):
            yield item

    async def pages(self, path: str, parameters: Sequence[tuple[str, Any]] = ()) -> AsyncIterator[dict[str, Any]]:
        """The items of a list, page after page."""
        more: list[tuple[str, Any]] = []
        while True:
            page = await self.call("GET", f"{path}?{urlencode([*parameters, *more])}")
            for item in page["items"]:
                yield item
            if "next" not in page:
                return
            more = [("cursor", page["next"])]

    async def effects(self, run: str) -> list[dict[str, Any]]:
        """What its tasks have done to the outside, each with its `state`; those `in_doubt` may have happened."""
        return [effect async for effect in self.pages(f"{_run(run)}/effects")]

    async def resources(self, kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """What the catalog has of a kind."""
        place = "" if namespace is None else f"/{quote(namespace, safe='')}"
        return [item async for item in self.pages(f"{API}/resources/{quote(kind, safe='')}{place}")]

    async def resource(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """An entry of the catalog."""
        resource: dict[str, Any] = await self.call("GET", _resource(kind, namespace, name))
        return resource

    async def delete_resource(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Delete an entry of the catalog."""
        deleted: dict[str, Any] = await self.call("DELETE", _resource(kind, namespace, name))
        return deleted

    # Steering.

    async def cancel(self, run: str, reason: str = "", *, cascade: bool = False) -> SendResult:
        return await self._send(run, "cancel", {"reason": reason, "cascade": cascade})

    async def signal(
        self, run: str, name: str, value: Any = None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        return await self._send(run, f"signals/{quote(name, safe='')}", {"value": value}, key, by)

    async def steer(self, run: str, verb: str, body: Any = None, *, key: str | None = None, by: str = "") -> SendResult:
        """A decision on a gate, a patch of a ctx, a pause, or its end."""
        match verb:
            case "gate":
                decision = {"state": body["state"], "message": body.get("message", "")}
                return await self._send(run, f"gates/{quote(body['step'], safe='')}", decision, key, by)
            case "patch":
                return await self._send(run, "patch", {"ctx": body["ctx"], "reason": body.get("reason", "")}, key, by)
            case _ if verb in (PAUSE, RESUME):
                path = "pause" if verb == PAUSE else "resume"
                return await self._send(run, path, {"reason": (body or {}).get("reason", "")}, key, by)
            case _:
                raise ApiError(f"a server takes no {verb!r}", hint="Follow docs/reference/api.md.")

    async def redrive(self, run: str, step: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._send(run, "redrive", {"from": step}, key, by)

    async def settle(
        self, run: str, effect: str, result: bytes | None, *, key: str | None = None, by: str = ""
    ) -> SendResult:
        """Say what came of an effect in doubt: its result as JSON text, or None when it was not performed."""
        body = {"done": False} if result is None else {"done": True, "result": jsontext.decode(result)}
        return await self._send(run, f"effects/{quote(effect, safe='')}/settle", body, key, by)

    async def fork(self, run: str, at: int | str | None = None, **more: Any) -> "RemoteHandle":
        """`at`: the number of an event, or a time. `at_failure=True`: where it failed, with another `input`."""
        body = more | ({} if at is None else {"at": at})
        forked = await self.call("POST", f"{_run(run)}/fork", body, key=secrets.token_hex(16))
        return RemoteHandle(self, RunId(forked["id"]))

    async def delete(self, run: str) -> SendResult:
        """Remove an ended run and all below it."""
        await self.call("DELETE", _run(run))
        return SendResult(True, True)

    async def _send(
        self, run: str, verb: str, body: dict[str, Any], key: str | None = None, by: str = ""
    ) -> SendResult:
        body |= ({"key": key} if key is not None else {}) | ({"by": by} if by else {})
        sent = await self.call("POST", f"{_run(run)}/{verb}", body, key=secrets.token_hex(16))
        return SendResult(sent["decided"], sent["live"], sent["new"], tuple(sent["remarks"]))

    async def apply(
        self,
        documents: Sequence[Any],
        namespace: str = "",
        *,
        dry_run: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Put what these documents declare into the catalog, all or nothing.

        Each is a text, a mapping, or an `AppliedDocument`, which has the name of its file: a Flow is called like it.
        """
        files = [getattr(document, "file", f"apply[{place}]") for place, document in enumerate(documents)]
        texts = [getattr(document, "text", document) for document in documents]
        body: dict[str, Any] = {"documents": texts, "files": files, "namespace": namespace, "dry_run": dry_run}
        body |= {"labels": dict(labels)} if labels else {}
        applied: dict[str, Any] = await self.call("POST", f"{API}/resources:apply", body, key=secrets.token_hex(16))
        return applied


class RemoteHandle:
    """A run behind a server."""

    def __init__(self, engine: RemoteEngine, id: RunId) -> None:
        self._engine = engine
        self.id = id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self, timeout: float | None = None) -> Any:
        """The value the run ends with; raises `RunFailed` when it ends otherwise.

        `timeout`: after so many seconds `TimeoutError` is raised; the run goes on.
        """
        try:
            return await asyncio.wait_for(self._result(), timeout)
        except TimeoutError:
            raise TimeoutError(f"run {self.id} has not ended within {timeout} s") from None

    async def _result(self) -> Any:
        while True:
            ended = await self._engine.call("GET", f"{_run(self.id)}/result?wait={POLL}")
            status = Status(ended["status"])
            if status.has_result and "value" in ended:
                return ended["value"]
            if status.is_final and "error" in ended:
                raise RunFailed(self.id, status, _outcome(ended["error"]))

    async def status(self) -> Status:
        return Status((await self._engine.call("GET", _run(self.id)))["status"])

    async def cancel(self, reason: str = "", by: str = "") -> SendResult:
        return await self._engine.cancel(self.id, reason)

    async def pause(self, reason: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._engine.steer(self.id, PAUSE, {"reason": reason}, key=key, by=by)

    async def unpause(self, reason: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._engine.steer(self.id, RESUME, {"reason": reason}, key=key, by=by)

    async def approve(self, step: str, message: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._decide(step, "Approved", message, key, by)

    async def reject(self, step: str, message: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._decide(step, "Rejected", message, key, by)

    async def _decide(self, step: str, state: str, message: str, key: str | None, by: str) -> SendResult:
        decision = {"step": step, "state": state, "message": message}
        return await self._engine.steer(self.id, "gate", decision, key=key, by=by)

    async def patch(
        self, ctx: Mapping[str, Any], *, reason: str = "", key: str | None = None, by: str = ""
    ) -> SendResult:
        return await self._engine.steer(self.id, "patch", {"ctx": dict(ctx), "reason": reason}, key=key, by=by)

    async def redrive(self, step: str = "", *, key: str | None = None, by: str = "") -> SendResult:
        return await self._engine.redrive(self.id, step, key=key, by=by)

    async def signal(self, name: str, value: Any = None, *, key: str | None = None, by: str = "") -> SendResult:
        return await self._engine.signal(self.id, name, value, key=key, by=by)

    async def effects(self) -> list[dict[str, Any]]:
        return await self._engine.effects(self.id)

    async def settle_effect(self, effect: str, result: Any = None, *, done: bool, by: str = "") -> None:
        await self._engine.settle(self.id, effect, jsontext.encode(result) if done else None, by=by)

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


def _resource(kind: str, namespace: str, name: str) -> str:
    return f"{API}/resources/{'/'.join(quote(part, safe='') for part in (kind, namespace, name))}"


def _name_of(document: Any, name: str | None) -> str | None:
    """A file is called like itself, as for the embedded engine."""
    return name or (Path(document).stem if isinstance(document, str | Path) else None)


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
