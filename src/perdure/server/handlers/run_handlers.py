"""Runs: started, listed, looked at, followed."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.engine.decision_threads import JSON_PER_WORK, done_aside
from perdure.engine.handle import Handle
from perdure.engine.resources.catalog import ResourceNotFound, Runnable
from perdure.engine.runs.document_start import Seen
from perdure.engine.runs.effects import effects
from perdure.kernel.documents.validation import AppliedDocument
from perdure.kernel.ids import DEFAULT_NAMESPACE, reserved_label
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import RunId, set_members
from perdure.kernel.trace_context import read_traceparent
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, EventStream, Result, visible_run
from perdure.server.request_reading import SSE, preferred_wait
from perdure.stores.protocol import RunFilter
from perdure.views.access import Question, Scope, to_wire
from perdure.views.administration.access_tokens import AccessRole
from perdure.views.api_errors import LargeValueNotFound, NotAcceptable
from perdure.views.errors import BadRequest
from perdure.views.resources.document_check import NothingToRun, ProblemsFound, check_target, validate
from perdure.views.runs.graph_folding import graph_of_run
from perdure.views.runs.history_events import event_json, event_name
from perdure.views.runs.log_reader import TaskLogReader
from perdure.views.runs.run_details import NewRunFacts, run_facts_json, run_result_json
from perdure.views.runs.run_pages import page_mark, read_page_cursor, run_item_json, run_page, write_page_cursor
from perdure.views.runs.run_steps import describe_step, list_steps

if TYPE_CHECKING:
    from perdure.server.route_table import Handler

LONGEST_WAIT = 60  # seconds
EVENTS_AT_ONCE = 20  # of a page: their values may have 64 KiB each; ten times as many where they are small
HEAVY_EVENT = 100  # values
HEAVIEST_PAGE = 200_000  # values in a page of events, long texts counted for more
MOST_LABELS = 64
LONGEST_LABEL = 1_000  # characters of name and value together


async def start_run(call: ApiCall) -> Result:
    body: m.StartBody = call.body
    asked = call.caller.meant_namespace(body.namespace)
    applied = await m.applied_texts(body.apply)
    if call.caller.namespaces is not None:
        own = [] if body.document is None else await m.applied_texts([body.document])
        await call.check_documents([*applied, *own])
    if body.document is not None or body.apply:
        call.caller.need(AccessRole.AUTHOR)
    _check_labels(body.labels)
    runnable = None
    if body.document is None:
        if body.name is None:
            raise BadRequest("a start needs a document, or the name of one in the catalog")
        runnable = await call.engine.catalog.find(body.name, asked)
        if runnable is None or not call.caller.sees(runnable.key.namespace):
            place = f"in namespace {asked!r}" if asked else "in the catalog"
            raise ResourceNotFound(f"there is nothing {place} that can be run under the name {body.name!r}")
    started = NewRunFacts(call.engine)
    handle = await begin_run(call, body, runnable, asked, applied, seen=started.seen)
    headers = {"Location": f"/api/v1/runs/{handle.id}"}
    wait = preferred_wait(call.headers, LONGEST_WAIT)
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait}"
        if (ended := await _result(call, handle.id, wait)) is not None:
            return Answer(ended, 200, headers)
    return Answer(await started.json(handle.id), 202, headers)


async def begin_run(
    call: ApiCall,
    body: m.StartBody,
    runnable: Runnable | None,
    asked: str = "",
    applied: Sequence[AppliedDocument] = (),
    system_labels: Mapping[str, str] | None = None,
    seen: Seen | None = None,
) -> Handle:
    """Start the document of the body, or one of the catalog, if it is valid; the caller may see both."""
    name, from_api = body.default_name, True
    if runnable is None:
        assert body.document is not None
        engine = call.documents
        text, origin, chosen = await m.text_of(body.document), "document", body.name or ""
    else:
        asked, name = runnable.key.namespace, runnable.key.name
        text, origin, chosen = runnable.text, runnable.origin, ""
        engine = call.documents if applied else call.engine
        if not applied:
            from_api = runnable.from_api
    language = None if runnable is None else engine.catalog.language_of(runnable.kind)
    checked = await validate(
        origin, text, engine.validator, applied, chosen=chosen, namespace=asked or DEFAULT_NAMESPACE, language=language
    )
    if checked.errors:
        raise ProblemsFound(checked)
    if checked.program is None:
        raise NothingToRun(f"{origin} contains nothing that can be run; nothing was started")
    assert checked.language is not None and checked.validated is not None
    if body.target is not None:
        check_target(checked, body.target)
    namespace = asked or checked.language.namespace_of(checked.program) or DEFAULT_NAMESPACE
    call.caller.need_namespace(namespace)
    handle = await engine.start(
        text,
        await done_aside(JSON_PER_WORK * len(body.set), lambda: _with_members(body.input, body.set)),
        name=name,
        applied=applied,
        chosen=chosen,
        options=_options(call, body),
        token=body.token,
        labels=body.labels,
        system_labels=system_labels,
        namespace=namespace,
        started_by=(call.caller.name, call.caller.via),
        from_api=from_api,
        request=call.start_request(namespace) if body.token is None else None,
        checked=(checked.language, checked.validated) if namespace == (asked or DEFAULT_NAMESPACE) else None,
        seen=seen,
    )
    return handle


def _options(call: ApiCall, body: m.StartBody) -> dict[str, Any]:
    """A header `traceparent` that is none is ignored, as W3C says; a member of the body is not."""
    options = {} if body.arguments is None else {"args": body.arguments}
    options |= {} if body.target is None else {"entry_step": body.target}
    trace = body.traceparent or read_traceparent(call.headers.get("traceparent", ""))
    return options | ({"env": body.env} if body.env else {}) | ({"traceparent": trace} if trace else {})


def _check_labels(labels: dict[str, str]) -> None:
    if len(labels) > MOST_LABELS or any(len(name) + len(value) > LONGEST_LABEL for name, value in labels.items()):
        raise BadRequest(f"a run has at most {MOST_LABELS} labels, of at most {LONGEST_LABEL} characters each")
    if reserved := reserved_label(labels):
        raise BadRequest(f"the label {reserved!r} is reserved for the engine")


def _with_members(value: Any, members: dict[str, Any]) -> Any:
    """`set: {"a.b": 3}` over the input."""
    try:
        return set_members(value, members.items())
    except ValueError as problem:
        raise BadRequest(f"`set`: {problem}") from None


async def _result(call: ApiCall, run: RunId, wait: float) -> dict[str, Any] | None:
    """As `run_result_json`; a server that stops answers at once."""
    waiting = asyncio.ensure_future(run_result_json(call.engine, run, wait))
    stopping = asyncio.ensure_future(call.server.stopping.wait())
    try:
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        await call.check_caller(has_waited=wait > 0)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
        stopping.cancel()


async def _selection(call: ApiCall, query: m.RunSelection) -> RunFilter:
    """The filter of a list, among what the caller may see."""
    parent = None
    if query.parent is not None:
        parent = (await visible_run(call.engine, call.caller, query.parent)).id
    namespaces = call.caller.narrowed(query.namespace)
    return replace(m.run_filter(query), parent=parent, namespaces=namespaces, text=query.q)


async def list_runs(call: ApiCall) -> Result:
    query: m.RunQuery = call.query
    page = await run_page(call.engine, await _selection(call, query), query.limit, query.cursor)
    items = [run_item_json(row, page.owners) for row in page.rows]
    return Answer({"items": items} | ({"next": page.next} if page.next else {}))


async def get_run(call: ApiCall) -> Result:
    return Answer(await run_facts_json(call.engine, call.run.id, call.query.at))


async def get_picture(call: ApiCall) -> Result:
    return Answer(await call.engine.show(call.run.id, call.query.at))


async def get_graph(call: ApiCall) -> Result:
    query: m.GraphQuery = call.query
    return Answer(await graph_of_run(call.engine, call.run.id, query.at, query.under, query.cursor))


async def get_result(call: ApiCall) -> Result:
    ended = await _result(call, call.run.id, min(call.query.wait, LONGEST_WAIT))
    if ended is not None:
        return Answer(ended)
    row = await call.engine.find(call.run.id)
    return Answer({"id": row.id, "status": row.status.value}, 202)


async def list_events(call: ApiCall) -> Result:
    query: m.EventsQuery = call.query
    if SSE in call.headers.get("accept", ""):
        return await _live_events(call, query)
    events, has_more = await _page_of_events(call, query)
    items = [event if query.raw else event_json(event) for event in events]
    return Answer({"items": items, **({"next": items[-1]["seq"]} if has_more else {})})


async def _page_of_events(call: ApiCall, query: m.EventsQuery) -> tuple[list[dict[str, Any]], bool]:
    """Up to `limit` events, fewer if they are large; and whether there are more."""
    events: list[dict[str, Any]] = []
    after, weight = query.after or 0, 0
    while len(events) <= query.limit and weight <= HEAVIEST_PAGE:
        are_heavy = weight >= HEAVY_EVENT * len(events)
        asked = min(EVENTS_AT_ONCE if are_heavy else 10 * EVENTS_AT_ONCE, query.limit + 1 - len(events))
        part = await call.engine.history(call.run.id, after, raw=query.raw, limit=asked)
        events += part
        if len(part) < asked:
            return events, False
        after = part[-1]["seq"]
        for event in part:
            weight += jsontext.weigh(event, HEAVIEST_PAGE) if weight <= HEAVIEST_PAGE else 0
    return events[: query.limit], True


async def list_changes(call: ApiCall) -> Result:
    query: m.ChangeQuery = call.query
    items, position = await call.server.changes.page(await _selection(call, query), query.after, query.limit)
    return Answer({"items": items, "next": position})


async def follow_changes(call: ApiCall) -> Result:
    """Live only: pages have a path of their own."""
    query: m.ChangeQuery = call.query
    if SSE not in call.headers.get("accept", ""):
        raise NotAcceptable(f"this is answered as {SSE}", hint=f"Send `Accept: {SSE}`, or ask GET /api/v1/changes.")
    selection = await _selection(call, query)
    return EventStream(call.server.changes.follow(selection, _continued_at(call, query.after), call.caller))


def _continued_at(call: ApiCall, after: int | None) -> int | None:
    """Behind which event a stream is to continue: what a browser says by itself counts more than the address."""
    last = call.headers.get("last-event-id", "")
    if not last:
        return after
    if not (last.isascii() and last.isdigit() and len(last) <= 19 and int(last) < 1 << 63):
        raise BadRequest("Last-Event-ID is not the id of an event of this stream")
    return int(last)


async def _live_events(call: ApiCall, query: m.EventsQuery) -> Result:
    after = _continued_at(call, query.after)
    if after is not None and not await call.live.has_more(call.run.id, after, raw=query.raw):
        return Answer(None, 204)  # it has ended, and everything was told: a browser stops asking
    return EventStream(_told(call, after or 0, raw=query.raw))


async def _told(call: ApiCall, after: int, *, raw: bool) -> AsyncGenerator[bytes, None]:
    """Each event as a browser reads it; a comment when nothing comes; the right to see is asked again and again."""

    def goes_on() -> bool:
        return not call.server.is_stopping and call.server.authentication.tokens.is_valid(call.caller)

    yield b": follow\n\n"
    async with aclosing(call.live.follow(call.run.id, after, raw=raw, goes_on=goes_on)) as events:
        async for event in events:
            if not goes_on():
                return
            if event is None:
                yield b": nothing new\n\n"
                continue
            data = jsontext.encode(event if raw else event_json(event))
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (event["seq"], event_name(event).encode(), data)


async def list_effects(call: ApiCall) -> Result:
    return Answer({"items": await effects(call.engine, call.run.id)})


async def list_children(call: ApiCall) -> Result:
    query: m.PageQuery = call.query
    page = await run_page(
        call.engine, RunFilter(parent=call.run.id, namespaces=call.caller.namespaces), query.limit, query.cursor
    )
    items = [run_item_json(row, page.owners) for row in page.rows]
    return Answer({"items": items} | ({"next": page.next} if page.next else {}))


async def list_run_steps(call: ApiCall) -> Result:
    return Answer({"items": await list_steps(call.engine, call.run.id, call.query.at)})


async def get_step(call: ApiCall) -> Result:
    query: m.PageQuery = call.query
    return Answer(await describe_step(call.engine, call.run.id, call.path["step"], query.limit, query.cursor))


async def list_logs(call: ApiCall) -> Result:
    query: m.LogQuery = call.query
    mark = page_mark(["logs", call.run.id, query.step])
    seen = (0, 0) if query.cursor is None else read_page_cursor(query.cursor, mark, (int, int))
    lines = [line for line in await TaskLogReader(call.engine, call.run.id, query.step).read() if line.place > seen]
    page = lines[: query.limit]
    more = {"next": write_page_cursor(page[-1].place, mark)} if len(lines) > query.limit else {}
    return Answer({"items": [line.plain() for line in page], **more})


def answer_question(question: Question[Any, Any]) -> "Handler":
    """The handler of a question that the command line asks, too."""

    async def answer(call: ApiCall) -> Result:
        if question.needs_all_namespaces:
            call.caller.need_all_namespaces()
        namespaces = call.caller.narrowed(getattr(call.query, "namespace", None))
        scope = Scope(RunId("") if call.row is None else call.row.id, namespaces)
        return Answer(to_wire(await question.read(call.engine, scope, call.query)))

    answer.__name__ = question.verb
    return answer


async def get_value(call: ApiCall) -> Result:
    """A large value, if it belongs to this run and its language hides no inputs."""
    try:
        digest = bytes.fromhex(call.path["digest"])
    except ValueError:
        raise BadRequest(f"{call.path['digest'][:80]!r} is not a digest") from None
    values = await call.engine.store.values(call.run.id, [digest])
    if digest not in values:
        raise LargeValueNotFound(f"run {call.run.id} has no value with this digest")
    from perdure.engine.runs import run_views

    mask = await run_views.mask_of_run(call.engine.store, call.engine.languages, call.run)
    return Answer(await done_aside(len(values[digest]), lambda: mask.json(values[digest])))
