"""The catalog on PostgreSQL: entries with their generations, and what runs remember for each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.kernel.documents.lookups import CachedValue, ResourceKey
from perdure.kernel.json_values.values import Instant
from perdure.kernel.tasks.permits import UNLIMITED, resource_scope
from perdure.stores.commit_types import DeliveredMessage, Message
from perdure.stores.postgres.batched_lookup import BatchedLookup
from perdure.stores.postgres.change_feed import ENTRY_CHANGED, StoredChangeFeed
from perdure.stores.postgres.messages import send_all
from perdure.stores.postgres.permits import allocate, lock
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import BLOB, BLOBS, INT, TEXT, TEXTS, Kind, Statement, jsonb, storable
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
    resource_row,
    sized_key,
)

CATALOG = "perdure_catalog"

_COLUMNS = RESOURCE_COLUMNS.replace("labels", "labels::text")
_IS = "kind = {} AND namespace = {} AND name = {}"

_LOCK = Statement("SELECT pg_advisory_xact_lock(1346720323, 0)")
_SOME = Statement(
    f"SELECT {_COLUMNS} FROM resources WHERE (kind, namespace, name) IN (SELECT * FROM unnest({{}}, {{}}, {{}}))",
    TEXTS,
    TEXTS,
    TEXTS,
)
_NAMESPACES = Statement(NAMESPACES)
_PUT = Statement(
    "INSERT INTO resources (kind, namespace, name, uid, generation, version, body, source, labels, status, created_at,"
    " updated_at, from_api, managers) VALUES ({0}, {1}, {2}, {3}, {4}, nextval('resource_versions'), {5}, {6},"
    " {7}::jsonb, {8}, {9}, {9}, coalesce({10} = 1, false), {11})"
    " ON CONFLICT (kind, namespace, name) DO UPDATE SET uid = excluded.uid, generation = excluded.generation,"
    " version = excluded.version, body = excluded.body, source = excluded.source, labels = excluded.labels,"
    " status = excluded.status, updated_at = excluded.updated_at, from_api = coalesce({10} = 1, resources.from_api),"
    " managers = coalesce(excluded.managers, resources.managers)",
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    INT,
    BLOB,
    BLOB,
    TEXT,
    BLOB,
    INT,
    INT,
    BLOB,
)
_EDITION = Statement(
    "INSERT INTO editions (uid, generation, body, source, created_at) VALUES ({}, {}, {}, {}, {})"
    " ON CONFLICT DO NOTHING",
    TEXT,
    INT,
    BLOB,
    BLOB,
    INT,
)
_OPEN = Statement("INSERT INTO limits VALUES ({}, {}) ON CONFLICT DO NOTHING", TEXT, INT)
_REMOVE_EDITIONS = Statement(
    f"DELETE FROM editions WHERE uid = (SELECT uid FROM resources WHERE {_IS})", TEXT, TEXT, TEXT
)
_REMOVE = Statement(f"DELETE FROM resources WHERE {_IS}", TEXT, TEXT, TEXT)
_CLOSE = Statement("DELETE FROM limits WHERE scope = {}", TEXT)
_EDITIONS = f"SELECT {EDITION_COLUMNS} FROM resources AS r JOIN editions AS e ON e.uid = r.uid"
_ALL_EDITIONS = Statement(f"{_EDITIONS} WHERE r.kind = {{}} AND r.namespace = {{}} {EDITION_ORDER}", TEXT, TEXT)
_EDITIONS_OF_ONE = Statement(
    f"{_EDITIONS} WHERE r.kind = {{}} AND r.namespace = {{}} AND r.name = {{}} {EDITION_ORDER}", TEXT, TEXT, TEXT
)
_ONE_EDITION = Statement(
    "SELECT generation, body, source, created_at FROM editions"
    f" WHERE uid = (SELECT uid FROM resources WHERE {_IS}) AND generation = {{}}",
    TEXT,
    TEXT,
    TEXT,
    INT,
)
_MEMORIES = Statement(
    "SELECT key, value, created_at, expires_at FROM memories"
    " WHERE key = ANY({}) AND (expires_at IS NULL OR expires_at > {})",
    BLOBS,
    INT,
)


class StoredCatalog(StoredChangeFeed):
    """The catalog's verbs of a store that can read and run a transaction, and the feed that tells of its changes."""

    def __init__(self) -> None:
        super().__init__()
        self._entries = BatchedLookup(self._entries_named)
        self._remembered = BatchedLookup(self._memories_under)

    async def write_catalog(self, changes: Sequence[ResourceWrite | ResourceRemoval]) -> CatalogConflict | None:
        def work(session: Session, again: bool) -> CatalogConflict | list[DeliveredMessage]:
            with session.transaction():
                # Writers of the catalog are few. One at a time, so that what one has seen stays so.
                session.run(_LOCK)
                rows = {row.key: row for row in map(resource_row, session.run(_SOME, *_columns(changes)))}
                if again and all(_is_done(change, rows.get(_stored(change.key))) for change in changes):
                    return []
                outdated = [change.key for change in changes if _version(rows, change.key) != change.seen]
                if outdated:
                    return CatalogConflict(outdated)
                messages: list[tuple[Message, int]] = []
                now = self._now()
                for change in changes:
                    if isinstance(change, ResourceRemoval):
                        _remove(session, change.key, now)
                    else:
                        messages += _put(session, change, now)
                session.execute(f"NOTIFY {CATALOG}")  # with the commit: writes of the catalog are few
                return send_all(session, messages)

        done = await self._write(work)
        if isinstance(done, CatalogConflict):
            return done
        await self._tell(done)
        return None

    async def resources(self, keys: Sequence[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        return await self._entries.ask(keys)

    async def _entries_named(self, keys: list[ResourceKey]) -> dict[ResourceKey, ResourceRow]:
        rows = await self._query(_SOME, *zip(*map(_bound, keys), strict=True))
        return {row.key: row for row in map(resource_row, rows)}

    async def list_resources(
        self, kind: str, namespace: str | None = None, labels: Labels = None, page: EntryPage | None = None
    ) -> list[ResourceRow]:
        return [resource_row(row) for row in await self._list(_COLUMNS, kind, namespace, labels, page)]

    async def list_keys(self, kind: str, namespace: str | None = None, labels: Labels = None) -> list[SizedKey]:
        return [sized_key(row) for row in await self._list(SIZED_KEY_COLUMNS, kind, namespace, labels)]

    async def _list(
        self, columns: str, kind: str, namespace: str | None, labels: Labels, page: EntryPage | None = None
    ) -> list[tuple[Any, ...]]:
        conditions, kinds, values = ["kind = {}"], list[Kind]([TEXT]), list[Any]([kind])
        if namespace is not None:
            conditions.append("namespace = {}")
            kinds.append(TEXT)
            values.append(namespace)
        if labels:
            conditions.append("labels @> {}::jsonb")
            kinds.append(TEXT)
            values.append(jsonb(labels))
        ending = ""
        if page is not None:
            conditions.append("(namespace, name) > ({}, {})")
            ending = " LIMIT {}"
            kinds += [TEXT, TEXT, INT]
            values += [*page[0], page[1]]
        query = f"SELECT {columns} FROM resources WHERE {' AND '.join(conditions)} ORDER BY namespace, name{ending}"
        return await self._read(Statement(query, *kinds), *values)

    async def namespaces(self) -> list[str]:
        return [name for (name,) in await self._read(_NAMESPACES)]

    async def list_editions(self, kind: str, namespace: str, name: str | None = None) -> list[EditionRow]:
        if name is None:
            rows = await self._read(_ALL_EDITIONS, kind, namespace)
        else:
            rows = await self._read(_EDITIONS_OF_ONE, kind, namespace, name)
        return [edition_row(row) for row in rows]

    async def edition(self, key: ResourceKey, generation: int) -> Edition | None:
        rows = await self._read(_ONE_EDITION, *_bound(key), generation)
        return Edition(*rows[0]) if rows else None

    async def memories(self, keys: Sequence[str]) -> dict[str, CachedValue]:
        return await self._remembered.ask(keys)

    async def _memories_under(self, keys: list[str]) -> dict[str, CachedValue]:
        rows = await self._query(_MEMORIES, [key.encode() for key in keys], self._now())
        return {key.decode(): CachedValue(*rest) for key, *rest in rows}


def _put(session: Session, change: ResourceWrite, now: Instant) -> list[tuple[Message, int]]:
    labels = jsonb(change.labels) if change.labels else None
    session.run(
        _PUT,
        *_bound(change.key),
        change.uid,
        change.generation,
        change.body,
        change.source,
        labels,
        change.status,
        now,
        None if change.from_api is None else int(change.from_api),
        change.managers,
    )
    session.run(_EDITION, change.uid, change.generation, change.body, change.source, now)
    session.run(ENTRY_CHANGED, now, 0, *_bound(change.key))
    return [] if change.seen else _open_scope(session, change.key, now)


def _open_scope(session: Session, key: ResourceKey, now: Instant) -> list[tuple[Message, int]]:
    """Whoever waits for the entry is told, and so is whoever asks later."""
    scope = resource_scope(*_bound(key))
    lock(session, [scope])
    session.run(_OPEN, scope, UNLIMITED)
    return allocate(session, scope, now)


def _remove(session: Session, key: ResourceKey, now: Instant) -> None:
    session.run(ENTRY_CHANGED, now, 1, *_bound(key))
    session.run(_REMOVE_EDITIONS, *_bound(key))
    session.run(_REMOVE, *_bound(key))
    session.run(_CLOSE, resource_scope(*_bound(key)))


def _is_done(change: ResourceWrite | ResourceRemoval, row: ResourceRow | None) -> bool:
    """Whether it is as it was to be: an attempt whose answer was lost may have been the one that did it."""
    if isinstance(change, ResourceRemoval) or row is None:
        return isinstance(change, ResourceRemoval) and row is None
    expected = (change.uid, change.generation, change.body, change.source, change.labels, change.status)
    return row.version > change.seen and expected == (
        row.uid,
        row.generation,
        row.body,
        row.source,
        row.labels,
        row.status,
    )


def _version(rows: Mapping[ResourceKey, ResourceRow], key: ResourceKey) -> int:
    row = rows.get(_stored(key))
    return 0 if row is None else row.version


def _columns(changes: Sequence[ResourceWrite | ResourceRemoval]) -> tuple[Sequence[str], ...]:
    return tuple(zip(*[_bound(change.key) for change in changes], strict=True)) or ((), (), ())


def _bound(key: ResourceKey) -> tuple[str, str, str]:
    return key.kind, key.namespace, key.name


def _stored(key: ResourceKey) -> ResourceKey:
    return ResourceKey(*map(storable, _bound(key)))
