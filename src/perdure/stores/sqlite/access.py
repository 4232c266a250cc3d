"""Tokens, the audit log and idempotency keys of requests on SQLite."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from perdure.kernel.json_values.values import Instant
from perdure.stores.access import (
    AccessTokenRow,
    ActRecord,
    AuditRow,
    AuditSeal,
    RequestKeyRow,
    RequestKeyTaken,
    SessionRow,
)
from perdure.stores.rows import TOKEN_COLUMNS, token_row
from perdure.stores.sqlite.hooks import StoredHooks

_TOKEN = f"SELECT {TOKEN_COLUMNS} FROM access_tokens "
_AUDIT = "SELECT id, at, run, body, seal FROM audit "
_ADD_AUDIT = "INSERT INTO audit VALUES (?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING"
_SEAL = "SELECT number, server, at, rows, previous, hash FROM audit_seals "


class StoredAccess(StoredHooks):
    """What concerns others than runs: who may call a server, what was done, and what is sent elsewhere."""

    async def add_token(self, token: AccessTokenRow, *, only_first: bool = False) -> bool:
        def work() -> bool:
            execute = self._connection.execute
            if only_first and execute("SELECT 1 FROM access_tokens LIMIT 1").get is not None:
                return False
            namespaces = None if token.namespaces is None else json.dumps(token.namespaces)
            head = (token.name, token.digest, token.role, namespaces, json.dumps(token.pools))
            return (
                execute(
                    "INSERT INTO access_tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1",
                    (*head, token.created_at, token.created_by, token.expires_at, token.revoked_at),
                ).get
                is not None
            )

        return await self._explained_transaction(work)

    async def tokens(self) -> list[AccessTokenRow]:
        return [token_row(row) for row in self._read(_TOKEN + "ORDER BY name")]

    async def find_token(self, digest: bytes) -> AccessTokenRow | None:
        return next((token_row(row) for row in self._read(_TOKEN + "WHERE digest = ?", (digest,))), None)

    async def revoke_token(self, name: str, at: Instant) -> bool:
        def work() -> bool:
            change = "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, ?) WHERE name = ? RETURNING 1"
            return self._connection.execute(change, (at, name)).get is not None

        return await self._explained_transaction(work)

    async def add_session(self, session: SessionRow, *, expired: Instant) -> None:
        def work() -> None:
            execute = self._connection.execute
            execute("DELETE FROM sessions WHERE created_at < ?", (expired,))
            values = (session.digest, session.token, session.created_at, session.seen_at, int(session.is_code))
            execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", values)

        await self._explained_transaction(work)

    async def take_code(self, digest: bytes, since: Instant) -> str | None:
        def work() -> str | None:
            query = "DELETE FROM sessions WHERE digest = ? AND is_code AND created_at >= ? RETURNING token"
            name: str | None = self._connection.execute(query, (digest, since)).get
            return name

        return await self._explained_transaction(work)

    async def find_session(self, digest: bytes) -> SessionRow | None:
        query = "SELECT digest, token, created_at, seen_at, is_code FROM sessions WHERE digest = ?"
        return next(
            (SessionRow(row[0], row[1], row[2], row[3], bool(row[4])) for row in self._read(query, (digest,))), None
        )

    async def see_session(self, digest: bytes, at: Instant) -> None:
        query = "UPDATE sessions SET seen_at = max(seen_at, ?) WHERE digest = ?"
        await self._explained_transaction(lambda: self._connection.execute(query, (at, digest)))

    async def end_session(self, digest: bytes) -> None:
        query = "DELETE FROM sessions WHERE digest = ?"
        await self._explained_transaction(lambda: self._connection.execute(query, (digest,)))

    async def add_audit_rows(self, rows: Sequence[AuditRow]) -> None:
        def work() -> None:
            self._connection.executemany(
                _ADD_AUDIT,
                [(row.id, row.at, row.run, row.body) for row in rows],
            )

        await self._explained_transaction(work)

    async def seal_audit(self, seal: Callable[[Sequence[AuditRow], AuditSeal | None], AuditSeal]) -> AuditSeal | None:
        if not self._read("SELECT 1 FROM audit WHERE seal IS NULL LIMIT 1"):
            return None

        def work() -> AuditSeal | None:
            execute = self._connection.execute
            unsealed: list[Any] = execute(_AUDIT + "WHERE seal IS NULL ORDER BY id").fetchall()
            rows = [AuditRow(*row) for row in unsealed]
            if not rows:
                return None
            last: list[Any] = execute(_SEAL + "ORDER BY number DESC LIMIT 1").fetchall()
            made = seal(rows, AuditSeal(*last[0]) if last else None)
            values = (made.number, made.server, made.at, made.rows, made.previous, made.hash)
            execute("INSERT INTO audit_seals VALUES (?, ?, ?, ?, ?, ?)", values)
            execute("UPDATE audit SET seal = ? WHERE seal IS NULL", (made.number,))
            return made

        return await self._explained_transaction(work)

    async def audit_rows(self, run: str | None = None, before: str | None = None, limit: int = 100) -> list[AuditRow]:
        conditions, bindings = ["TRUE"], list[Any]()
        if run is not None:
            conditions.append("run = ?")
            bindings.append(run)
        if before is not None:
            conditions.append("id < ?")
            bindings.append(before)
        query = _AUDIT + f"WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
        return [AuditRow(*row) for row in self._read(query, (*bindings, limit))]

    async def rows_of_seals(self, first: int, last: int) -> list[AuditRow]:
        rows = self._read(_AUDIT + "WHERE seal BETWEEN ? AND ? ORDER BY seal, id", (first, last))
        return [AuditRow(*row) for row in rows]

    async def audit_seals(self, after: int = 0, limit: int = 1_000) -> list[AuditSeal]:
        rows = self._read(_SEAL + "WHERE number > ? ORDER BY number LIMIT ?", (after, limit))
        return [AuditSeal(*row) for row in rows]

    async def last_audit_seal(self) -> AuditSeal | None:
        return next((AuditSeal(*row) for row in self._read(_SEAL + "ORDER BY number DESC LIMIT 1")), None)

    async def drop_audit(self, before: Instant) -> int:
        def work() -> int:
            execute = self._connection.execute
            last = execute("SELECT max(number) FROM audit_seals WHERE at < ?", (before,)).get
            if last is None:
                return 0
            dropped = len(execute("DELETE FROM audit WHERE seal <= ? RETURNING 1", (last,)).fetchall())
            execute("DELETE FROM audit_seals WHERE number < ?", (last,))
            return dropped

        return await self._explained_transaction(work, removes=True)

    async def request_key(self, who: str, key: str) -> RequestKeyRow | None:
        query = "SELECT digest, at, status, answer FROM request_keys WHERE who = ? AND key = ?"
        return next((RequestKeyRow(*row) for row in self._read(query, (who, key))), None)

    async def answer_request_key(self, who: str, key: str, status: int, answer: bytes | None) -> None:
        def work() -> None:
            change = "UPDATE request_keys SET status = ?, answer = ? WHERE who = ? AND key = ?"
            self._connection.execute(change, (status, answer, who, key))

        await self._explained_transaction(work)

    async def drop_request_keys(self, before: Instant) -> int:
        if not self._read("SELECT 1 FROM request_keys WHERE at < ? LIMIT 1", (before,)):
            return 0

        def work() -> int:
            return len(
                self._connection.execute("DELETE FROM request_keys WHERE at < ? RETURNING 1", (before,)).fetchall()
            )

        return await self._explained_transaction(work, removes=True)


def keep_acts(connection: apsw.Connection, acts: Sequence[ActRecord]) -> None:
    """Beside what this transaction has changed."""
    rows = [(act.audit.id, act.audit.at, act.audit.run, act.audit.body) for act in acts]
    connection.executemany(_ADD_AUDIT, rows)
    keys = [act.key.columns for act in acts if act.key is not None]
    if keys:
        connection.executemany("INSERT INTO request_keys VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", keys)


def keep_act(connection: apsw.Connection, act: ActRecord) -> None:
    """The same; it is refused if the key was used for something else."""
    keep_acts(connection, [act])
    if (key := act.key) is not None:
        query = "SELECT digest, at FROM request_keys WHERE who = ? AND key = ?"
        if connection.execute(query, (key.who, key.key)).get != (key.row.digest, key.row.at):
            raise RequestKeyTaken
