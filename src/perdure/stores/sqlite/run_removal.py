"""Messages to runs; and removing what nobody wants any more: whole runs, with all they have, and what no run names."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.kernel.json_values.values import Instant, RunId
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.errors import StoreFull
from perdure.stores.feed_changes import FOREVER
from perdure.stores.run_removal import NO_VIEWS, LastView
from perdure.stores.sqlite.change_feed import RUN_REMOVED
from perdure.stores.sqlite.store_part import StorePart

FORGOTTEN_AT_ONCE = 1_000
FEW = 5


# Its own, and those that it kept for children; what another keeps of it stays.
_NAMES = (
    "DELETE FROM names WHERE run >= ?1 AND run < ?1 || '/' AND (run = ?1 OR run >= ?1 || '.')"
    " AND (heir IS NULL OR heir = ?1) AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = names.run)"
)


# A run goes when it has ended and nothing that descends from it is left: leaves first.
_PRUNABLE = (
    "SELECT number, id FROM runs r WHERE ended_at < ?1 AND NOT EXISTS"
    " (SELECT 1 FROM runs c WHERE c.parent = r.id) AND (parent IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM runs p WHERE p.id = r.parent AND (p.ended_at IS NULL OR p.ended_at >= ?1)))"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = r.id AND inbox.is_word = 1)"
    " ORDER BY ended_at LIMIT ?2"
)
_REMOVABLE = (
    "SELECT number FROM runs r WHERE id = ?1 AND ended_at < ?2"
    " AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent = r.id)"
    " AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = r.id AND inbox.is_word = 1)"
    " AND coalesce(?3 = (SELECT max(seq) FROM log WHERE run = r.number), ?3 IS NULL)"
)


class StoredRunRemoval(StorePart):
    """The sending and removing verbs of a store that can run a transaction."""

    @abstractmethod
    async def _begin_log_anew(self) -> None: ...

    async def prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        """On a full disk a few at a time, or one by one, in the room that the log has: what goes makes more of it."""
        for fewer in (limit, min(limit, FEW)):
            try:
                return await self._prune(ended_before, fewer)
            except StoreFull:
                await self._begin_log_anew()
        return await self._prune(ended_before, 1)

    async def _prune(self, ended_before: Instant, limit: int) -> list[RunId]:
        def work() -> list[RunId]:
            execute = self._connection.execute
            removed: list[Any] = execute(_PRUNABLE, (ended_before, limit)).fetchall()
            for number, id in removed:
                self._erase(number, id)
            if not removed:
                self._erase_programs()
            execute(
                "DELETE FROM memories WHERE key IN (SELECT key FROM memories WHERE expires_at <= ? LIMIT ?)",
                (self._now(), FORGOTTEN_AT_ONCE),
            )
            return [id for _, id in removed]

        removed = await self._explained_transaction(work, removes=True)
        self._writer.forget()
        return removed

    async def prunable(self, ended_before: Instant, limit: int) -> list[RunId]:
        return [id for _, id in self._read(_PRUNABLE, (ended_before, limit))]

    async def remove(
        self,
        runs: Sequence[RunId],
        views: Mapping[RunId, LastView] = NO_VIEWS,
        ended_before: Instant | None = None,
    ) -> list[RunId]:
        until = FOREVER if ended_before is None else ended_before

        def work() -> list[RunId]:
            removed = []
            for id in runs:
                view = views.get(id)
                events = None if view is None else view.events
                number = self._connection.execute(_REMOVABLE, (id, until, events)).get
                if number is not None:
                    self._erase(number, id, None if view is None else view.body)
                    removed.append(id)
            return removed

        removed = await self._explained_transaction(work, removes=True)
        self._writer.forget()
        return removed

    async def send(self, message: Message) -> DeliveredMessage | None:
        def work() -> DeliveredMessage | None:
            if self._connection.execute("SELECT 1 FROM runs WHERE id = ?", (message.to,)).get is None:
                return None
            return self._writer.send(message, 0)

        return await self._explained_transaction(work)

    async def send_together(self, messages: Sequence[Message]) -> list[DeliveredMessage]:
        def work() -> list[DeliveredMessage]:
            delivered = []
            for message in messages:
                partition = self._connection.execute(
                    "SELECT coalesce((SELECT partition FROM runs WHERE id = ?1),"
                    " (SELECT partition FROM inbox WHERE run = ?1 ORDER BY position LIMIT 1))",
                    (message.to,),
                ).get
                if partition is not None:
                    delivered.append(self._writer.send(message, partition))
            return delivered

        return await self._explained_transaction(work)

    async def discard(self, positions: Sequence[int]) -> None:
        def work() -> None:
            self._connection.executemany(
                "DELETE FROM inbox WHERE position = ?", [(position,) for position in positions]
            )

        await self._explained_transaction(work)

    def _erase(self, number: int, id: RunId, view: bytes | None = None) -> None:
        execute = self._connection.execute
        execute(RUN_REMOVED, (number, self._now(), view))
        for table in ("log", "snapshots", "large_values", "stream_rows", "task_logs"):
            execute(f"DELETE FROM {table} WHERE run = ?", (number,))
        for table in ("inbox", "permits", "tasks"):
            execute(f"DELETE FROM {table} WHERE run = ?", (id,))
        execute("DELETE FROM runs WHERE number = ?", (number,))
        execute(_NAMES, (id,))

    def _erase_programs(self) -> None:
        """A document may be on its way to a child that is not there yet."""
        if self._connection.execute("SELECT count(*) FROM inbox").get == 0:
            self._connection.execute("DELETE FROM programs WHERE digest NOT IN (SELECT program FROM runs)")
