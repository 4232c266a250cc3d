"""Outgoing hooks and their deliveries on PostgreSQL."""

from collections.abc import Mapping, Sequence

from msgspec.structs import astuple

from perdure.kernel.json_values.values import Instant
from perdure.stores.hook_deliveries import DELIVERY_COLUMNS, HOOK_COLUMNS, DeliveryRow, HookRow
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.store_part import StorePart
from perdure.stores.postgres.wire import BLOBS, INT, INTS, TEXT, TEXTS, Statement

_HOOKS = Statement(f"SELECT {HOOK_COLUMNS} FROM hooks ORDER BY name")
_NOTE = Statement(
    "INSERT INTO hooks SELECT n.name, n.address, f.last, false, {2} FROM feed_state f,"
    " unnest({0}, {1}) AS n (name, address)"
    " ON CONFLICT (name) DO UPDATE SET address = excluded.address, seen_at = greatest(hooks.seen_at, excluded.seen_at)",
    TEXTS,
    TEXTS,
    INT,
)
_EXPIRE = Statement("DELETE FROM hooks WHERE seen_at < {} RETURNING 1", INT)
_CLEAR = Statement("DELETE FROM hook_deliveries WHERE hook NOT IN (SELECT name FROM hooks)")
_PAUSE = Statement("UPDATE hooks SET is_paused = {} = 1 WHERE name = {} RETURNING 1", INT, TEXT)
_MOVE = Statement("UPDATE hooks SET position = {} WHERE name = {} AND position = {} RETURNING 1", INT, TEXT, INT)
_MOVED = Statement("SELECT 1 FROM hooks WHERE name = {} AND position = {}", TEXT, INT)
_ADD = Statement(
    f"INSERT INTO hook_deliveries ({DELIVERY_COLUMNS})"
    " SELECT * FROM unnest({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}) ON CONFLICT DO NOTHING",
    *(TEXTS, INTS, TEXTS, TEXTS, BLOBS, INTS, TEXTS, INTS, INTS, INTS, INTS, TEXTS),
)
_DUE = (
    "FROM hook_deliveries WHERE state = 'open' AND next_at <= {0} AND hook = ANY({1})"
    " AND hook NOT IN (SELECT name FROM hooks WHERE is_paused)"
)
_SOME_DUE = Statement(f"SELECT 1 {_DUE} LIMIT 1", INT, TEXTS)
_TAKE = Statement(
    "UPDATE hook_deliveries SET next_at = {2}, attempts = attempts + 1 WHERE (hook, position) IN"
    f" (SELECT hook, position {_DUE} ORDER BY position LIMIT {{3}} FOR UPDATE SKIP LOCKED)"
    f" RETURNING {DELIVERY_COLUMNS}",
    INT,
    TEXTS,
    INT,
    INT,
)
_SETTLE = Statement(
    "UPDATE hook_deliveries SET state = {}, next_at = {}, answered_at = {}, status = {}, error = {}"
    " WHERE hook = {} AND position = {} AND state = 'open'",
    *(TEXT, INT, INT, INT, TEXT, TEXT, INT),
)
_DELIVERIES = Statement(
    f"SELECT {DELIVERY_COLUMNS} FROM hook_deliveries WHERE hook = {{0}} AND ({{1}} IS NULL OR state = {{1}})"
    " AND ({2} IS NULL OR position < {2}) ORDER BY position DESC LIMIT {3}",
    *(TEXT, TEXT, INT, INT),
)
_RETRY = Statement(
    "UPDATE hook_deliveries SET state = 'open', next_at = {0}, created_at = {0}, attempts = 0"
    " WHERE hook = {1} AND state = 'dead' RETURNING 1",
    INT,
    TEXT,
)
_DROP = Statement("DELETE FROM hook_deliveries WHERE state = 'delivered' AND answered_at < {} RETURNING 1", INT)


class StoredHooks(StorePart):
    async def note_hooks(self, hooks: Mapping[str, str], now: Instant, expired: Instant) -> list[HookRow]:
        def work(session: Session, again: bool) -> None:
            with session.transaction():
                session.run(_NOTE, list(hooks), list(hooks.values()), now)
                if session.run(_EXPIRE, expired):
                    session.run(_CLEAR)

        await self._write_aside(work)
        return await self.hooks()

    async def hooks(self) -> list[HookRow]:
        return [HookRow(*row) for row in await self._read(_HOOKS)]

    async def pause_hook(self, name: str, *, is_paused: bool) -> bool:
        return bool(await self._write_aside(lambda session, again: session.run(_PAUSE, int(is_paused), name)))

    async def add_deliveries(self, hook: str, after: int, position: int, rows: Sequence[DeliveryRow]) -> bool:
        def work(session: Session, again: bool) -> bool:
            with session.transaction():
                if not session.run(_MOVE, position, hook, after):
                    return again and bool(session.run(_MOVED, hook, position))
                if rows:
                    session.run(_ADD, *zip(*map(astuple, rows), strict=True))
                return True

        return await self._write_aside(work)

    async def take_deliveries(
        self, hooks: Sequence[str], now: Instant, until: Instant, limit: int
    ) -> list[DeliveryRow]:
        if not hooks or not await self._read(_SOME_DUE, now, hooks):
            return []
        taken = await self._write_aside(lambda session, again: session.run(_TAKE, now, hooks, until, limit))
        return sorted((DeliveryRow(*row) for row in taken), key=lambda row: row.position)

    async def settle_delivery(self, row: DeliveryRow) -> None:
        values = (row.state, row.next_at, row.answered_at, row.status, row.error, row.hook, row.position)
        await self._write_aside(lambda session, again: session.run(_SETTLE, *values))

    async def deliveries(self, hook: str, state: str | None, before: int | None, limit: int) -> list[DeliveryRow]:
        return [DeliveryRow(*row) for row in await self._read(_DELIVERIES, hook, state, before, limit)]

    async def retry_deliveries(self, hook: str, now: Instant) -> int:
        return len(await self._write_aside(lambda session, again: session.run(_RETRY, now, hook)))

    async def drop_deliveries(self, before: Instant) -> int:
        return len(await self._write_aside(lambda session, again: session.run(_DROP, before)))
