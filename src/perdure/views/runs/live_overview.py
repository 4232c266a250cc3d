"""All runs of a store at a glance: how many in which status, how fast they come and go, their owners, their waits.

Counts come from the database's own figures. Reasons are read for the runs that are listed, and no others. A topology at
a glance: what flows through each of its steps, what waits, what was dropped; numbers are at most a second old.
"""

import asyncio
import pkgutil
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

import msgspec

from perdure.engine.client import Client
from perdure.engine.clock import Clock
from perdure.engine.runs import run_views
from perdure.kernel.errors import NewerRecord
from perdure.kernel.json_values.values import SECOND, Instant, RunId
from perdure.kernel.outcomes import OPEN_STATUSES, Status
from perdure.services import LATEST_PACKETS
from perdure.stores.admin import StoreStatistics
from perdure.stores.protocol import Store
from perdure.views.access import Query, Question, Scope
from perdure.views.errors import BadRequest
from perdure.views.runs.run_list import Ownership, RunFilter, RunRow, short_ids, with_pending_messages
from perdure.views.runs.run_overview import brief_reason_of
from perdure.views.runs.run_pages import FIRST
from perdure.views.runs.run_status import status_of_execution
from perdure.views.times import EARLIEST, iso, read_instant, read_span, read_time

MOST_LISTED = 50
RECENTLY_FAILED = 5
MOST_PACKETS = 200


class StatisticsSource(Protocol):
    @property
    def address(self) -> str: ...

    def statistics(self, with_tables: bool = True) -> StoreStatistics: ...


class LiveOverview:
    """Each look remembers the counts, from which the next one computes rates."""

    def __init__(self, client: Client, admin: StatisticsSource) -> None:
        self._client = client
        self._admin = admin
        self._before: dict[str, Any] | None = None  # the look before

    async def read(self, limit: int = MOST_LISTED) -> dict[str, Any]:
        frame = await self._read(limit)
        frame["rates"], self._before = rates_between(self._before, frame), frame
        return frame

    async def _read(self, limit: int) -> dict[str, Any]:
        statistics = await asyncio.to_thread(self._admin.statistics, with_tables=False)
        now = self._client.clock.now()
        runs = statistics.runs
        rows = await self._client.search(RunFilter(statuses=OPEN_STATUSES, roots_only=True, limit=limit, behind=FIRST))
        failed = await self._client.search(
            RunFilter(statuses=[Status.FAILED, Status.TIMED_OUT], roots_only=True, limit=RECENTLY_FAILED, behind=FIRST)
        )
        owners = await Ownership.of(self._client, rows)
        shown, _ = await with_pending_messages(self._client, rows, owners)
        ids = await short_ids(self._client, [*shown, *failed])
        waiting: Counter[str] = Counter()
        tasks: Counter[str] = Counter()
        listed = [await self._run(row, owners, ids[row.id], now, waiting, tasks) for row in [*shown, *failed]]
        return {
            "at": iso(now),
            "store": self._admin.address,
            "runs": {**runs.by_status, "open": runs.open, "stuck": runs.stuck, "unowned": runs.unowned},
            "rates": None,
            "waiting": dict(waiting.most_common()),
            "tasks": dict(tasks.most_common()),
            "owners": [
                {"name": owner.name, "live": owner.is_live, "partitions": len(owner.partitions)}
                for owner in statistics.owners
            ],
            "list": listed,
            "unlisted": max(0, runs.open - len(rows)),
        }

    async def _run(
        self,
        row: RunRow,
        owners: Ownership,
        short: str,
        now: Instant,
        waiting: "Counter[str]",
        tasks: "Counter[str]",
    ) -> dict[str, Any]:
        why = ""
        try:
            execution = await run_views.load(self._client.store, self._client.languages, row)
            status = await status_of_execution(self._client, row, execution)
            why = await brief_reason_of(self._client, status, execution)
            if not row.status.is_final:
                waiting.update({wait.reason.value for wait in status.awaited})
                tasks.update(status.tasks_open)
        except NewerRecord as error:
            why = str(error)
        return {
            "id": row.id,
            "short_id": short,
            "name": row.name,
            "language": row.language,
            "status": row.status,
            "live": owners.is_live(row),
            "age_seconds": max(0.0, (now - row.created_at) / SECOND),
            "why": f"stuck: {row.stuck}" if row.stuck else why,
        }


