"""What one screen says about a run (`show`), its status while it is followed, and how it has ended."""

from typing import Annotated, Any, Literal

import msgspec

from perdure.engine.client import Client
from perdure.engine.runs import run_views
from perdure.engine.runs.dry_run import Pending
from perdure.kernel.errors import Conflict
from perdure.kernel.execution import Execution
from perdure.kernel.graphs.step_overview import StepOverview
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import OPEN_STATUSES, Cancelled, Failed, Status, Succeeded
from perdure.stores.protocol import RunFilter
from perdure.views.access import NoParameters, Query, Question, Scope, masked
from perdure.views.administration.server_presence import is_served
from perdure.views.runs.history_events import event_at
from perdure.views.runs.progress_events import outcome_text
from perdure.views.runs.run_details import result_json, run_at, show_json, status_json
from perdure.views.runs.run_overview import (
    Explanation,
    FailurePlace,
    explain,
    failure_of_run,
    first_failure_of,
    spell_place,
    steps_of,
)
from perdure.views.runs.run_status import RunStatus, run_status, status_of_execution

LONGEST_RESULT = 2_000  # characters on a screen


class ScreenQuery(Query):
    at: str | None = None  # an event: its number, its id, or a time
    checksum: bool = False


class RunScreen(msgspec.Struct):
    """`error`, `details` and `result` are texts; without a place, the failure is the run's own."""

    run_status: RunStatus
    now: Instant  # or the past moment that was asked for
    ended_at: Instant | None
    life: int
    is_taken_up: bool  # a server will drive it
    pending: list[Pending]
    why: Explanation | None
    failure: FailurePlace | None
    place: str  # of the failure in the document
    error: str
    details: str
    reason: str  # of a cancel
    result: str
    checksum: str
    steps: list[StepOverview]


async def read_screen(client: Client, scope: Scope, query: ScreenQuery) -> RunScreen:
    run = scope.run
    at = None if query.at is None else await event_at(client, run, query.at)
    row, execution, pending = await run_at(client, run, at)
    status = await status_of_execution(client, row, execution)
    is_taken_up = not (status.status.is_final or status.is_owned) and await is_served(client)
    steps = await steps_of(client, execution, at)
    now = client.clock.now() if at is None else execution.state.at
    why = explain(status, execution, steps, pending, now, is_served=is_taken_up) if at is None else None
    failure = await first_failure_of(client, execution, steps)
    error, details, reason = _outcome(execution) if failure is None else ("", "", "")
    screen = RunScreen(
        run_status=status,
        now=now,
        ended_at=execution.state.ended_at,
        life=execution.state.incarnation,
        is_taken_up=is_taken_up,
        pending=pending,
        why=why,
        failure=failure,
        place="" if failure is None else spell_place(failure),
        error=error,
        details=details,
        reason=reason,
        result=await _result(client, run, execution),
        checksum=run_views.checksum(execution) if query.checksum else "",
        steps=steps,
    )
    mask = await run_views.mask_of(client.store, execution)
    return masked(screen, RunScreen, mask.text)


def _outcome(execution: Execution) -> tuple[str, str, str]:
    match execution.state.outcome:
        case Failed(_, _, _, details) as failed:
            shown = "" if details is None else jsontext.encode(jsontext.decode(details)).decode()
            return outcome_text(failed), shown, ""
        case Cancelled() as cancelled:
            return "", "", outcome_text(cancelled)
        case _:
            return "", "", ""


async def _result(client: Client, run: RunId, execution: Execution) -> str:
    match execution.state.outcome:
        case Succeeded(value):
            mask = await run_views.mask_of(client.store, execution)
            # Masked before it is cut: half a secret is none that a mask would know.
            return mask.text((await client.text(run, value)).decode())[: LONGEST_RESULT + 1]
        case _:
            return ""


async def read_picture(client: Client, scope: Scope, query: ScreenQuery) -> Any:
    """All that its language shows of the run, as JSON."""
    at = None if query.at is None else await event_at(client, scope.run, query.at)
    _, execution, pending = await run_at(client, scope.run, at)
    return await show_json(client, execution, pending, checksum=query.checksum)


async def read_live_status(client: Client, scope: Scope, query: NoParameters) -> RunStatus:
    status = await run_status(client, scope.run)
    mask = await run_views.mask_of_run(client.store, client.languages, status.row)
    return masked(status, RunStatus, mask.text)


class RunEnding(msgspec.Struct):
    """How a run has ended, as it is told to whoever followed it."""

    run_status: RunStatus
    reason: str
    cause: str | None
    exit_status: Status  # as the shell is told it; a language may see it otherwise than the status
    value: str | None = None  # the result as JSON text


class EndingQuery(Query):
    value: bool = False  # also the result


