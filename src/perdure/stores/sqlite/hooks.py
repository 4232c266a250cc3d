"""Outgoing hooks and their deliveries on SQLite."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from perdure.kernel.json_values.values import Instant
from perdure.stores.hook_deliveries import DELIVERY_COLUMNS, HOOK_COLUMNS, DeliveryRow, HookRow
from perdure.stores.sqlite.store_part import StorePart

_HOOKS = f"SELECT {HOOK_COLUMNS} FROM hooks ORDER BY name"
_DELIVERIES = f"SELECT {DELIVERY_COLUMNS} FROM hook_deliveries "


class StoredHooks(StorePart):
    async def note_hooks(self, hooks: Mapping[str, str], now: Instant, expired: Instant) -> list[HookRow]:
        def work() -> None:
            execute = self._connection.execute
            end = execute("SELECT max(floor, coalesce((SELECT max(position) FROM feed), 0)) FROM feed_state").get
            for name, address in hooks.items():
                execute(
                    "INSERT INTO hooks VALUES (?1, ?2, ?3, 0, ?4)"
                    " ON CONFLICT DO UPDATE SET address = ?2, seen_at = max(seen_at, ?4)",
                    (name, address, end, now),
                )
            execute("DELETE FROM hooks WHERE seen_at < ?", (expired,))
            execute("DELETE FROM hook_deliveries WHERE hook NOT IN (SELECT name FROM hooks)")

        if hooks or self._read("SELECT 1 FROM hooks WHERE seen_at < ? LIMIT 1", (expired,)):
            await self._explained_transaction(work)
        return await self.hooks()

    async def hooks(self) -> list[HookRow]:
        return [_hook(row) for row in self._read(_HOOKS)]

    async def pause_hook(self, name: str, *, is_paused: bool) -> bool:
        def work() -> bool:
            change = "UPDATE hooks SET is_paused = ? WHERE name = ? RETURNING 1"
            return self._connection.execute(change, (is_paused, name)).get is not None

        return await self._explained_transaction(work)

    async def add_deliveries(self, hook: str, after: int, position: int, rows: Sequence[DeliveryRow]) -> bool:
        def work() -> bool:
            move = "UPDATE hooks SET position = ? WHERE name = ? AND position = ? RETURNING 1"
            if self._connection.execute(move, (position, hook, after)).get is None:
                return False
            self._connection.executemany(
                f"INSERT INTO hook_deliveries ({DELIVERY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                [astuple(row) for row in rows],
            )
            return True

        return await self._explained_transaction(work)

    async def take_deliveries(
        self, hooks: Sequence[str], now: Instant, until: Instant, limit: int
    ) -> list[DeliveryRow]:
        marks = ", ".join("?" * len(hooks))
        due = (
            f"FROM hook_deliveries WHERE state = 'open' AND next_at <= ? AND hook IN ({marks})"
            " AND hook NOT IN (SELECT name FROM hooks WHERE is_paused) ORDER BY position LIMIT ?"
        )
        if not hooks or not self._read(f"SELECT 1 {due}", (now, *hooks, 1)):
            return []

        def work() -> list[DeliveryRow]:
            taken: list[Any] = self._connection.execute(
                "UPDATE hook_deliveries SET next_at = ?, attempts = attempts + 1"
                f" WHERE (hook, position) IN (SELECT hook, position {due}) RETURNING {DELIVERY_COLUMNS}",
                (until, now, *hooks, limit),
            ).fetchall()
            return sorted((DeliveryRow(*row) for row in taken), key=lambda row: row.position)

        return await self._explained_transaction(work)

    async def settle_delivery(self, row: DeliveryRow) -> None:
        def work() -> None:
            self._connection.execute(
                "UPDATE hook_deliveries SET state = ?, next_at = ?, answered_at = ?, status = ?, error = ?"
                " WHERE hook = ? AND position = ? AND state = 'open'",
                (row.state, row.next_at, row.answered_at, row.status, row.error, row.hook, row.position),
            )

        await self._explained_transaction(work)

    async def deliveries(self, hook: str, state: str | None, before: int | None, limit: int) -> list[DeliveryRow]:
        query = (
            f"{_DELIVERIES} WHERE hook = ?1 AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR position < ?3)"
            " ORDER BY position DESC LIMIT ?4"
        )
        return [DeliveryRow(*row) for row in self._read(query, (hook, state, before, limit))]

    async def retry_deliveries(self, hook: str, now: Instant) -> int:
        def work() -> int:
            change = (
                "UPDATE hook_deliveries SET state = 'open', next_at = ?1, created_at = ?1, attempts = 0"
                " WHERE hook = ?2 AND state = 'dead' RETURNING 1"
            )
            return len(self._connection.execute(change, (now, hook)).fetchall())

        return await self._explained_transaction(work)

    async def drop_deliveries(self, before: Instant) -> int:
        old = "FROM hook_deliveries WHERE state = 'delivered' AND answered_at < ?"
        if not self._read(f"SELECT 1 {old} LIMIT 1", (before,)):
            return 0

        def work() -> int:
            return len(self._connection.execute(f"DELETE {old} RETURNING 1", (before,)).fetchall())

        return await self._explained_transaction(work, removes=True)


def _hook(row: tuple[Any, ...]) -> HookRow:
    name, address, position, is_paused, seen_at = row
    return HookRow(name, address, position, bool(is_paused), seen_at)