def rates_between(before: dict[str, Any] | None, frame: dict[str, Any]) -> dict[str, float] | None:
    """Per second between two looks; None at the first. What was removed meanwhile is not seen."""
    if before is None:
        return None
    seconds = (read_instant(frame["at"], 0) - read_instant(before["at"], 0)) / SECOND
    if seconds <= 0:
        return None
    (total, ended), (total_before, ended_before) = _totals(frame), _totals(before)
    return {
        "started": max(0.0, (total - total_before) / seconds),
        "ended": max(0.0, (ended - ended_before) / seconds),
    }


def _totals(frame: dict[str, Any]) -> tuple[int, int]:
    """Runs in all, and those that have ended."""
    total = sum(frame["runs"].get(status.value, 0) for status in Status)
    return total, total - frame["runs"]["open"]


class RemoteOverview:
    """The same from a server, which is asked for each look."""

    def __init__(self, ask: Callable[[int], Awaitable[dict[str, Any]]]) -> None:
        self._ask = ask
        self._before: dict[str, Any] | None = None

    async def read(self, limit: int = MOST_LISTED) -> dict[str, Any]:
        frame = await self._ask(limit)
        frame["rates"], self._before = rates_between(self._before, frame), frame
        return frame


class Showing(Protocol):
    """Where pictures of runs come from: a store, or a server."""

    async def show(self, run: RunId) -> Any: ...


