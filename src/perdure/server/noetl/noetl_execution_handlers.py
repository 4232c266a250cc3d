"""Executions as NoETL's clients ask for them: started, listed, looked at, cancelled, patched."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.engine.decision_threads import ShortTurns
from perdure.engine.resources.catalog import ResourceNotFound
from perdure.engine.resources.resource_views import all_runs
from perdure.engine.runs import run_views
from perdure.engine.runs.run_removal import descendants
from perdure.kernel.errors import Conflict, PerdureError, RunNotFound, UnfitInput
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import SECOND, Instant, digest
from perdure.kernel.outcomes import OPEN_STATUSES, Status
from perdure.server.calls import Answer, ApiCall, Result, visible_run
from perdure.server.noetl import noetl_types as t
from perdure.server.noetl.noetl_answers import (
    STATUS_WORDS,
    EventSelection,
    ExecutionView,
    Plain,
    cancellation_json,
    event_page,
    execution_json,
    status_json,
    variables_json,
)
from perdure.server.noetl.noetl_catalog import (
    LANGUAGE,
    PlaybookVersion,
    RunVersions,
    find_by_id,
    find_version,
    home_of,
    read_version,
)
from perdure.server.problems import problem_json
from perdure.server.request_types import StartBody
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.access import steer
from perdure.views.errors import BadRequest
from perdure.views.runs.run_details import error_json, result_json, run_result_json, show_json
from perdure.views.runs.run_list import Ownership
from perdure.views.runs.run_pages import run_page
from perdure.views.runs.run_status import WaitReason, run_status
from perdure.views.times import read_time

LOOKED_AT_ONCE = 200  # executions of a list, before others have their turn
PARENT_LABEL = "perdure.dev/parent-execution"
CANCEL_PATIENCE = 5.0  # seconds that a cancelled run may take to end before it is answered that it has not
NOBODY_COMES = frozenset({WaitReason.WORKER, WaitReason.PROVIDER})
"""What a run waits for in vain if nobody drives it; any other wait ends by itself or by somebody's decision."""


def check_execution(call: ApiCall) -> None:
    """Runs of other languages are not there for clients of NoETL."""
    if call.run.language != LANGUAGE:
        raise RunNotFound(f"there is no execution {call.run.id!r} of a Playbook")


# Starting.


async def execute_playbook(call: ApiCall) -> Result:
    return Answer(await _execute(call, call.body))


async def execute_batch(call: ApiCall) -> Result:
    """Each of them by itself: one that is refused does not keep the others from starting."""
    body: t.ExecuteBatchBody = call.body
    results: list[Plain] = []
    key = call.key
    for index, request in enumerate(body.executions):
        if key is not None:
            call.key = digest(f"{key}\0{index}".encode()).hex()[:32]
        try:
            results.append({"index": index, **await _execute(call, request), "error": None})
        except PerdureError as refusal:
            detail = jsontext.decode(problem_json(refusal, call.request_id)[2])["detail"]
            results.append({"index": index, "status": "failed", "commands_generated": 0, "error": detail})
    failed = sum(result["status"] == "failed" for result in results)
    counts = {"count": len(results), "started": len(results) - failed, "duplicates": 0, "failed": failed}
    return Answer({**counts, "results": results})


async def rerun_execution(call: ApiCall) -> Result:
    """Start the same version again, with the same workload unless the body has another one."""
    body: t.ExecuteBody = call.body
    run_version = await RunVersions(call.engine).of(call.run)
    version = await find_by_id(call.engine, call.run.namespace, run_version.catalog_id)
    if version is None:
        raise ResourceNotFound(
            f"execution {call.run.id} was not started from the catalog", hint="Register its Playbook, and execute it."
        )
    workload = body.workload or body.payload
    if not workload:
        execution = await call.engine.execution(call.run.id)
        workload = jsontext.decode(await call.engine.text(call.run.id, execution.state.input))
    return Answer(await _start(call, version, workload, {PARENT_LABEL: call.run.id}))


