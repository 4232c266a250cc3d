"""One run as JSON: all that its language shows (`show`), its status, its results, what became of a message to it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perdure.engine.client import Client
from perdure.engine.decision_threads import done_aside
from perdure.engine.runs import run_views
from perdure.engine.runs.dry_run import DryRun, Pending, with_pending
from perdure.engine.runs.fork_points import FORKED_FROM
from perdure.engine.runs.message_sending import SendResult
from perdure.kernel.execution import Execution
from perdure.kernel.json_values import jsontext
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Cancelled, Failed, Outcome, Status, Succeeded
from perdure.kernel.secrets.secret_masking import Mask
from perdure.stores.protocol import RunFilter, RunRow
from perdure.views.errors import BadRequest
from perdure.views.runs.run_list import Ownership
from perdure.views.runs.run_overview import index_of
from perdure.views.runs.run_pages import run_item_json
from perdure.views.runs.run_status import RunStatus, Wait, count_open_tasks, status_of_execution, waits_at_hand
from perdure.views.times import iso


async def run_at(client: Client, run: RunId, at: int | None) -> tuple[RunRow, Execution, list[Pending]]:
    """The run as it is now, with what is pending; or as it was after event number `at`."""
    if at is None:
        return await client.outlook(run)
    row = await client.find(run)
    return row, await run_views.load(client.store, client.languages, row, at), []


async def show_json(client: Client, execution: Execution, pending: list[Pending], *, checksum: bool = False) -> Any:
    """The run in the shape of its language, with its pending messages."""
    picture = with_pending(await run_views.show(client.store, execution), pending)
    return {**picture, "checksum": run_views.checksum(execution)} if checksum else picture


async def status_json(client: Client, run: RunId) -> Any:
    """Status, times and what the run waits for, without what it has produced (PBK-213)."""
    row, execution, pending = await client.outlook(run)
    status = await status_of_execution(client, row, execution)
    facts = with_pending(await _status_facts(client, status, execution), pending)
    return (await run_views.mask_of(client.store, execution)).data(facts)


async def _status_facts(client: Client, status: RunStatus, execution: Execution) -> dict[str, Any]:
    state, dialect = execution.state, execution.dialect
    brief = dialect.brief(execution) or {"status": status.status}
    last_seq = state.seq
    if dialect.has_own_history:
        last_seq = await index_of(client, execution.id, lambda index: index.last)
    now = client.clock.now()
    return {
        "execution_id": execution.id,
        **brief,
        "waits_for": [wait.text(now) for wait in status.awaited],
        "live": status.is_owned,
        "started_at": iso(state.started_at),
        "updated_at": iso(state.at),
        "ended_at": iso(state.ended_at),
        "last_seq": last_seq,
        "forked_from": state.forked_from[-1] if state.forked_from else None,
        "forks": [row.id for row in await client.search(RunFilter(labels={FORKED_FROM: execution.id}))],
    }


def send_result_json(run: RunId, result: SendResult, *, recorded: bool, live: bool) -> dict[str, Any]:
    """What became of a control message."""
    return {
        "id": run,
        "recorded": recorded,
        "live": live,
        "decided": result.is_decided,
        "remarks": list(result.remarks),
    }


async def result_json(client: Client, reference: str, namespaces: Sequence[str] | None = None) -> Any:
    """The value behind a reference, or the result of a run that is named by its id (PBK-174)."""
    scheme, _, path = reference.rpartition("://")
    parts = path.split("/")
    owner = parts[1] if scheme and parts[0] == "execution" and len(parts) > 1 else reference
    if scheme and owner == reference:
        raise BadRequest(f"{reference!r} does not name the execution that holds it")
    is_address = not scheme and len(parts) > 2 and path.endswith(".json")  # of a Story: namespace/StoryRun/…
    if is_address:
        owner = parts[1]
    row = await client.find(await client.resolve(owner, namespaces))
    execution = await run_views.load(client.store, client.languages, row)
    if not execution.dialect.has_references:
        raise BadRequest(f"runs of language {row.language!r} hold nothing by reference", hint="See `perdure show`.")
    address = reference if scheme or is_address else ""
    return await run_views.body_of(client.store, execution, address, client.clock.now())


async def run_facts_json(client: Client, run: RunId, at: int | None = None) -> dict[str, Any]:
    """A run as the API shows it: what it is, how it does, what it waits for; or did after event `at`."""
    row, execution, pending = await run_at(client, run, at)
    status = await status_of_execution(client, row, execution)
    shown = replace(row, status=execution.state.activity, ended_at=execution.state.ended_at)
    now = client.clock.now() if at is None else execution.state.at
    if at is not None:
        is_moving = shown.status is Status.WAITING and not status.waits and not status.tasks_open  # within a turn
        shown = replace(shown, stuck=None, status=Status.RUNNING if is_moving else shown.status)
    elif row.has_control_messages and not pending:  # its owner has not decided them yet
        waiting = DryRun(client.store, client.answers, execution, now, client.clock.wall() - now)
        pending = await waiting.waiting()
    mask = await run_views.mask_of(client.store, execution)
    return _run_facts(shown, await Ownership.of(client, [shown]), execution, mask, status.waits, now, pending)


def _run_facts(
    row: RunRow,
    owners: Ownership,
    execution: Execution,
    mask: Mask,
    waits: Sequence[Wait],
    now: Instant,
    pending: Sequence[Pending] = (),
) -> dict[str, Any]:
    state = execution.state
    facts = {
        **run_item_json(row, owners),
        "started_by": who_json(state.started_by),
        "tasks": {"done": state.tasks_ended, "open": count_open_tasks(state)},
        "waits_for": [wait.text(now) for wait in waits],
        "pending": [message.plain() for message in pending],
        "error": error_json(state.outcome),
        "stuck": row.stuck or None,
        "has_streams": execution.dialect.has_streams(execution),
    }
    shown: dict[str, Any] = mask.data(facts)
    return shown


class NewRunFacts:
    """A new run as the API shows it, as its first commit left it: nothing has to be read back."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._facts: dict[str, Any] | None = None

    def seen(self, row: RunRow, execution: Execution) -> None:
        waits, mask = waits_at_hand(self._client, execution), run_views.mask_at_hand(execution)
        if waits is not None and mask is not None:
            owners = Ownership(frozenset((row.partition,)))
            self._facts = _run_facts(row, owners, execution, mask, waits, self._client.clock.now())

    async def json(self, run: RunId) -> dict[str, Any]:
        runtime = self._client.runtime
        if self._facts is None or (runtime is not None and runtime.waiting_for_provider(run)):
            return await run_facts_json(self._client, run)
        return self._facts


