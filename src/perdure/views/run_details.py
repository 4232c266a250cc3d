"""One run as JSON data: everything that its language shows (`show`), or only how it stands (`status`)."""

from typing import Any

from perdure.engine import run_views
from perdure.engine.client import Client
from perdure.engine.dry_run import Pending
from perdure.kernel.execution import Execution
from perdure.kernel.values import RunId
from perdure.stores.protocol import RunRow
from perdure.views.run_status import RunStatus, status_of_execution
from perdure.views.times import iso


async def run_at(client: Client, run: RunId, at: int | None) -> tuple[RunRow, Execution, list[Pending]]:
    """The run as it is now, with what is pending; or as it was after event number `at`."""
    if at is None:
        return await client.outlook(run)
    row = await client.find(run)
    return row, await run_views.load(client.store, client.languages, row, at), []


async def show_json(client: Client, execution: Execution, pending: list[Pending], *, checksum: bool = False) -> Any:
    """The run in the shape of its language, with its pending messages."""
    picture = run_views.with_pending(await run_views.show(client.store, execution), pending)
    return {**picture, "checksum": run_views.checksum(execution)} if checksum else picture


async def status_json(client: Client, run: RunId) -> Any:
    """Status, times and what the run waits for, without what it has produced (PBK-213)."""
    row, execution, pending = await client.outlook(run)
    status = await status_of_execution(client, row, execution)
    facts = run_views.with_pending(await _status_facts(client, status, execution), pending)
    return (await run_views.mask_of(client.store, execution)).data(facts)


async def _status_facts(client: Client, status: RunStatus, execution: Execution) -> dict[str, Any]:
    state, dialect = execution.state, execution.dialect
    brief = dialect.brief(execution) or {"status": status.status}
    last_seq = state.seq
    if dialect.has_own_history:
        turns = await run_views.turns(client.store, dialect, execution.id)
        last_seq = sum(1 for _ in dialect.history(execution.id, turns))
    now = client.clock.now()
    return {
        "execution_id": execution.id,
        **brief,
        "waits_for": [wait.text(now) for wait in status.waits],
        "live": status.is_owned,
        "started_at": iso(state.started_at),
        "updated_at": iso(state.at),
        "ended_at": iso(state.ended_at),
        "last_seq": last_seq,
    }