async def read_ending(client: Client, scope: Scope, query: EndingQuery) -> RunEnding:
    run = scope.run
    row = await client.find(run)
    execution = await run_views.load(client.store, client.languages, row)
    outcome = execution.state.outcome
    if outcome is None:
        raise Conflict(f"run {run} has not ended")
    mask = await run_views.mask_of(client.store, execution)
    value = None
    if isinstance(outcome, Succeeded) and query.value:
        value = mask.json(await client.text(run, outcome.value)).decode()
    ending = RunEnding(
        run_status=await status_of_execution(client, row, execution),
        reason=outcome_text(outcome),
        cause=None if isinstance(outcome, Succeeded) else await failure_of_run(client, run),
        exit_status=execution.dialect.exit_status(execution.state.status, outcome),
    )
    return msgspec.structs.replace(masked(ending, RunEnding, mask.text), value=value)


class LeftBehind(msgspec.Struct):
    """Children that a run has not waited for."""

    open: list[RunId]
    unstarted: list[RunId]


async def read_left_behind(client: Client, scope: Scope, query: NoParameters) -> LeftBehind:
    rows = await client.search(RunFilter(statuses=OPEN_STATUSES, parent=scope.run))
    return LeftBehind(sorted(row.id for row in rows), list(await client.store.unstarted_children(scope.run)))


class ConditionQuery(Query):
    """`behind`: a number of events at which the condition was not met."""

    kind: Literal["ended", "step", "phase"] = "ended"
    name: str = ""
    behind: int = 0


class ConditionResult(msgspec.Struct, frozen=True):
    is_met: bool
    status: Status
    is_over: bool  # the run has ended
    seq: int
    is_owned: bool = True


async def read_condition(client: Client, scope: Scope, query: ConditionQuery) -> ConditionResult:
    """Whether a run has ended, a step of it has, or it is in a phase."""
    row = await client.find(scope.run)
    is_owned = row.status.is_final or bool(await client.store.owned([row.partition]))
    if query.kind == "ended":
        return ConditionResult(row.status.is_final, row.status, row.status.is_final, 0, is_owned)
    execution = await run_views.load(client.store, client.languages, row)
    state = execution.state
    if state.seq == query.behind:
        return ConditionResult(False, state.activity, state.status.is_final, state.seq, is_owned)
    if query.kind == "step":
        is_met = query.name in await _ended_steps(client, execution)
    else:
        is_met = query.name.lower() in (state.activity.value, (await _phase(client, execution)).lower())
    return ConditionResult(is_met, state.activity, state.status.is_final, state.seq, is_owned)


async def _ended_steps(client: Client, execution: Execution) -> frozenset[str]:
    dialect = execution.dialect
    turns = await run_views.turns(client.store, dialect, execution.id) if dialect.tells_steps_by_events else []
    return dialect.ended_steps(execution, turns)


async def _phase(client: Client, execution: Execution) -> str:
    """In the language's own word."""
    picture = execution.dialect.brief(execution) or await run_views.show(client.store, execution)
    status = picture.get("status")
    return str(status.get("phase", "") if isinstance(status, dict) else status or "")


async def read_status(client: Client, scope: Scope, query: NoParameters) -> Any:
    return await status_json(client, scope.run)


class ReferenceQuery(Query):
    ref: Annotated[str, msgspec.Meta(min_length=1)]


async def read_reference(client: Client, scope: Scope, query: ReferenceQuery) -> Any:
    return {"value": await result_json(client, query.ref, scope.namespaces)}


class NameQuery(Query):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str | None = None


class ResolvedName(msgspec.Struct):
    id: RunId


async def read_name(client: Client, scope: Scope, query: NameQuery) -> ResolvedName:
    return ResolvedName(await client.resolve(query.name, scope.namespaces))


SCREEN = Question("get_screen", "/runs/{id}/screen", "the run at a glance", ScreenQuery, RunScreen, read_screen)
PICTURE = Question(
    "get_picture_at", "/runs/{id}/picture-at", "the picture of the run at a time", ScreenQuery, Any, read_picture
)
LIVE_STATUS = Question(
    "get_live_status",
    "/runs/{id}/live-status",
    "status and tasks of the run now",
    NoParameters,
    RunStatus,
    read_live_status,
)
ENDING = Question("get_ending", "/runs/{id}/ending", "how the run has ended", EndingQuery, RunEnding, read_ending)
LEFT_BEHIND = Question(
    "list_left_behind",
    "/runs/{id}/left-behind",
    "open children that the run has not waited for",
    NoParameters,
    LeftBehind,
    read_left_behind,
)
CONDITION = Question(
    "get_condition",
    "/runs/{id}/condition",
    "whether a run or a step has ended, or a phase is reached",
    ConditionQuery,
    ConditionResult,
    read_condition,
)
STATUS = Question("get_status", "/runs/{id}/status", "the status, without results", NoParameters, Any, read_status)
REFERENCE = Question(
    "get_reference", "/references", "the value behind a reference", ReferenceQuery, Any, read_reference
)
NAME = Question("resolve_run", "/runs:resolve", "the run of a name", NameQuery, ResolvedName, read_name)
SCREENS = (SCREEN, PICTURE, LIVE_STATUS, ENDING, LEFT_BEHIND, CONDITION, STATUS, REFERENCE, NAME)
