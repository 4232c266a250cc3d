"""Short reads, made directly on the event loop: they are served from the page cache."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
from msgspec.structs import replace

from perdure.kernel.documents.lookups import PermitQueue
from perdure.kernel.json_values.values import Instant, RunId
from perdure.kernel.outcomes import Status
from perdure.stores.commit_types import LARGE, DeliveredMessage, Message
from perdure.stores.protocol import RunFilter, RunRow, StoredRun
from perdure.stores.rows import MOST_WALKS, RUN_NAMESPACES, needs_namespaces, run_row
from perdure.stores.sqlite.database import explain, open_for_reading
from perdure.stores.sqlite.file_permissions import make_private
from perdure.stores.sqlite.run_search import RUN_ROW, search_rows
from perdure.stores.sqlite.store_part import StorePart

_VALUE = "FROM large_values WHERE run = (SELECT number FROM runs WHERE id = ?) AND digest = ?"

T = TypeVar("T")


def _read_value(id: int, connection: apsw.Connection) -> bytes | None:
    """A large one, in a thread and without the interpreter: 60 MB take a tenth of a second. None: it is gone."""
    try:
        blob = connection.blob_open("main", "large_values", "text", id, False)
    except apsw.SQLError:
        return None
    text = blob.read()
    blob.close()
    return text


class StoreReads(StorePart):
    """The reading verbs of a store that can answer a query."""

    _vfs: str | None

    async def line(self, scope: str, run: RunId) -> PermitQueue:
        held, highest = self._read(
            "SELECT coalesce(sum(granted), 0),"
            " max(priority + iif(ageing > 0 AND NOT granted, (?1 - asked_at) / ageing, 0)) FILTER (WHERE run <> ?2)"
            " FROM permits WHERE scope = ?3",
            (self._now(), run, scope),
        )[0]
        return PermitQueue(held, highest)

    async def find(self, run: RunId) -> RunRow | None:
        rows = self._read(RUN_ROW + "WHERE id = ?", (run,))
        return run_row(rows[0]) if rows else None

    async def run_named(self, language: str, namespace: str, name: str) -> RunId | None:
        query = "SELECT coalesce(heir, run) FROM names WHERE language = ? AND namespace = ? AND name = ?"
        return next((id for (id,) in self._read(query, (language, namespace, name))), None)

    async def find_by_prefix(self, prefix: str, namespaces: Sequence[str] | None = None) -> list[RunId]:
        beginning, _, end = prefix.partition("…")
        seen = "" if namespaces is None else f" AND namespace IN ({', '.join('?' * len(namespaces))})"
        query = f"SELECT id FROM runs WHERE id GLOB ? AND instr(substr(id, ?), '.') = 0{seen} LIMIT 3"
        pattern = f"{literal(beginning)}*{literal(end)}"
        return [id for (id,) in self._read(query, (pattern, len(beginning) + 1, *(namespaces or ())))]

    async def load(self, runs: Sequence[RunId]) -> list[StoredRun]:
        stored = []
        for run in runs:
            rows = self._read(RUN_ROW + "WHERE id = ?", (run,))
            if not rows:
                continue
            snapshot = self._read(
                "SELECT seq, body FROM snapshots WHERE run = (SELECT number FROM runs WHERE id = ?)", (run,)
            )
            tail = self._read(
                "SELECT seq, body FROM log WHERE run = (SELECT number FROM runs WHERE id = ?) AND seq > ? ORDER BY seq",
                (run, snapshot[0][0] if snapshot else 0),
            )
            stored.append(StoredRun(run_row(rows[0]), snapshot[0] if snapshot else None, tail))
        return stored

    async def history(self, run: RunId, after: int = 0, limit: int | None = None) -> list[tuple[int, bytes]]:
        return self._read(
            "SELECT seq, body FROM log WHERE run = (SELECT number FROM runs WHERE id = ?) AND seq > ?"
            " ORDER BY seq LIMIT ?",
            (run, after, -1 if limit is None else limit),
        )

    async def program(self, digest: bytes) -> tuple[str, bytes] | None:
        rows = self._read("SELECT language, text FROM programs WHERE digest = ?", (digest,))
        return (rows[0][0], rows[0][1]) if rows else None

    async def values(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        texts = {}
        for digest in digests:
            for id, text in self._read(f"SELECT id, iif(length(text) <= ?, text, NULL) {_VALUE}", (LARGE, run, digest)):
                if text is None:
                    text = await self._aside(partial(_read_value, id))
                if text is not None:
                    texts[digest] = text
        return texts

    async def value_sizes(self, run: RunId, digests: Sequence[bytes]) -> dict[bytes, int]:
        rows = [self._read(f"SELECT digest, length(text) {_VALUE}", (run, digest)) for digest in digests]
        return dict(row for some in rows for row in some)

    async def stream_rows(self, run: RunId, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        return self._read(
            "SELECT key, body FROM stream_rows WHERE run = (SELECT number FROM runs WHERE id = ?1)"
            " AND key >= ?2 AND substr(key, 1, ?3) = ?2 ORDER BY key",
            (run, prefix, len(prefix)),
        )

    async def search(self, filter: RunFilter) -> list[RunRow]:
        if needs_namespaces(filter):
            namespaces = [namespace for (namespace,) in self._read(RUN_NAMESPACES)]
            if len(namespaces) < MOST_WALKS:
                filter = replace(filter, namespaces=namespaces)
        return [run_row(row) for row in await search_rows(self._read, filter)]

    async def count_runs(
        self, namespaces: Sequence[str] | None, begin: Instant, end: Instant, every: Instant, limit: int | None
    ) -> list[tuple[Instant, Status, int]]:
        among = "" if namespaces is None else f" AND namespace IN ({', '.join('?' * len(namespaces))})"
        if limit is None:
            query = (
                "SELECT hour / ?1 * ?1, status, sum(number) FROM run_counts"
                f" WHERE hour >= ?2 AND hour < ?3{among} GROUP BY 1, 2 HAVING sum(number) <> 0"
            )
            return await self._count_by_status(query, (every, begin, end, *(namespaces or ())))
        query = (
            "SELECT created_at / ?1 * ?1, status, count(*) FROM (SELECT created_at, status FROM runs"
            f" WHERE created_at >= ?2 AND created_at < ?3{among} ORDER BY created_at DESC LIMIT ?) GROUP BY 1, 2"
        )
        return await self._count_by_status(query, (every, begin, end, *(namespaces or ()), limit))

    async def _count_by_status(self, query: str, bindings: tuple[Any, ...]) -> list[tuple[Instant, Status, int]]:
        return [(start, Status(status), count) for start, status, count in await self._count(query, bindings)]

    async def count_programs(self, language: str, name: str | None = None) -> list[tuple[bytes, str, int]]:
        called, bindings = ("", (language,)) if name is None else (" AND name = ?", (language, name))
        return await self._count(
            f"SELECT program, name, count(*) FROM runs WHERE language = ?{called} GROUP BY 1, 2", bindings
        )

    async def _count(self, query: str, bindings: tuple[Any, ...]) -> list[Any]:
        """Of many rows: nobody else waits for it."""
        return await self._aside(lambda connection: list(connection.execute(query, bindings)))

    async def _aside(self, read: Callable[[apsw.Connection], T]) -> T:
        """What is read by a thread, over a connection of its own."""

        def work() -> T:
            connection = open_for_reading(self.path, self._vfs)
            try:
                return read(connection)
            finally:
                connection.close()

        try:
            return await asyncio.to_thread(work)
        except apsw.Error as error:
            raise explain(self.path, error) from error

    async def ended(self, languages: Sequence[str], after: tuple[Instant, RunId], limit: int) -> list[RunRow]:
        rows = self._read(
            RUN_ROW + "WHERE ended_at IS NOT NULL AND parent IS NULL AND (ended_at, id) > (?, ?)"
            f" AND language IN ({', '.join('?' * len(languages))}) ORDER BY ended_at, id LIMIT ?",
            (*after, *languages, limit),
        )
        return [run_row(row) for row in rows]

    async def runs_with_work(self, partitions: Sequence[int]) -> list[RunId]:
        return self._of_partitions(
            "SELECT id FROM runs WHERE has_work = 1 AND partition = ? ORDER BY number", partitions
        )

    def _of_partitions(self, query: str, partitions: Sequence[int]) -> list[RunId]:
        return [id for partition in partitions for (id,) in self._read(query, (partition,))]

    async def due(self, partitions: Sequence[int], until: Instant, limit: int, ahead: Instant = 0) -> list[RunId]:
        rows = {
            (due - clock, id)
            for partition in partitions
            for column, clock in (("due", 0), ("on_wall", ahead))
            for due, id in self._read(
                f"SELECT {column}, id FROM runs WHERE partition = ? AND has_work = 0 AND {column} <= ?"
                f" ORDER BY {column} LIMIT ?",
                (partition, until + clock, limit),
            )
        }
        return list(dict.fromkeys(id for _, id in sorted(rows)))[:limit]

    async def next_due(self, partitions: Sequence[int], after: Instant, ahead: Instant = 0) -> Instant | None:
        due_times = [
            due - clock
            for partition in partitions
            for column, clock in (("due", 0), ("on_wall", ahead))
            for (due,) in self._read(
                f"SELECT {column} FROM runs WHERE partition = ? AND has_work = 0 AND {column} > ?"
                f" ORDER BY {column} LIMIT 1",
                (partition, after + clock),
            )
        ]
        return min(due_times, default=None)

    async def waiting_permits(self, prefix: str, partitions: Sequence[int]) -> list[tuple[RunId, int, str]]:
        rows = self._read(
            "SELECT permits.run, permit, scope, partition FROM permits JOIN runs ON runs.id = permits.run"
            " WHERE granted = 0 AND scope GLOB ? ORDER BY scope, permits.run, permit",
            (f"{literal(prefix)}*",),
        )
        return [(run, permit, scope) for run, permit, scope, partition in rows if partition in partitions]

    async def inbox(self, partitions: Sequence[int], limit: int) -> list[DeliveredMessage]:
        rows = [
            row
            for partition in partitions
            for row in self._read(
                "SELECT position, partition, run, at, body FROM inbox WHERE partition = ? ORDER BY position LIMIT ?",
                (partition, limit),
            )
        ]
        return [
            DeliveredMessage(position, partition, Message(run, at, body)) for position, partition, run, at, body in rows
        ]

    async def unstarted_children(self, run: RunId) -> list[RunId]:
        rows = self._read(
            "SELECT DISTINCT run FROM inbox WHERE run GLOB ? AND NOT EXISTS (SELECT 1 FROM runs WHERE id = inbox.run)",
            (f"{literal(run)}.*",),
        )
        return [id for (id,) in rows]

    async def messages(self, run: RunId) -> list[DeliveredMessage]:
        rows = self._read(
            "SELECT position, partition, at, body FROM inbox"
            " WHERE partition = (SELECT partition FROM runs WHERE id = ?1) AND run = ?1 ORDER BY position",
            (run,),
        )
        return [DeliveredMessage(position, partition, Message(run, at, body)) for position, partition, at, body in rows]

    async def is_undecided(self, sent: DeliveredMessage) -> bool:
        return bool(self._read("SELECT 1 FROM inbox WHERE position = ?", (sent.position,)))

    async def backup(self, target: str) -> None:
        def copy() -> None:
            source = open_for_reading(self.path, self._vfs)
            make_private(Path(target))
            destination = apsw.Connection(target)
            try:
                with destination.backup("main", source, "main") as copying:
                    while not copying.done:
                        copying.step(1_000)
            finally:
                destination.close()
                source.close()

        try:
            await asyncio.to_thread(copy)
        except apsw.Error as error:
            raise explain(Path(target), error) from error


def literal(prefix: str) -> str:
    """The text as GLOB sees it: its own special characters taken literally."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in prefix)