async def _execute(call: ApiCall, body: t.ExecuteBody) -> Plain:
    if (body.resource_kind or LANGUAGE).lower() != LANGUAGE:
        raise UnfitInput(f"a {body.resource_kind!r} cannot be executed, only a playbook")
    if body.dedup is not None:
        raise UnfitInput("`dedup` is not offered", hint="Send the header Idempotency-Key: it lasts as long as the run.")
    namespace = home_of(call)
    if body.path:
        version = await find_version(call.engine, namespace, body.path, read_version(body.version))
    elif body.catalog_id:
        version = await find_by_id(call.engine, namespace, body.catalog_id)
    else:
        raise UnfitInput("an execution needs `path` or `catalog_id`", hint="Name a Playbook of the catalog.")
    if version is None:
        which = "" if body.version is None else f" of version {body.version}"
        raise ResourceNotFound(
            f"there is no Playbook {body.path or body.catalog_id!r}{which}",
            hint="Register it: noetl register playbook.",
        )
    labels: dict[str, str] = {}
    if body.parent_execution_id is not None:
        labels[PARENT_LABEL] = (await visible_run(call.engine, call.caller, str(body.parent_execution_id))).id
    return await _start(call, version, body.workload if body.workload is not None else body.payload, labels)


async def _start(call: ApiCall, version: PlaybookVersion, workload: Any, labels: dict[str, str]) -> Plain:
    from perdure.server.handlers.run_handlers import begin_run

    kind = call.engine.catalog.document_kind(LANGUAGE)
    assert kind is not None
    handle = await begin_run(call, StartBody(input=workload), version.runnable(kind), system_labels=labels)
    state = (await call.engine.execution(handle.id)).state
    return {
        "execution_id": handle.id,
        "status": "started",
        "commands_generated": state.tasks_scheduled,
        "path": version.path,
        "version": version.version,
        "catalog_id": version.catalog_id,
    }


# Looking.


async def view_of(call: ApiCall) -> ExecutionView:
    """The execution of the path, with everything."""
    row, execution, pending = await call.engine.outlook(call.run.id)
    shown = replace(row, status=execution.state.activity, ended_at=execution.state.ended_at)
    mask = await run_views.mask_of(call.engine.store, execution)
    return ExecutionView(
        shown,
        await RunVersions(call.engine).of(row),
        call.engine.clock.now(),
        _parent(row),
        mask.data(error_json(execution.state.outcome)),
        await show_json(call.engine, execution, pending),
    )


def _parent(row: RunRow) -> str | None:
    return row.parent or row.labels.get(PARENT_LABEL)


async def list_executions(call: ApiCall) -> Result:
    return Answer(await _list(call))


async def query_executions(call: ApiCall) -> Result:
    return Answer({"executions": [{**shown, "started_at": shown["start_time"]} for shown in await _list(call)]})


async def _list(call: ApiCall) -> list[Plain]:
    """The newest first. Pages are counted from the newest: they move when executions begin."""
    query: t.ExecutionsQuery = call.query
    size = min(query.limit or query.page_size, t.PAGE_SIZE)
    skipped = query.offset + (query.page - 1) * size
    word = (query.status or "").upper()
    statuses = [status for status, shown in STATUS_WORDS.items() if shown == word]
    if query.status and not statuses:
        return []
    versions = RunVersions(call.engine)
    filter = RunFilter(language=LANGUAGE, statuses=statuses, namespaces=call.caller.namespaces)
    shown: list[Plain] = []
    cursor: str | None = None
    now = call.engine.clock.now()
    turns = ShortTurns()
    while True:
        page = await run_page(call.engine, filter, LOOKED_AT_ONCE, cursor)
        for row in page.rows:
            await turns.pause()
            if skipped and not (query.path or query.catalog_id):
                skipped -= 1
                continue
            version = await versions.of(row)
            if query.path not in (None, version.path) or query.catalog_id not in (None, version.catalog_id):
                continue
            if skipped:
                skipped -= 1
                continue
            shown.append(execution_json(ExecutionView(row, version, now, _parent(row))))
            if len(shown) == size:
                return shown
        if not page.next:
            return shown
        cursor = page.next


