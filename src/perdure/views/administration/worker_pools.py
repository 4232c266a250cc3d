"""Pools and their workers: who was seen, what waits, and why nobody takes it."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.providers.remote_steps import RemoteStep
from perdure.stores.pool_tasks import LeaseRequest, PoolBacklog, WorkerRow
from perdure.views.times import iso, span

if TYPE_CHECKING:
    from perdure.engine.client import Client

SYSTEM = "system"  # PBK-197: only tokens for this very pool
GONE_AFTER: Instant = 60 * SECOND  # a worker that was not seen for so long has left
FORGOTTEN_AFTER: Instant = 86_400 * SECOND
MANY_RELEASES = 10
MOST_NAMES = 1_000  # of workers of one token, in all its pools
LONGEST_OFFER = 64 * 1024  # characters of all providers that a worker offers


class LeaseAsking(Protocol):
    worker: str
    pools: list[str]
    providers: list[str] | None
    opens: list[str]
    slots: int | None


class StreamingStep(msgspec.Struct, frozen=True):
    """A streaming step that a worker is doing."""

    run: str
    step: str
    provider: str
    since: Instant


class StreamConnection(msgspec.Struct):
    """A worker that is connected to this server, for one streaming step; `step` is None while it waits for one."""

    worker: str
    pools: list[str]
    providers: list[str] | None
    step: StreamingStep | None = None
    opens: list[str] = []
    slots: int | None = None


class WorkerPresence:
    """Workers that this server has seen; written down now and then, so that every server knows them."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._rows: dict[tuple[str, str], WorkerRow] = {}
        self._changed: set[tuple[str, str]] = set()
        self._waiting: dict[int, LeaseRequest] = {}
        self._streams: list[StreamConnection] = []

    def note(self, asked: LeaseAsking, holder: str) -> None:
        """Who asks for work; of the names that a token makes up, so many are remembered, which changes nothing else."""
        now, offers, opens = self._client.clock.now(), json.dumps(asked.providers), json.dumps(asked.opens)
        for pool in asked.pools:
            known = self._rows.get((pool, asked.worker))
            if known is None and sum(row.holder == holder for row in self._rows.values()) >= MOST_NAMES:
                return
            self._put(WorkerRow(pool, asked.worker, holder, offers, opens, asked.slots or 1, now))

    def _put(self, row: WorkerRow) -> None:
        self._rows[row.pool, row.name] = row
        self._changed.add((row.pool, row.name))

    @contextmanager
    def waiting(self, request: LeaseRequest) -> Iterator[None]:
        """Whoever waits for work is there."""
        self._waiting[id(request)] = request
        try:
            yield
        finally:
            self._waiting.pop(id(request), None)

    @contextmanager
    def streaming(self, connection: StreamConnection, holder: str) -> Iterator[None]:
        """Whoever is connected is there, also one that never asks for tasks."""
        if any((pool, connection.worker) not in self._rows for pool in connection.pools):
            self.note(connection, holder)
        self._streams.append(connection)
        try:
            yield
        finally:
            self._streams = [other for other in self._streams if other is not connection]
            if not any(other.worker == connection.worker for other in self._streams):
                self.left(connection.worker, connection.pools, holder)  # one that asks for tasks is seen again

    def steps_of(self, worker: str, pool: str) -> list[dict[str, Any]]:
        """The streaming steps that a worker of this pool does at this server."""
        connections = [stream for stream in self._streams if stream.worker == worker and pool in stream.pools]
        steps = [connection.step for connection in connections if connection.step is not None]
        return [
            {"run": step.run, "step": step.step, "provider": step.provider, "since": iso(step.since)} for step in steps
        ]

    def began(self, connection: StreamConnection, run: str, step: str, provider: str) -> None:
        connection.step = StreamingStep(run, step, provider, self._client.clock.now())

    def seen(self, worker: str, pools: Iterable[str]) -> None:
        for pool in pools:
            if row := self._rows.get((pool, worker)):
                self._put(replace(row, seen_at=self._client.clock.now(), left_at=None))

    def left(self, worker: str, pools: Iterable[str], holder: str) -> None:
        now = self._client.clock.now()
        for pool in pools:
            if (row := self._rows.get((pool, worker))) and row.holder == holder:
                self._put(replace(row, seen_at=now, left_at=now))

    async def write(self) -> None:
        for request in list(self._waiting.values()):
            self.seen(request.worker, request.pools)
        for connection in self._streams:
            self.seen(connection.worker, connection.pools)
        changed, self._changed = self._changed, set()
        rows = [self._rows[key] for key in changed]
        if rows:
            now = self._client.clock.now()
            try:
                await self._client.store.note_workers(rows, now - FORGOTTEN_AFTER)
            except PerdureError:
                self._changed |= changed
                return
            gone = [key for key, row in self._rows.items() if row.seen_at < now - FORGOTTEN_AFTER]
            for key in gone:
                del self._rows[key]


