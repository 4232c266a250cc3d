"""The change feed on SQLite: one transaction writes at a time, so positions are given in order of commit.

And the counts of runs by namespace, hour and status, which change with them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import apsw

from perdure.kernel.json_values.values import Instant
from perdure.kernel.outcomes import Status
from perdure.stores.feed_changes import FEED_COLUMNS, FOREVER, FeedPage, feed_change
from perdure.stores.sqlite.store_part import StorePart

_WRITTEN = FEED_COLUMNS.removeprefix("position, ")
_INTO = f"INSERT INTO feed ({_WRITTEN}) SELECT ?2, "
_OF_RUN = f"{_INTO}'run', namespace, id, "
_FACTS = ", language, name, parent, labels, created_at, "
_OF_WANTED = " FROM runs, feed_state WHERE number = ?1 AND feed_state.until > ?2"
_WANTED = f", NULL{_OF_WANTED}"

RUN_CREATED = f"{_OF_RUN} ?3, 0, status{_FACTS}ended_at{_WANTED}"
"""Number of the run, now, its events."""
RUN_CHANGED = f"{_OF_RUN} ?3, 0, ?4{_FACTS}?5{_WANTED} AND status <> ?4"
"""Number of the run, now, its events, status and end that are about to be written."""
RUN_SHOWN = f"{_INTO}iif(status = ?4, 'shown', 'run'), namespace, id, ?3, 0, ?4{_FACTS}?5{_WANTED}"
"""The same, of a run that is shown as a resource: also if its status stays as it is."""
RUN_MOVED = f"{_INTO}'shown', namespace, id, ?3, 0, status{_FACTS}ended_at{_WANTED}"
"""Number of such a run of which nothing but events is written, now, its events."""
RUN_REMOVED = (
    f"{_OF_RUN} coalesce((SELECT max(seq) FROM log WHERE run = ?1), 0), 1, status{_FACTS}ended_at, ?3{_OF_WANTED}"
)
"""Number of the run that is about to be removed, now, what it showed last."""
_ENTRY = (
    """CAST('{"uid":"' || uid || '","generation":' || generation || ',"created_at":' || created_at || ',"status":'"""
    """ || coalesce(CAST(status AS TEXT), 'null') || ',"managers":' || coalesce(CAST(managers AS TEXT), 'null')"""
    """ || ',"object":' || CAST(body AS TEXT) || '}' AS BLOB)"""
)
ENTRY_CHANGED = (
    f"INSERT INTO feed ({_WRITTEN}) SELECT ?4, kind, namespace, name, version, ?5, NULL, NULL, NULL, NULL, labels,"
    f" NULL, NULL, {_ENTRY} FROM resources, feed_state WHERE kind = ?1 AND namespace = ?2 AND name = ?3"
    " AND feed_state.until > ?4"
)
"""Kind, namespace and name of an entry, now, whether it is about to be removed."""

_STATE = "SELECT floor, max(floor, coalesce((SELECT max(position) FROM feed), 0)) FROM feed_state"


class RunCountChanges:
    """How the statuses change that one transaction writes, added up.

    Births and removals are counted by triggers. One for changes would make every change of a row three times as
    expensive: SQLite then writes each index of the row again.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._changes: Counter[tuple[str, Instant, str]] = Counter()

    def clear(self) -> None:
        self._changes.clear()

    def add(self, number: int, status: Status) -> None:
        """A run that is about to get this status."""
        query = "SELECT namespace, created_at - created_at % 3600000000, status FROM runs WHERE number = ?"
        namespace, hour, was = self._connection.execute(query, (number,)).get
        self._changes[namespace, hour, was] -= 1
        self._changes[namespace, hour, status.value] += 1

    def write(self) -> None:
        if self._changes:
            self._connection.executemany(
                "INSERT INTO run_counts VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET number = number + ?4",
                [(*which, by) for which, by in self._changes.items() if by],
            )


class StoredChangeFeed(StorePart):
    async def open_feed(self, until: Instant) -> FeedPage:
        def work() -> FeedPage:
            execute = self._connection.execute
            now = self._now()
            if execute("SELECT until FROM feed_state").get <= now:
                last = execute("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0)").get
                floor = max(last + 1, now)
                execute("DELETE FROM feed")
                execute(
                    "INSERT INTO feed (position, at, kind, namespace, name, number, is_removed)"
                    " VALUES (?, 0, '', '', '', 0, 0)",
                    (floor,),
                )
                execute("DELETE FROM feed")  # its number is not given again
                execute("UPDATE feed_state SET floor = ?", (floor,))
            execute(
                "UPDATE feed_state SET until = CASE WHEN EXISTS (SELECT 1 FROM hooks) THEN ?1"
                " WHEN until = ?1 THEN ?2 ELSE max(until, ?2) END",
                (FOREVER, until),
            )
            rows: list[Any] = execute(_STATE).fetchall()
            return FeedPage(*rows[0])

        return await self._explained_transaction(work)

    async def read_feed(self, after: int, limit: int) -> FeedPage:
        """Changes first: if the floor is below the position afterwards, none of them was missing."""
        rows = self._read(
            f"SELECT {FEED_COLUMNS} FROM feed WHERE position > ? ORDER BY position LIMIT ?", (after, limit)
        )
        ((floor, last),) = self._read(_STATE)
        return FeedPage(floor, last, [feed_change(row) for row in rows])

    async def has_changed(self, after: int, kinds: Sequence[str], namespace: str, name: str) -> bool:
        query = (
            "SELECT EXISTS (SELECT 1 FROM feed WHERE position > ? AND namespace = ? AND name = ?"
            f" AND kind IN ({', '.join('?' * len(kinds))}))"
        )
        return bool(self._read(query, (after, namespace, name, *kinds))[0][0])

    async def is_feed_open(self) -> bool:
        until: Instant = self._read("SELECT until FROM feed_state")[0][0]
        return until > self._now()

    async def trim_feed(self, before: Instant, limit: int) -> int:
        oldest = "SELECT position, at FROM feed ORDER BY position LIMIT ?"
        unread = "position <= coalesce((SELECT min(position) FROM hooks), position)"
        (last,) = self._read(f"SELECT max(position) FROM ({oldest}) WHERE at < ? AND {unread}", (limit, before))[0]
        if last is None:
            return 0

        def work() -> int:
            removed = len(
                self._connection.execute("DELETE FROM feed WHERE position <= ? RETURNING 1", (last,)).fetchall()
            )
            self._connection.execute("UPDATE feed_state SET floor = max(floor, ?)", (last,))
            return removed

        return await self._explained_transaction(work, removes=True)