async def get_execution(call: ApiCall) -> Result:
    query: t.ExecutionQuery = call.query
    view = await view_of(call)
    events, place = await _events(call, view, query)
    return Answer(
        {
            **execution_json(view),
            "events": events if query.include_events else [],
            "events_included": query.include_events,
            "events_endpoint": f"/api/executions/{call.run.id}/events",
            "pagination": place,
        }
    )


async def list_execution_events(call: ApiCall) -> Result:
    view = await view_of(call)
    events, place = await _events(call, view, call.query)
    shown = {"execution_id": call.run.id, "path": view.version.path, "status": view.word}
    return Answer({**shown, "events": events, "pagination": place})


async def _events(call: ApiCall, view: ExecutionView, query: t.ExecutionQuery) -> tuple[list[Plain], Plain]:
    selection = EventSelection(query.page, min(query.page_size, t.PAGE_SIZE), query.since_event_id, query.event_type)
    events = await call.engine.history(call.run.id)
    return await run_views.told_aside(len(events), lambda: event_page(events, selection, view.version, view.parent))


async def get_execution_status(call: ApiCall) -> Result:
    return Answer(status_json(await view_of(call)))


async def check_cancellation(call: ApiCall) -> Result:
    execution = await call.engine.execution(call.run.id)
    return Answer(cancellation_json(await view_of(call), is_asked=execution.state.cancel_requested))


async def list_variables(call: ApiCall) -> Result:
    shown = await _variables(call)
    return Answer({"execution_id": call.run.id, "variables": shown, "count": len(shown)})


async def get_variable(call: ApiCall) -> Result:
    shown = await _variables(call)
    name = call.path["name"]
    if name not in shown:
        raise ResourceNotFound(f"execution {call.run.id} has no variable {name!r}", hint="List them without a name.")
    return Answer({"execution_id": call.run.id, "name": name, **shown[name]})


async def _variables(call: ApiCall) -> Plain:
    ctx: dict[str, Any] = (await call.engine.show(call.run.id))["ctx"]
    events = await call.engine.history(call.run.id)
    return await run_views.told_aside(len(events), lambda: variables_json(ctx, events))


async def replay_state(call: ApiCall) -> Result:
    """The folded state of an execution, now or as it was after an event."""
    query: t.ReplayQuery = call.query
    places = [place for place in (query.as_of_event_id, query.as_of_position, query.as_of_time) if place is not None]
    if len(places) > 1:
        raise BadRequest("only one of `as_of_event_id`, `as_of_position` and `as_of_time` can be given")
    call.row = await visible_run(call.engine, call.caller, query.execution_id)
    check_execution(call)
    run, at = call.run.id, query.as_of_event_id or query.as_of_position
    is_latest = at is None
    if query.as_of_time is not None:
        until = _instant(query.as_of_time)
        events = await call.engine.history(run)
        at = await run_views.told_aside(len(events), lambda: _last_until(events, until))
        if at is None:
            raise RunNotFound(f"execution {run} had no event at {query.as_of_time[:40]!r}")
        is_latest = at == events[-1]["seq"]  # and with what is recorded behind it and not shown
    execution = await run_views.load(call.engine.store, call.engine.languages, call.run, None if is_latest else at)
    state = await show_json(call.engine, execution, [], checksum=True)
    return Answer({"execution_id": run, "as_of_event_id": at, "checksum": state.pop("checksum"), "state": state})


def _last_until(events: Sequence[Plain], until: Instant) -> int | None:
    return max((event["seq"] for event in events if _instant(event["timestamp"]) <= until), default=None)


def _instant(text: str) -> Instant:
    at = read_time(text)
    assert at is not None
    return at


async def resolve_result(call: ApiCall) -> Result:
    return Answer(await result_json(call.engine, call.query.ref, call.caller.namespaces))


# Steering.


