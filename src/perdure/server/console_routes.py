"""What somebody asks who looks at runs and writes documents: graphs, schemas and times of entries, values of
expressions, a document tried out. Nothing here changes anything.
"""

from typing import Annotated, Any

import msgspec

from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.runs.effects import effects
from perdure.kernel.documents.resource_kinds import ResourceKind
from perdure.kernel.errors import UnfitInput
from perdure.kernel.ids import DEFAULT_NAMESPACE
from perdure.server import request_types as m
from perdure.server.calls import Answer, ApiCall, Result, visible_run
from perdure.server.console_files import get_console_file, get_front_page
from perdure.server.handlers.resource_handlers import check_path, checked_json
from perdure.server.handlers.session_handlers import SessionBody, begin_session, end_session
from perdure.server.model_tools import exchange_mcp_message
from perdure.server.route_table import Route
from perdure.views.access import Scope, to_wire
from perdure.views.administration.access_tokens import AccessRole, check_namespace
from perdure.views.administration.audit_log import TOOL_HEADER
from perdure.views.drawing.markup import graph_json
from perdure.views.resources.document_check import (
    CheckedDocument,
    NothingToRun,
    ProblemsFound,
    schema_of_language,
    validate,
)
from perdure.views.resources.resource_changes import check_place
from perdure.views.resources.resource_list import written_text
from perdure.views.resources.schedule_json import firings_json, schedule_json
from perdure.views.resources.workflow_tools import TOOLS, read_tools
from perdure.views.runs.expression_values import evaluate
from perdure.views.runs.graph_folding import graph_of_run
from perdure.views.runs.history_events import event_json
from perdure.views.runs.run_details import run_facts_json, run_result_json
from perdure.views.runs.run_graph import NoPicture
from perdure.views.runs.run_steps import list_steps
from perdure.wiring import sandbox, schedules

API = "/api/v1"
RESOURCE = f"{API}/resources/{{kind}}/{{namespace}}/{{name}}"
MOST_EVENTS = 1_000  # of a document that is tried out


class NextTimesQuery(m.Body):
    next: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 10


async def evaluate_expression(call: ApiCall) -> Result:
    body: m.EvaluateBody = call.body
    return Answer(await evaluate(call.engine, call.run.id, body.step, body.expression, body.at))


def _named(call: ApiCall) -> tuple[ResourceKind, str, str]:
    """The kind, the namespace and the name of the path, which the caller may see."""
    kind = call.engine.catalog.kind(call.path["kind"])
    namespace = check_place(kind, call.path["namespace"])
    if kind.has_namespace:
        check_namespace(namespace)
        call.caller.need_namespace(namespace)
    return kind, namespace, call.path["name"]


def _runnable(call: ApiCall) -> tuple[ResourceKind, str, str]:
    kind, namespace, name = _named(call)
    if not kind.can_run:
        raise ResourceNotFound(f"a {kind.name} is not run by itself: it has no graph and no schema of an input")
    return kind, namespace, name


async def _checked(call: ApiCall, kind: ResourceKind, namespace: str, name: str, text: bytes) -> CheckedDocument:
    place = namespace or DEFAULT_NAMESPACE
    return await validate(kind.title(name), text, call.engine.validator, chosen=name, namespace=place)


async def _program(call: ApiCall) -> CheckedDocument:
    kind, namespace, name = _runnable(call)
    checked = await _checked(call, kind, namespace, name, await call.engine.catalog.text(kind, name, namespace))
    if checked.errors:
        raise ProblemsFound(checked)
    if checked.program is None:
        raise NothingToRun(f"{checked.origin} holds nothing that can be run")
    return checked


async def get_source_of_resource(call: ApiCall) -> Result:
    """Its problems and findings have the lines of the text that is answered."""
    kind, namespace, name = _runnable(call)
    text = written_text(await call.engine.catalog.row(kind, name, namespace))
    checked = await _checked(call, kind, namespace, name, text)
    return Answer({"text": checked.text.decode("utf-8", "replace"), **await checked_json(checked)})


async def get_graph_of_resource(call: ApiCall) -> Result:
    checked = await _program(call)
    assert checked.language is not None
    if not checked.language.draws_graphs:
        raise NoPicture(f"a document in {checked.language.name!r} cannot be drawn")
    return Answer(graph_json(checked.language.graph(checked.program)))


async def get_schema_of_resource(call: ApiCall) -> Result:
    checked = await _program(call)
    assert checked.language is not None
    schemas = checked.language.schemas(checked.program)
    return Answer({"input": schemas.get("input"), "arguments": schemas.get("arguments")})


async def get_schema_of_language(call: ApiCall) -> Result:
    return Answer(schema_of_language(call.engine.languages, call.path["language"]))


async def get_schedule_of_resource(call: ApiCall) -> Result:
    """The schedules of an Impulse, or those that start a document, with their next times."""
    kind, namespace, name = _named(call)
    await call.engine.catalog.row(kind, name, namespace)
    views = [
        view
        for view in await schedules(call.engine).list(namespace or DEFAULT_NAMESPACE, call.query.next)
        if (view.entry.kind == kind.name and view.entry.name == name) or (kind.can_run and view.schedule.starts == name)
    ]
    return Answer({"items": [{**schedule_json(view), "next": firings_json(view)} for view in views]})