def who_json(who: tuple[str, str] | None) -> dict[str, str] | None:
    """Who started a run, and how that is known; None if another run did, or nobody wrote it down."""
    return None if who is None else {"name": who[0], "via": who[1]}


def error_json(outcome: Outcome | None) -> dict[str, Any] | None:
    """Why a run did not end well."""
    match outcome:
        case Failed(code, message, _, details):
            shown: dict[str, Any] = {"code": code, "message": message}
            return shown if details is None else {**shown, "details": jsontext.decode(details)}
        case Cancelled(reason):
            return {"code": "Cancelled", "message": reason}
        case _:
            return None


async def run_result_json(client: Client, run: RunId, wait: float = 0) -> dict[str, Any] | None:
    """How the run ended, with its value or its error; None while it has not, after waiting so many seconds."""
    try:
        async with asyncio.timeout(wait or 0.001):
            if not (await client.find(run)).status.is_final and not wait:
                return None
            status, outcome = await client.wait(run)
    except TimeoutError:
        return None
    row = await client.find(run)
    mask = await run_views.mask_of_run(client.store, client.languages, row)
    answer: dict[str, Any] = {"id": run, "status": status.value}
    if isinstance(outcome, Succeeded) and status.has_result:
        text = await client.text(run, outcome.value)
        return {**answer, "value": await done_aside(len(text), lambda: jsontext.decode(mask.json(text)))}
    details = outcome.details if isinstance(outcome, Failed) else None
    size = len(details) if isinstance(details, bytes) else 0
    return {**answer, "error": await done_aside(size, lambda: mask.data(error_json(outcome)))}
