"""The change feed on PostgreSQL: rows get their positions from whoever sees them first, one reader at a time.

Commits become visible in no order that they could know themselves. A row is numbered once it is visible, under a lock
that is held until the numbers are committed: so no number below one that somebody has read appears later. Two changes
of one run are committed one after the other, and keep this order by their ids.
"""

from collections.abc import Sequence

from perdure.kernel.json_values.values import Instant
from perdure.stores.feed_changes import FEED_COLUMNS, FOREVER, FeedPage, feed_change
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.store_part import StorePart
from perdure.stores.postgres.wire import INT, INTS, TEXT, TEXTS, Kind, Statement

NUMBERED_AT_ONCE = 10_000

_WRITTEN = FEED_COLUMNS.removeprefix("position, ")
_INTO = f"INSERT INTO feed ({_WRITTEN})"

# Parts of a commit; see `commit_sql`.
CREATED = (
    f"{_INTO} SELECT n.at, 'run', b.namespace, b.id, n.seq, false, b.status, b.language, b.name, b.parent,"
    " b.labels::text, b.created_at, b.ended_at, NULL FROM go, feed_state f, unnest({}, {}, {}) AS n (number, seq, at)"
    " JOIN born b ON b.number = n.number WHERE f.until > n.at"
)
CREATED_KINDS: tuple[Kind, ...] = (INTS, INTS, INTS)
CHANGED = (
    f"{_INTO} SELECT n.at, CASE WHEN r.status <> n.status THEN 'run' ELSE 'shown' END, r.namespace, r.id, n.seq, false,"
    " coalesce(n.status, r.status), r.language, r.name, r.parent, r.labels::text, r.created_at,"
    " CASE WHEN n.status IS NULL THEN r.ended_at ELSE n.ended_at END, NULL"
    " FROM go, feed_state f, unnest({}, {}, {}, {}, {}, {}) AS n (id, seq, status, ended_at, at, is_shown)"
    " JOIN runs r ON r.id = n.id WHERE f.until > n.at AND (r.status <> n.status OR n.is_shown = 1)"
)
"""Id, events, status and end that are written (NULL: they stay), now, whether the run is shown as a resource."""
CHANGED_KINDS: tuple[Kind, ...] = (TEXTS, INTS, TEXTS, INTS, INTS, INTS)

REMOVED = (
    f"{_INTO} SELECT {{now}}, 'run', r.namespace, r.id, coalesce((SELECT max(seq) FROM log WHERE run = r.number), 0),"
    " true, r.status, r.language, r.name, r.parent, r.labels::text, r.created_at, r.ended_at, {view}"
    " FROM gone r, feed_state f WHERE f.until > {now}"
)
"""What is to be said of the runs of `gone`; `now`, and `view` of what they showed, are values of the statement."""

_ENTRY = (
    """convert_to('{{"uid":"' || uid || '","generation":' || generation || ',"created_at":' || created_at"""
    """ || ',"status":' || coalesce(convert_from(status, 'UTF8'), 'null') || ',"managers":'"""
    """ || coalesce(convert_from(managers, 'UTF8'), 'null') || ',"object":'"""
    """ || convert_from(body, 'UTF8') || '}}', 'UTF8')"""
)
ENTRY_CHANGED = Statement(
    f"{_INTO} SELECT {{0}}, kind, namespace, name, version, {{1}} = 1, NULL, NULL, NULL, NULL, labels::text, NULL,"
    f" NULL, {_ENTRY} FROM resources, feed_state f"
    " WHERE kind = {2} AND namespace = {3} AND name = {4} AND f.until > {0}",
    INT,
    INT,
    TEXT,
    TEXT,
    TEXT,
)

# Commits that do not know yet that changes are wanted end first.
_WAIT_FOR_COMMITS = "LOCK TABLE runs, resources IN SHARE MODE"
_UNTIL = Statement("SELECT until FROM feed_state FOR UPDATE")
_BEGIN = Statement("UPDATE feed_state SET floor = greatest(last + 1, {0}), last = greatest(last + 1, {0})", INT)
_EMPTY = Statement("DELETE FROM feed")
_WANT = Statement(
    "UPDATE feed_state SET until = CASE WHEN EXISTS (SELECT 1 FROM hooks) THEN {1} WHEN until = {1} THEN {0}"
    " ELSE greatest(until, {0}) END RETURNING floor, last",
    INT,
    INT,
)

