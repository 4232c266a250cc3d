"""Runs as `perdure ps` lists them: by page, with what is pending, who drives them, and why they wait or failed."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from perdure.engine.client import Client
from perdure.engine.runs.dry_run import Pending
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.views.access import Access, Query, Question, Scope
from perdure.views.administration.server_presence import is_served
from perdure.views.runs.run_list import (
    Ownership,
    PendingByRun,
    RunFilter,
    RunRow,
    short_ids,
    with_pending_messages,
)
from perdure.views.runs.run_overview import brief_reason
from perdure.views.runs.run_pages import FIRST, read_cursor, read_label, read_statuses, write_cursor
from perdure.views.times import iso, read_time

PAGE = 1_000  # runs that a server lists at once
EXPLAINED = 30  # runs for which a list says why they failed or wait


class ListedRun(msgspec.Struct):
    id: RunId
    language: str
    name: str
    namespace: str
    parent: RunId | None
    labels: dict[str, str]
    status: Status  # with what is pending
    recorded: Status
    created_at: Instant
    ended_at: Instant | None
    stuck: str | None
    is_live: bool
    pending: list[Pending]
    reason: str = ""
    short_id: str = ""

    def plain(self) -> dict[str, Any]:
        """One object of `ps --json`; `resume` gives the same for the runs that it followed."""
        return {
            "id": self.id,
            "status": self.status,
            "language": self.language,
            "name": self.name,
            "namespace": self.namespace,
            "parent": self.parent,
            "labels": self.labels,
            "created_at": iso(self.created_at),
            "ended_at": iso(self.ended_at),
            "live": self.is_live,
            "stuck": self.stuck or None,
            "pending": [message.plain() for message in self.pending],
        }


class RunListing(msgspec.Struct):
    runs: list[ListedRun]
    next: str
    now: Instant
    is_served: bool


class ListQuery(Query):
    """`explain`: also say why runs wait or failed, and how their ids can be shortened."""

    status: list[str] = msgspec.field(default_factory=list)
    name: str | None = None
    label: list[str] = msgspec.field(default_factory=list)
    namespace: str | None = None
    started_after: str | None = None
    started_before: str | None = None
    roots: bool = False
    explain: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE)] | None = None
    cursor: str | None = None


def listed_run(row: RunRow, shown: RunRow, owners: Ownership, pending: PendingByRun) -> ListedRun:
    return ListedRun(
        id=row.id,
        language=row.language,
        name=row.name,
        namespace=row.namespace,
        parent=row.parent,
        labels=row.labels,
        status=shown.status,
        recorded=row.status,
        created_at=row.created_at,
        ended_at=shown.ended_at,
        stuck=row.stuck,
        is_live=owners.is_live(shown),
        pending=list(pending.get(row.id, ())),
    )


async def read_listing(client: Client, scope: Scope, query: ListQuery) -> RunListing:
    asked = RunFilter(
        statuses=read_statuses(query.status),
        name=query.name,
        labels=dict(map(read_label, query.label)),
        created_after=read_time(query.started_after),
        created_before=read_time(query.started_before),
        namespaces=scope.namespaces,
        roots_only=query.roots,
    )
    behind = FIRST if query.cursor is None else read_cursor(query.cursor, asked)
    rows = await client.search(msgspec.structs.replace(asked, limit=query.limit, behind=behind))
    is_more = query.limit is not None and len(rows) == query.limit
    owners = await Ownership.of(client, rows)
    shown, pending = await with_pending_messages(client, rows, owners)
    runs = [listed_run(row, later, owners, pending) for row, later in zip(rows, shown, strict=True)]
    if query.explain:
        await _explain(client, runs, shown)
    return RunListing(
        runs,
        write_cursor((rows[-1].created_at, rows[-1].id), asked) if is_more else "",
        client.clock.now(),
        await is_served(client),
    )


_EXPLAINED_STATUSES = (Status.FAILED, Status.TIMED_OUT, Status.CANCELLED, Status.WAITING, Status.RUNNING)


async def _explain(client: Client, runs: Sequence[ListedRun], rows: Sequence[RunRow]) -> None:
    """The first runs in the list that are worth a word."""
    ids = await short_ids(client, rows)
    explained = 0
    for run, row in zip(runs, rows, strict=True):
        run.short_id = ids[run.id]
        if explained < EXPLAINED and run.status in _EXPLAINED_STATUSES and not run.stuck and not run.pending:
            run.reason = await brief_reason(client, row)
            explained += 1


LISTING = Question(
    "list_runs_at_a_glance", "/runs:listing", "runs as `ps` lists them", ListQuery, RunListing, read_listing
)


async def list_all(access: Access, query: ListQuery, limit: int | None = None) -> RunListing:
    """Every run that the query finds, the latest first; a server is asked page by page."""
    if not access.is_remote:
        return await access.ask(LISTING, msgspec.structs.replace(query, limit=limit))
    runs: list[ListedRun] = []
    page = RunListing([], query.cursor or "", 0, True)
    while limit is None or len(runs) < limit:
        most = PAGE if limit is None else min(PAGE, limit - len(runs))
        page = await access.ask(LISTING, msgspec.structs.replace(query, limit=most, cursor=page.next or None))
        runs += page.runs
        if not page.next:
            break
    return msgspec.structs.replace(page, runs=runs)


def run_json(row: RunRow, owners: Ownership, pending: PendingByRun) -> dict[str, Any]:
    return listed_run(row, row, owners, pending).plain()


async def list_recent(access: Access, query: ListQuery, ended: int, counted: int) -> tuple[RunListing, int]:
    """Open runs and the latest ended ones, and how many more have ended; of those at most `counted` are counted."""
    final = [status.value for status in Status if status.is_final]
    open_runs = await list_all(
        access, msgspec.structs.replace(query, status=[status.value for status in Status if not status.is_final])
    )
    over = await list_all(access, msgspec.structs.replace(query, status=final), ended)
    rest = 0
    if over.next:
        more = msgspec.structs.replace(query, status=final, cursor=over.next, explain=False)
        rest = len((await list_all(access, more, counted)).runs)
    runs = sorted([*open_runs.runs, *over.runs], key=lambda run: (run.created_at, run.id), reverse=True)
    return msgspec.structs.replace(over, runs=runs), rest
