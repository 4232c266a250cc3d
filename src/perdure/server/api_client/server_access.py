"""What verbs of the command line ask and send, through a server: the same as `StoreAccess` offers on a store."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from perdure.engine.runs.message_sending import SendResult
from perdure.engine.tasks.task_log_writer import LogLine
from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import RunId
from perdure.kernel.outcomes import Status
from perdure.server.api_client.remote_engine import RemoteEngine
from perdure.server.api_client.server_connection import API, error_of
from perdure.views.access import NO_RUN, Question, Send, from_wire
from perdure.views.resources.resource_changes import ResourcePatch
from perdure.views.runs.batch_steering import BatchAnswer, Failure, Selection, Verb
from perdure.views.runs.log_reader import LAST_LINES, TaskLine
from perdure.views.runs.run_screen import NAME, NameQuery
from perdure.views.times import iso, read_instant

LOOK_EVERY = 0.5  # seconds between looks at log lines

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A")


class ServerAccess(RemoteEngine):
    is_remote = True

    async def resolve(self, name: str, namespaces: Sequence[str] | None = None) -> RunId:
        namespace = namespaces[0] if namespaces else None
        return (await self.ask(NAME, NameQuery(name=name, namespace=namespace))).id

    async def ask(self, question: Question[Q, A], query: Q, run: RunId = NO_RUN) -> A:
        path = question.path.replace("{id}", quote(run, safe=""))
        parameters = urlencode(_parameters(query))
        answer = await self.call("GET", f"{API}{path}{f'?{parameters}' if parameters else ''}")
        typed: A = from_wire(answer, question.answer)
        return typed

    async def overview(self, limit: int) -> dict[str, Any]:
        """All runs at a glance: one look."""
        frame: dict[str, Any] = await self.call("GET", f"{API}/overview?limit={min(limit, 1_000)}")
        return frame

    async def status(self, run: RunId) -> Status:
        return await self.handle(run).status()

    async def evaluate(self, run: RunId, step: str, expression: str, at: str | None = None) -> dict[str, Any]:
        body = {"step": step, "expression": expression} | ({} if at is None else {"at": at})
        value: dict[str, Any] = await self.call("POST", f"{API}/runs/{quote(run, safe='')}/evaluate", body)
        return value

    async def impact(self, body: dict[str, Any]) -> dict[str, Any]:
        """Which open runs can go on with another version of their document."""
        judged: dict[str, Any] = await self.call("POST", f"{API}/impact", body)
        return judged

    async def migrate(self, body: dict[str, Any]) -> dict[str, Any]:
        """Move open runs to another version of their document, or undo that."""
        moved: dict[str, Any] = await self.call("POST", f"{API}/migrations", body, key=secrets.token_hex(16))
        return moved

    async def simulate(self, body: dict[str, Any]) -> dict[str, Any]:
        """What `perdure sim` answers, of files that go with the request."""
        simulated: dict[str, Any] = await self.call("POST", f"{API}/simulations", body)
        return simulated

    async def test(self, body: dict[str, Any]) -> dict[str, Any]:
        """What `perdure test` answers, of files that go with the request."""
        tested: dict[str, Any] = await self.call("POST", f"{API}/tests", body)
        return tested

    async def is_served(self) -> bool:
        return True

    async def patch_resource(self, run: RunId, patch: ResourcePatch, by: str = "") -> SendResult:
        body = {"kind": patch.kind, "patch": patch.members}
        return await self._send(run, "patch", body | ({"subresource": patch.part} if patch.part else {}), None, by)

    async def redrive_from(self, run: RunId, step: str, *, key: str | None = None, by: str = "") -> SendResult:
        return await self.redrive(run, step, key=key, by=by)

    async def log_lines(self, run: RunId, step: str | None, *, follow: bool) -> AsyncIterator[TaskLine]:
        """Lines as they come; with `follow` until the run has ended and its last lines are written."""
        seen, quiet = 0, 0.0  # lines of the page that is the last one now
        path = f"{API}/runs/{quote(run, safe='')}/logs"
        parameters = [("limit", 1_000), *([] if step is None else [("step", step)])]
        more: list[tuple[str, Any]] = []
        while True:
            is_over = follow and (await self.status(run)).is_final
            page = await self.call("GET", f"{path}?{urlencode([*parameters, *more])}")
            for item in page["items"][seen:]:
                yield _line(item)
            if "next" in page:
                seen, quiet, more = 0, 0.0, [("cursor", page["next"])]
                continue
            quiet = quiet + LOOK_EVERY if is_over and len(page["items"]) == seen else 0.0
            seen = len(page["items"])
            if not follow or quiet >= LAST_LINES:
                return
            await asyncio.sleep(LOOK_EVERY)

    async def first(self, path: str, limit: int) -> list[dict[str, Any]]:
        """The first so many items of a list."""
        items: list[dict[str, Any]] = []
        async for item in self.pages(path, [("limit", min(limit, 1_000))]):
            items.append(item)
            if len(items) == limit:
                break
        return items

    async def plan(self, selection: Selection, verb: Verb) -> BatchAnswer:
        selection.check()
        return _batch_answer(await self._batch(selection, verb, {"dry_run": True}))

    async def steer_piece(
        self, selection: Selection, verb: Verb, send: Send, *, members: dict[str, Any], cursor: str = ""
    ) -> BatchAnswer:
        """The server sends to each run; `members` says what."""
        selection.check()
        return _batch_answer(await self._batch(selection, verb, {**members, "cursor": cursor}))

    async def _batch(self, selection: Selection, verb: Verb, members: dict[str, Any]) -> dict[str, Any]:
        filter = {
            "status": [status.value for status in selection.statuses],
            "name": selection.name,
            "language": selection.language,
            "label": [f"{name}={value}" for name, value in selection.labels.items()],
            "started_after": iso(selection.created_after),
            "started_before": iso(selection.created_before),
            "parent": selection.parent,
            "q": selection.text,
            "namespace": next(iter(selection.namespaces or selection.within or ()), None),
            "children": selection.with_children,
            "all": selection.everything,
        }
        body = {"verb": "resume" if verb is Verb.UNPAUSE else verb.value, "filter": filter, **members}
        key = str(body.pop("key", None) or secrets.token_hex(16))
        answer: dict[str, Any] = await self.call("POST", f"{API}/runs:batch", body, key=key)
        return answer


def _parameters(query: msgspec.Struct) -> list[tuple[str, Any]]:
    """What differs from the defaults; a list is a parameter that is repeated."""
    pairs: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(query):
        value = getattr(query, field.name)
        if isinstance(value, list):
            pairs += [(field.encode_name, item) for item in value]
        elif value is not None and value != field.default:
            pairs.append((field.encode_name, str(value).lower() if isinstance(value, bool) else value))
    return pairs


def _line(item: dict[str, Any]) -> TaskLine:
    line = LogLine(read_instant(item["at"], 0), item["level"], item["text"], item["stream"] or "", item["fields"])
    return TaskLine(item["path"], item["task"], item["attempt"], item["delivery"], line)


def _batch_answer(body: dict[str, Any]) -> BatchAnswer:
    sent = {
        item["id"]: SendResult(item["decided"], item["live"], item["new"], tuple(item["remarks"]))
        for item in body.get("steered", ())
    }
    return BatchAnswer(
        steered=[(RunId(run), sent.get(run)) for run in body["ids"]],
        failed=[Failure(item["id"], _failure(item)) for item in body["failed"]],
        count=body["count"],
        next=body.get("next", ""),
        dry_run=body["dry_run"],
        more=body.get("more", False),
    )


def _failure(item: dict[str, Any]) -> PerdureError:
    return error_of(409, {"code": item["code"], "detail": item["message"]})