class TopologyOverview:
    """Each look remembers the counts, from which the next one computes rates."""

    def __init__(self, client: Showing, run: RunId, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._run = run
        self._before: tuple[Instant, dict[str, tuple[int, int]]] | None = None  # when; by step: handed over, published

    async def read(self) -> dict[str, Any]:
        shown = await self._client.show(self._run)
        now = self._clock.now()
        frame = topology_json(self._run, shown, now)
        if not frame["steps"]:
            raise BadRequest(
                f"run {self._run} has no topology that could be shown",
                hint="Only streaming Stories have one; `perdure show` shows every run.",
            )
        before, self._before = self._before, (now, {step["step"]: _counts(step) for step in frame["steps"]})
        for step in frame["steps"]:
            step["rates"] = None if before is None else _rates(before, now, step)
        return frame


class TopologyQuery(Query):
    """`packets`: how many of the latest recorded packets are wanted."""

    packets: Annotated[int, msgspec.Meta(ge=0, le=MOST_PACKETS)] = 0


async def read_topology(client: Client, scope: Scope, query: TopologyQuery) -> dict[str, Any]:
    """The streams of a run as they are now; a run without streams has no steps here."""
    shown = await client.show(scope.run)
    latest = pkgutil.resolve_name(LATEST_PACKETS)
    packets = await asyncio.to_thread(latest, shown, query.packets) if query.packets else []
    return {**topology_json(scope.run, shown, client.clock.now()), "packets": packets}


TOPOLOGY = Question(
    "get_topology",
    "/runs/{id}/topology",
    "the streams of a run: their steps, edges and latest recorded packets",
    TopologyQuery,
    Any,
    read_topology,
)


def topology_json(run: RunId, shown: Any, now: Instant) -> dict[str, Any]:
    """Steps with their counts, and edges with what has passed them. Pictures of most runs have no such thing."""
    status = shown.get("status") if isinstance(shown, dict) else None
    states = status.get("stepStates", {}) if isinstance(status, dict) else {}
    streams = {name: state["stream"] for name, state in states.items() if isinstance(state.get("stream"), dict)}
    return {
        "at": iso(now),
        "run": run,
        "name": shown["metadata"]["name"] if streams else "",
        "phase": shown["status"]["phase"] if streams else "",
        "steps": [
            {"step": name, "phase": states[name]["phase"], **_numbers(stream, now)} for name, stream in streams.items()
        ],
        "edges": [
            {"from": upstream, "to": name, "passed": count}
            for name, stream in streams.items()
            for upstream, count in stream.get("from", {}).items()
        ],
    }


def _counts(step: dict[str, Any]) -> tuple[int, int]:
    return step["delivered"], step["published"]


def _rates(
    before: tuple[Instant, dict[str, tuple[int, int]]], now: Instant, step: dict[str, Any]
) -> dict[str, float] | None:
    """Messages per second since the last look."""
    seconds = (now - before[0]) / SECOND
    earlier = before[1].get(step["step"])
    if earlier is None or seconds <= 0:
        return None
    delivered, published = _counts(step)
    return {"in": max(0, delivered - earlier[0]) / seconds, "out": max(0, published - earlier[1]) / seconds}


def _numbers(stream: dict[str, Any], now: Instant) -> dict[str, Any]:
    watermark = stream.get("watermark")
    lag = None if watermark is None else max(0.0, (now - read_instant(watermark, now)) / SECOND)
    return {
        "state": stream.get("state", ""),
        "received": stream.get("received", 0),
        "delivered": stream.get("delivered", 0),
        "published": stream.get("published", 0),
        "waiting": stream.get("buffered", {}).get("messages", 0),
        "fill": stream.get("fill", 0),
        "unacked": stream.get("unacked", 0),
        "lag_seconds": lag,
        "last_packet_at": stream.get("lastPacketAt"),
        "worker": stream.get("worker", {}).get("name"),
        "awaits": stream.get("awaits", {}).get("message"),
        "errors": stream.get("errors", 0),
        "dropped": stream.get("dropped", {}),
        "paused": stream.get("paused", False),
    }


# Counts over time.

MOST_INTERVALS = 1_000
MOST_RUNS = 1_000_000  # that one answer counts run by run, the latest ones
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
SHORTEST = SECOND


class CountQuery(Query):
    """`every` is the length of an interval; intervals begin at multiples of it since 1970, in UTC."""

    by: str = "status"
    every: str = "1h"
    begin: str | None = msgspec.field(default=None, name="from")
    end: str | None = msgspec.field(default=None, name="to")
    namespace: str | None = None


async def read_counts(client: Client, scope: Scope, query: CountQuery) -> dict[str, Any]:
    """The last day by hour, unless the query says otherwise. Intervals without runs are not listed."""
    if query.by != "status":
        raise BadRequest(f"{query.by[:40]!r} is nothing that runs are counted by (expected status)")
    every = _read_interval(query.every)
    now = client.clock.wall()
    end = read_time(query.end) or now + 1
    begin = read_time(query.begin)
    begin = max((end - DAY) // every * every, EARLIEST) if begin is None else begin
    if begin >= end:
        raise BadRequest("`from` is not before `to`")
    if (end - begin) // every > MOST_INTERVALS:
        raise BadRequest(
            f"that would be more than {MOST_INTERVALS:,} intervals", hint="Ask for longer intervals, or a shorter time."
        )
    rows, is_complete = await _count(client.store, scope, (begin, end), every, is_until_now=query.end is None)
    intervals: dict[Instant, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for start, status, count in rows:
        counts = intervals.setdefault(start, {})
        counts[status.value] = counts.get(status.value, 0) + count
        totals[status.value] = totals.get(status.value, 0) + count
    return {
        "by": query.by,
        "every": every / SECOND,
        "from": iso(begin),
        "to": iso(end),
        "items": [{"at": iso(start), "counts": counts} for start, counts in sorted(intervals.items())],
        "totals": totals,
        "is_complete": is_complete,
    }


async def _count(
    store: Store, scope: Scope, span: tuple[Instant, Instant], every: Instant, *, is_until_now: bool
) -> tuple[list[tuple[Instant, Status, int]], bool]:
    """Whole hours are kept as counts; of other hours, and in shorter intervals, the runs are counted."""
    begin, end = span
    first = -(-begin // HOUR) * HOUR
    last = -(-end // HOUR) * HOUR if is_until_now else end // HOUR * HOUR
    parts = [span]
    rows = []
    if every % HOUR == 0 and first < last:
        rows = await store.count_runs(scope.namespaces, first, last, every, None)
        parts = [(begin, first), (last, end)]
    is_complete = True
    for part_begin, part_end in parts:
        if part_begin < part_end:
            counted = await store.count_runs(scope.namespaces, part_begin, part_end, every, MOST_RUNS)
            is_complete = is_complete and sum(count for _, _, count in counted) < MOST_RUNS
            rows += counted
    return rows, is_complete


def _read_interval(text: str) -> Instant:
    try:
        every = read_span(text)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if every < SHORTEST:
        raise BadRequest("an interval lasts a second at least")
    return every


COUNTS = Question("count_runs", "/stats", "how many runs were started when, by status", CountQuery, Any, read_counts)