def is_present(row: WorkerRow, now: Instant) -> bool:
    return row.left_at is None and now - row.seen_at < GONE_AFTER


def _offers(row: WorkerRow, provider: str, opener: str) -> bool:
    providers = json.loads(row.providers)
    return (providers is None or provider in providers) and (not opener or opener in json.loads(row.opens))


async def list_workers(client: "Client", presence: WorkerPresence) -> list[dict[str, Any]]:
    """All that were seen in the last day, by any server; `streams` are steps that a worker does at this one."""
    now = client.clock.now()
    return [
        {
            "name": row.name,
            "pool": row.pool,
            "token": row.holder,
            "providers": json.loads(row.providers),
            "opens": json.loads(row.opens),
            "slots": row.slots,
            "seen_at": iso(row.seen_at),
            "present": is_present(row, now),
            "streams": presence.steps_of(row.name, row.pool),
        }
        for row in await client.store.workers()
        if row.pool
    ]


async def list_pools(
    client: "Client",
    routes: Mapping[str, str],
    namespaces: Sequence[str] | None = None,
    steps: Sequence[RemoteStep] = (),
) -> list[dict[str, Any]]:
    """Every pool that a route, a task or a worker names; of limited namespaces their tasks count, and no worker.

    `steps` are streaming steps at this server that no worker does.
    """
    steps = [step for step in steps if namespaces is None or step.namespace in namespaces]
    now = client.clock.now()
    workers = [row for row in await client.store.workers() if row.pool] if namespaces is None else []
    backlogs = [
        backlog for backlog in await client.store.backlogs() if namespaces is None or backlog.namespace in namespaces
    ]
    names = sorted(
        {*routes.values(), *(backlog.pool for backlog in backlogs), *(row.pool for row in workers)}
        | {step.pool for step in steps}
    )
    pools = [_pool(name, routes, workers, backlogs, now) for name in names]
    for pool in pools:
        pool["waits"] += sorted({step.lack for step in steps if step.pool == pool["name"]})
    return pools


def _pool(
    name: str, routes: Mapping[str, str], workers: Sequence[WorkerRow], backlogs: Sequence[PoolBacklog], now: Instant
) -> dict[str, Any]:
    own = [backlog for backlog in backlogs if backlog.pool == name]
    present = [row for row in workers if row.pool == name and is_present(row, now)]
    oldest = min((backlog.oldest for backlog in own if backlog.oldest is not None), default=None)
    return {
        "name": name,
        "ready": sum(backlog.ready for backlog in own),
        "leased": sum(backlog.leased for backlog in own),
        "oldest_at": iso(oldest),
        "workers": len(present),
        "slots": sum(row.slots for row in present),
        "routes": sorted(provider for provider, pool in routes.items() if pool == name),
        "waits": [why for backlog in own if (why := why_nobody(backlog, workers, now))],
    }


def why_nobody(backlog: PoolBacklog, workers: Sequence[WorkerRow], now: Instant) -> str:
    """Why nobody takes what is ready; empty: somebody will, or nothing is."""
    if not backlog.ready:
        return ""
    able = [row for row in workers if row.pool == backlog.pool and _offers(row, backlog.provider, backlog.opener)]
    if any(is_present(row, now) for row in able):
        if backlog.releases < MANY_RELEASES:
            return ""
        return (
            f"workers of pool {backlog.pool} gave {backlog.provider} back {backlog.releases} times without beginning it"
        )
    what = f"offers {backlog.provider}" + (f" and opens {backlog.opener}" if backlog.opener else "")
    if not able:
        return f"no worker of pool {backlog.pool} {what}; none was seen in the last day"
    last = max(row.seen_at for row in able)
    return f"no worker of pool {backlog.pool} {what}; the last one left {span(now - last)} ago"


async def why_nobody_works(
    client: "Client", pools: Sequence[str], providers: Collection[str]
) -> list[tuple[PoolBacklog, str]]:
    """Why nobody takes tasks of these providers that wait in these pools."""
    now, workers = client.clock.now(), await client.store.workers()
    backlogs = [backlog for backlog in await client.store.backlogs(pools) if backlog.provider in providers]
    return [(backlog, why) for backlog in backlogs if (why := why_nobody(backlog, workers, now))]