async def try_document(call: ApiCall) -> Result:
    """In memory, in virtual time, with mocks for everything that tasks would call."""
    body: m.SandboxBody = call.body
    applied = await m.applied_texts(body.apply)
    own = await m.applied_texts([body.document])
    await call.check_documents([*applied, *own])
    namespace = call.caller.meant_namespace(body.namespace) or DEFAULT_NAMESPACE
    call.caller.need_namespace(namespace)
    if unknown := next((state for state in body.gates.values() if state not in ("Approved", "Rejected")), None):
        raise UnfitInput(f"{unknown[:40]!r} is not a decision of a gate (expected Approved or Rejected)")
    trying = sandbox(
        await m.text_of(body.document),
        body.input,
        mocks=body.mocks,
        options={} if body.arguments is None else {"args": body.arguments},
        applied=applied,
        chosen=body.name,
        namespace=namespace,
        catalog=call.engine.store,
        signals=body.signals,
        gates=body.gates,
        most=body.most,
    )
    async with trying as trial:
        engine, run = trial.engine, trial.run
        facts = await run_facts_json(engine, run)
        events = await engine.history(run)
        answer = {
            "run": {**facts, "owner": None},
            "result": await run_result_json(engine, run),
            "seconds": trial.seconds,
            "is_cut": trial.is_cut,
            "calls": trial.calls,
            "steps": await list_steps(engine, run),
            "events": [event_json(event) for event in events[:MOST_EVENTS]],
            "graph": await graph_of_run(engine, run) if engine.languages[facts["language"]].draws_graphs else None,
            "effects": await effects(engine, run),
        }
    return Answer(answer)


class NotedToolCall(m.Body):
    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    run: str | None = None


async def note_tool_call(call: ApiCall) -> Result:
    """Somebody's language model has called a tool: the audit log says so, whatever the tool then asks for."""
    body: NotedToolCall = call.body
    call.server.authentication.count_tool_call(call.caller.identity)
    call.caller = call.caller.as_recorded({TOOL_HEADER: body.tool})
    row = None if body.run is None else await visible_run(call.engine, call.caller, body.run)
    call.audit(f"tool/{body.tool}", run=None if row is None else row.id, namespace="" if row is None else row.namespace)
    return Answer({"noted": True})


async def list_workflow_tools(call: ApiCall) -> Result:
    scope = Scope(namespaces=call.caller.narrowed(call.query.namespace))
    return Answer(to_wire(await read_tools(call.engine, scope, call.query)))


def _of_resource(path: str, handler: Any, summary: str, **more: Any) -> Route:
    return Route(
        "GET",
        f"{RESOURCE}/{path}",
        AccessRole.VIEWER,
        handler,
        summary,
        answer=dict[str, Any],
        is_expensive=True,
        refusals=(409, 422),
        check=check_path,
        **more,
    )


CONSOLE_ROUTES = (
    Route("GET", "/", None, get_front_page, "the page of the console", is_text=True, text_type="text/html"),
    Route("GET", "/assets/{file}", None, get_console_file, "a file of the console", is_text=True, text_type="*/*"),
    Route(
        "POST",
        "/session",
        None,
        begin_session,
        "log a browser in, with a token or a code",
        body=SessionBody,
        answer=m.WhoAnswer,
        status=201,
        refusals=(401, 403, 421, 429),
        changes=True,
    ),
    Route(
        "DELETE",
        "/session",
        AccessRole.VIEWER,
        end_session,
        "log a browser out",
        status=204,
        changes=True,
        is_for_every_role=True,
    ),
    Route(
        "POST",
        f"{API}/runs/{{id}}/evaluate",
        AccessRole.OPERATOR,
        evaluate_expression,
        "the value of an expression at a step of the run",
        body=m.EvaluateBody,
        answer=dict[str, Any],
        is_expensive=True,
        refusals=(409,),
    ),
    Route(
        "POST",
        f"{API}/tools:called",
        AccessRole.VIEWER,
        note_tool_call,
        "a tool of `perdure mcp` was called: for the audit log",
        body=NotedToolCall,
        answer=dict[str, Any],
        refusals=(404,),
        changes=True,
    ),
    Route(
        "POST",
        "/mcp",
        AccessRole.VIEWER,
        exchange_mcp_message,
        "a message of the Model Context Protocol (streamable HTTP, without sessions)",
        answer=dict[str, Any],
        statuses=(202,),
        is_raw=True,
        refusals=(404, 409),
    ),
    Route(
        "GET",
        f"{API}{TOOLS.path}",
        AccessRole.VIEWER,
        list_workflow_tools,
        TOOLS.summary,
        query=TOOLS.query,
        is_expensive=True,
        refusals=(404, 409),
    ),
    Route(
        "GET",
        f"{API}/schemas/{{language}}",
        AccessRole.VIEWER,
        get_schema_of_language,
        "what documents of a language may contain, as JSON Schema",
        answer=dict[str, Any],
        refusals=(400,),
    ),
    _of_resource("source", get_source_of_resource, "a document as it was written, with what is wrong with it"),
    _of_resource("graph", get_graph_of_resource, "a document as a graph"),
    _of_resource("schema", get_schema_of_resource, "what a start of the document may say, as JSON Schema"),
    _of_resource("schedule", get_schedule_of_resource, "its schedules, with their next times", query=NextTimesQuery),
    Route(
        "POST",
        f"{API}/sandbox",
        AccessRole.AUTHOR,
        try_document,
        "run a document with mocks and a virtual clock; nothing is stored",
        body=m.SandboxBody,
        answer=dict[str, Any],
        is_expensive=True,
        refusals=(404, 409),
    ),
)
