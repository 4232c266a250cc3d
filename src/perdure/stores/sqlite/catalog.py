"""The catalog on SQLite: entries with their generations, limits, and what runs remember for each other."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from perdure.kernel.documents.lookups import CachedValue, ResourceKey
from perdure.kernel.json_values.values import Instant
from perdure.kernel.tasks.permits import UNLIMITED, resource_scope
from perdure.stores.protocol import (
    CatalogConflict,
    Edition,
    EditionRow,
    EntryPage,
    Labels,
    ResourceRemoval,
    ResourceRow,
    ResourceWrite,
    SizedKey,
)
from perdure.stores.rows import (
    EDITION_COLUMNS,
    EDITION_ORDER,
    NAMESPACES,
    RESOURCE_COLUMNS,
    SIZED_KEY_COLUMNS,
    edition_row,
    encode_labels,
    resource_row,
    sized_key,
)
from perdure.stores.sqlite.change_feed import ENTRY_CHANGED, StoredChangeFeed

_ROW = f"SELECT {RESOURCE_COLUMNS} FROM resources "
_EDITIONS = f"SELECT {EDITION_COLUMNS} FROM resources AS r JOIN editions AS e ON e.uid = r.uid"
_IS_ONE = "(kind = ? AND namespace = ? AND name = ?)"
_IS = f"WHERE {_IS_ONE}"
KEYS_AT_ONCE = 100
ANSWERS_KEPT, BYTES_KEPT = 64, 64 << 10  # between two commits, and of each answer


def _size(row: ResourceRow) -> int:
    return len(row.body) + len(row.source) + len(row.status or b"") + len(row.managers or b"")


class StoredCatalog(StoredChangeFeed):
    """The catalog's verbs of a store that can read and run a transaction, and the feed that tells of its changes."""

    _read_at: int | None = None  # which commit was the last when `_rows_read` was begun
    _rows_read: dict[tuple[ResourceKey, ...], dict[ResourceKey, ResourceRow]]

    @abstractmethod
    def catalog_mark(self) -> int: ...

    async def write_catalog(self, changes: Sequence[ResourceWrite | ResourceRemoval]) -> CatalogConflict | None:
        def work() -> CatalogConflict | None:
            outdated = [change.key for change in changes if self._version(change.key) != change.seen]
            if outdated:
                return CatalogConflict(outdated)
            now = self._now()
            for change in changes:
                if isinstance(change, ResourceRemoval):
                    self._remove(change.key, now)
                else:
                    self._put(change, now)
            # Engines look after what is in the catalog, and runs wait for it.
            self._writer.sent_to.update(id for (id,) in self._connection.execute("SELECT id FROM partitions"))
            return None

        return await self._explained_transaction(work)

    def _version(self, key: ResourceKey) -> int:
        version: int | None = self._connection.execute(f"SELECT version FROM resources {_IS}", _bound(key)).get
        return version or 0

    def _put(self, change: ResourceWrite, now: Instant) -> None:
        execute = self._connection.execute
        version = execute("UPDATE catalog_version SET last = last + 1 RETURNING last").get
        execute(
            "INSERT INTO resources VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, coalesce(?12, 0), ?13)"
            " ON CONFLICT DO UPDATE SET uid = ?4, generation = ?5, version = ?6, body = ?7, source = ?8, labels = ?9,"
            " status = ?10, updated_at = ?11, from_api = coalesce(?12, from_api), managers = coalesce(?13, managers)",
            (
                *_bound(change.key),
                change.uid,
                change.generation,
                version,
                change.body,
                change.source,
                encode_labels(change.labels),
                change.status,
                now,
                change.from_api,
                change.managers,
            ),
        )
        execute(
            "INSERT INTO editions VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (change.uid, change.generation, change.body, change.source, now),
        )
        execute(ENTRY_CHANGED, (*_bound(change.key), now, 0))
        if not change.seen:
            self._open_scope(change.key, now)

    def _open_scope(self, key: ResourceKey, now: Instant) -> None:
        """Whoever waits for the entry is told, and so is whoever asks later."""
        scope = resource_scope(*_bound(key))
        self._connection.execute("INSERT INTO limits VALUES (?, ?) ON CONFLICT DO NOTHING", (scope, UNLIMITED))
        self._writer.allocate(scope, now)

    def _remove(self, key: ResourceKey, now: Instant) -> None:
        execute = self._connection.execute
        execute(ENTRY_CHANGED, (*_bound(key), now, 1))
        execute(f"DELETE FROM editions WHERE uid = (SELECT uid FROM resources {_IS})", _bound(key))
        execute(f"DELETE FROM resources {_IS}", _bound(key))
        execute("DELETE FROM limits WHERE scope = ?", (resource_scope(*_bound(key)),))

    async def set_limit(self, scope: str, limit: int | None) -> None:
        def work() -> None:
            if limit is None:
                self._connection.execute("DELETE FROM limits WHERE scope = ?", (scope,))
            else:
                self._connection.execute(
                    "INSERT INTO limits VALUES (?1, ?2) ON CONFLICT DO UPDATE SET capacity = ?2", (scope, limit)
                )
            self._writer.allocate(scope, self._now())

        await self._explained_transaction(work)

    async def resources(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        """Rows that were read are good until anybody commits: of many starts between two commits one reads them."""
        asked, mark = tuple(keys), self.catalog_mark()
        if mark != self._read_at:
            self._read_at = mark
            self._rows_read = {}
        known = self._rows_read.get(asked)
        if known is None:
            known = self._read_resources(asked)
            if len(self._rows_read) < ANSWERS_KEPT and sum(map(_size, known.values())) <= BYTES_KEPT:
                self._rows_read[asked] = known
        return dict(known)

    def _read_resources(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        rows: list[ResourceRow] = []
        for first in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[first : first + KEYS_AT_ONCE]
            bindings = tuple(part for key in some for part in _bound(key))
            rows += map(resource_row, self._read(f"{_ROW} WHERE {' OR '.join([_IS_ONE] * len(some))}", bindings))
        return {row.key: row for row in rows}

    async def list_resources(
        self, kind: str, namespace: str | None = None, labels: Labels = None, page: EntryPage | None = None
    ) -> list[ResourceRow]:
        return [resource_row(row) for row in self._list(RESOURCE_COLUMNS, kind, namespace, labels, page)]

    async def list_keys(self, kind: str, namespace: str | None = None, labels: Labels = None) -> list[SizedKey]:
        return [sized_key(row) for row in self._list(SIZED_KEY_COLUMNS, kind, namespace, labels)]

    def _list(
        self, columns: str, kind: str, namespace: str | None, labels: Labels, page: EntryPage | None = None
    ) -> list[tuple[Any, ...]]:
        conditions, bindings = ["kind = ?"], list[Any]([kind])
        if namespace is not None:
            conditions.append("namespace = ?")
            bindings.append(namespace)
        for name, value in (labels or {}).items():
            conditions.append("json_extract(labels, '$.' || json_quote(?)) = ?")
            bindings.extend((name, value))
        if page is not None:
            conditions.append("(namespace, name) > (?, ?)")
            bindings.extend(page[0])
        query = f"SELECT {columns} FROM resources WHERE {' AND '.join(conditions)} ORDER BY namespace, name"
        if page is not None:
            query += " LIMIT ?"
            bindings.append(page[1])
        return self._read(query, tuple(bindings))

    async def namespaces(self) -> list[str]:
        return [name for (name,) in self._read(NAMESPACES, ())]

    async def list_editions(self, kind: str, namespace: str, name: str | None = None) -> list[EditionRow]:
        called, bindings = ("", (kind, namespace)) if name is None else (" AND r.name = ?", (kind, namespace, name))
        rows = self._read(f"{_EDITIONS} WHERE r.kind = ? AND r.namespace = ?{called} {EDITION_ORDER}", bindings)
        return [edition_row(row) for row in rows]

    async def edition(self, key: ResourceKey, generation: int) -> Edition | None:
        rows = self._read(
            "SELECT generation, body, source, created_at FROM editions"
            f" WHERE uid = (SELECT uid FROM resources {_IS}) AND generation = ?",
            (*_bound(key), generation),
        )
        return Edition(*rows[0]) if rows else None

    async def memories(self, keys: Sequence[str]) -> dict[str, CachedValue]:
        now = self._now()
        rows = [
            row
            for key in keys
            for row in self._read(
                "SELECT key, value, created_at, expires_at FROM memories"
                " WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)",
                (key, now),
            )
        ]
        return {key: CachedValue(*rest) for key, *rest in rows}


def _bound(key: ResourceKey) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name