_STATE = Statement(
    "SELECT floor, last, EXISTS (SELECT 1 FROM feed WHERE position IS NULL) FROM feed_state",
)
_HAS_CHANGED = Statement(
    "SELECT EXISTS (SELECT 1 FROM feed WHERE (position > {} OR position IS NULL) AND kind = ANY({})"
    " AND namespace = {} AND name = {})",
    INT,
    TEXTS,
    TEXT,
    TEXT,
)
_IS_OPEN = Statement("SELECT until > {} FROM feed_state", INT)
_LOCK = Statement("SELECT pg_advisory_xact_lock(1346720323, 2)")
_NUMBER = Statement(
    "WITH seen AS MATERIALIZED (SELECT id, row_number() OVER (ORDER BY id) AS place FROM"
    " (SELECT id FROM feed WHERE position IS NULL ORDER BY id LIMIT {}) AS unnumbered),"
    " state AS (UPDATE feed_state SET last = last + (SELECT count(*) FROM seen)"
    " RETURNING last - (SELECT count(*) FROM seen) AS before)"
    " UPDATE feed SET position = state.before + seen.place FROM seen, state WHERE feed.id = seen.id",
    INT,
)
_CHANGES = Statement(f"SELECT {FEED_COLUMNS} FROM feed WHERE position > {{}} ORDER BY position LIMIT {{}}", INT, INT)
_OLDEST = Statement(
    "SELECT max(position) FROM (SELECT position, at FROM feed WHERE position IS NOT NULL ORDER BY position LIMIT {})"
    " AS oldest WHERE at < {} AND position <= coalesce((SELECT min(hooks.position) FROM hooks), position)",
    INT,
    INT,
)
_TRIM = Statement("DELETE FROM feed WHERE position <= {} RETURNING 1", INT)
_RAISE_FLOOR = Statement("UPDATE feed_state SET floor = greatest(floor, {})", INT)


class StoredChangeFeed(StorePart):
    async def open_feed(self, until: Instant) -> FeedPage:
        def work(session: Session, again: bool) -> FeedPage:
            with session.transaction():
                now = self._now()
                if session.run(_UNTIL)[0][0] <= now:
                    session.execute(_WAIT_FOR_COMMITS)
                    session.run(_BEGIN, now)
                    session.run(_EMPTY)
                return FeedPage(*session.run(_WANT, until, FOREVER)[0])

        return await self._write_aside(work)

    async def read_feed(self, after: int, limit: int) -> FeedPage:
        floor, last, is_unnumbered = (await self._read(_STATE))[0]
        if is_unnumbered:
            await self._write_aside(_number)
        elif last <= after:
            return FeedPage(floor, last)
        # Changes first: if the floor is below the position afterwards, none of them was missing.
        rows = await self._read(_CHANGES, after, limit)
        floor, last, _ = (await self._read(_STATE))[0]
        return FeedPage(floor, last, [feed_change(row) for row in rows])

    async def has_changed(self, after: int, kinds: Sequence[str], namespace: str, name: str) -> bool:
        return bool((await self._read(_HAS_CHANGED, after, kinds, namespace, name))[0][0])

    async def is_feed_open(self) -> bool:
        return bool((await self._read(_IS_OPEN, self._now()))[0][0])

    async def trim_feed(self, before: Instant, limit: int) -> int:
        def work(session: Session, again: bool) -> int:
            with session.transaction():
                last = session.run(_OLDEST, limit, before)[0][0]
                if last is None:
                    return 0
                removed = len(session.run(_TRIM, last))
                session.run(_RAISE_FLOOR, last)
                return removed

        return await self._write_aside(work)


def _number(session: Session, again: bool) -> None:
    with session.transaction():
        session.run(_LOCK)
        session.run(_NUMBER, NUMBERED_AT_ONCE)