async def cancel_execution(call: ApiCall) -> Result:
    """Answers once it has ended, or says that it has not yet."""
    body: t.CancelExecutionBody = call.body
    run = call.run
    if not run.status.is_final:
        below = [row.id for row in await descendants(call.engine.store, run.id)] if body.cascade else []
        try:
            await call.engine.cancel(run.id, body.reason or "", by=call.caller.identity, cascade=body.cascade)
        except Conflict:
            run = await call.engine.find(run.id)
            if not run.status.is_final:
                raise
        else:
            ended = await run_result_json(call.engine, run.id, CANCEL_PATIENCE)
            if ended is None:
                message = "the execution was asked to stop; tasks in flight have not ended yet"
                return Answer(_cancelled("cancelling", run.id, [run.id, *below], message), 202)
            if ended["status"] == Status.CANCELLED.value:
                return Answer(_cancelled("cancelled", run.id, [run.id, *below], "the execution was cancelled"))
    return Answer(_cancelled("already_completed", run.id, [], "the execution has ended before"))


async def stop_execution(call: ApiCall) -> Result:
    """What the button of its list of executions calls."""
    return await cancel_execution(call)


def _cancelled(status: str, run: str, cancelled: list[Any], message: str) -> Plain:
    return {"status": status, "execution_id": run, "cancelled_executions": cancelled, "message": message}


async def clean_up_executions(call: ApiCall) -> Result:
    """Cancel what nobody drives; never what waits at a gate, for a timer or for a child."""
    body: t.CleanupBody = call.body
    before = call.engine.clock.now() - int(body.older_than_minutes * 60 * SECOND)
    filter = RunFilter(OPEN_STATUSES, language=LANGUAGE, created_before=before, namespaces=call.caller.namespaces)
    rows = [row async for row in all_runs(call.engine, filter, t.PAGE_SIZE)]
    owners = await Ownership.of(call.engine, rows)
    idle = [row.id for row in rows if not owners.is_live(row)]
    left = [
        run for run in idle if {wait.reason for wait in (await run_status(call.engine, run)).awaited} <= NOBODY_COMES
    ]
    call.audit(f"executions:cleanup {len(left)}")
    if not body.dry_run:
        for run in left:
            reason = f"cleanup: no process runs it, and it is older than {body.older_than_minutes:g} minutes"
            await call.engine.cancel(run, reason, by=call.caller.identity, cascade=True)
    verb = "would be cancelled" if body.dry_run else "were cancelled"
    return Answer({"cancelled_count": len(left), "execution_ids": left, "message": f"{len(left)} executions {verb}"})


async def finalize_execution(call: ApiCall) -> Result:
    """An end is never invented: an open execution is ended by cancelling it."""
    if not call.run.status.is_final:
        raise Conflict(f"execution {call.run.id} has work that is open", hint="Cancel it instead.")
    word = STATUS_WORDS[call.run.status]
    return Answer({"status": word, "execution_id": call.run.id, "message": "the execution has ended before"})


async def set_variables(call: ApiCall) -> Result:
    body: t.VariablesBody = call.body
    await _patch(call, body.variables, body.reason)
    names = sorted(body.variables)
    return Answer({"execution_id": call.run.id, "variables_set": len(names), "var_names": names})


async def patch_context(call: ApiCall) -> Result:
    """Patch `ctx`; answers with the gates that this has opened, as far as that is decided."""
    body: t.ContextBody = call.body
    seen = len(await call.engine.history(call.run.id))
    await _patch(call, body.ctx, body.reason)
    events = await call.engine.history(call.run.id, seen)
    admitted = [
        {"step": event["step"], "token_id": event["token_id"]}
        for event in events
        if event["event_type"] == "policy.admit.evaluated" and event["payload"]["allow"]
    ]
    last = events[-1]["seq"] if events else seen
    return Answer({"execution_id": call.run.id, "last_seq": last, "admitted": admitted})


async def _patch(call: ApiCall, ctx: dict[str, Any], reason: str) -> None:
    if not ctx:
        raise BadRequest("there is nothing to set")
    patch = {"ctx": ctx, "reason": reason}
    await steer(call.engine, call.run.id, "patch", patch, key=call.key, by=call.caller.identity)
