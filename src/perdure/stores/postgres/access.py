"""Tokens, the audit log and idempotency keys of requests on PostgreSQL."""

import json
from collections.abc import Callable, Sequence

from perdure.kernel.json_values.values import Instant
from perdure.stores.access import AccessTokenRow, Act, AuditRow, AuditSeal, RequestKeyRow, RequestKeyTaken, SessionRow
from perdure.stores.postgres.hooks import StoredHooks
from perdure.stores.postgres.session import Session
from perdure.stores.postgres.wire import BLOB, BLOBS, INT, INTS, TEXT, TEXTS, Statement
from perdure.stores.rows import TOKEN_COLUMNS, token_row

_TOKEN = f"SELECT {TOKEN_COLUMNS} FROM access_tokens "
_AUDIT = "SELECT id, at, run, body, seal FROM audit "
_SEAL = "SELECT number, server, at, rows, previous, hash FROM audit_seals "

_LOCK = Statement("SELECT pg_advisory_xact_lock(1346720323, 1)")
_ANY_TOKEN = Statement("SELECT 1 FROM access_tokens LIMIT 1")
_ADD_TOKEN = Statement(
    "INSERT INTO access_tokens (name, digest, role, namespaces, pools, created_at, created_by, expires_at, revoked_at)"
    " VALUES ({}, {}, {}, {}, {}, {}, {}, {}, {}) ON CONFLICT DO NOTHING RETURNING 1",
    *(TEXT, BLOB, TEXT, TEXT, TEXT, INT, TEXT, INT, INT),
)
_TOKENS = Statement(_TOKEN + "ORDER BY name")
_BY_DIGEST = Statement(_TOKEN + "WHERE digest = {}", BLOB)
_REVOKE = Statement(
    "UPDATE access_tokens SET revoked_at = coalesce(revoked_at, {}) WHERE name = {} RETURNING 1", INT, TEXT
)
_EXPIRE_SESSIONS = Statement("DELETE FROM sessions WHERE created_at < {}", INT)
_ADD_SESSION = Statement(
    "INSERT INTO sessions (digest, token, created_at, seen_at, is_code) VALUES ({}, {}, {}, {}, {})"
    " ON CONFLICT DO NOTHING",
    *(BLOB, TEXT, INT, INT, INT),
)
_TAKE_CODE = Statement(
    "DELETE FROM sessions WHERE digest = {} AND is_code = 1 AND created_at >= {} RETURNING token", BLOB, INT
)
_SESSION = Statement("SELECT digest, token, created_at, seen_at, is_code FROM sessions WHERE digest = {}", BLOB)
_SEE_SESSION = Statement("UPDATE sessions SET seen_at = greatest(seen_at, {}) WHERE digest = {}", INT, BLOB)
_END_SESSION = Statement("DELETE FROM sessions WHERE digest = {}", BLOB)
_ADD_ROWS = Statement(
    "INSERT INTO audit (id, at, run, body) SELECT * FROM unnest({}, {}, {}, {}) ON CONFLICT DO NOTHING",
    *(TEXTS, INTS, TEXTS, BLOBS),
)
_SOME_UNSEALED = Statement("SELECT 1 FROM audit WHERE seal IS NULL LIMIT 1")
_UNSEALED = Statement(_AUDIT + "WHERE seal IS NULL ORDER BY id")
_LAST_SEAL = Statement(_SEAL + "ORDER BY number DESC LIMIT 1")
_ADD_SEAL = Statement(
    "INSERT INTO audit_seals (number, server, at, rows, previous, hash) VALUES ({}, {}, {}, {}, {}, {})",
    *(INT, TEXT, INT, INT, BLOB, BLOB),
)
_MARK_SEALED = Statement("UPDATE audit SET seal = {} WHERE id = ANY({})", INT, TEXTS)
_ROWS = Statement(
    _AUDIT + "WHERE ({0} IS NULL OR run = {0}) AND ({1} IS NULL OR id < {1}) ORDER BY id DESC LIMIT {2}",
    *(TEXT, TEXT, INT),
)
_ROWS_OF_SEALS = Statement(_AUDIT + "WHERE seal BETWEEN {} AND {} ORDER BY seal, id", INT, INT)
_SEALS = Statement(_SEAL + "WHERE number > {} ORDER BY number LIMIT {}", INT, INT)
_LAST_BEFORE = Statement("SELECT max(number) FROM audit_seals WHERE at < {}", INT)
_DROP_ROWS = Statement("DELETE FROM audit WHERE seal <= {} RETURNING 1", INT)
_DROP_SEALS = Statement("DELETE FROM audit_seals WHERE number < {}", INT)
_EXPIRE_KEYS = Statement("DELETE FROM request_keys WHERE at < {} RETURNING 1", INT)
_ADD_KEY = Statement(
    "INSERT INTO request_keys (who, key, digest, at, status, answer) VALUES ({}, {}, {}, {}, {}, {})"
    " ON CONFLICT DO NOTHING",
    *(TEXT, TEXT, BLOB, INT, INT, BLOB),
)
_KEY = Statement("SELECT digest, at, status, answer FROM request_keys WHERE who = {} AND key = {}", TEXT, TEXT)
_ANSWER = Statement(
    "UPDATE request_keys SET status = {}, answer = {} WHERE who = {} AND key = {}", *(INT, BLOB, TEXT, TEXT)
)
_HAS_CHANGED = Statement("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")  # numbers are given to those who write


class StoredAccess(StoredHooks):
    """What concerns others than runs: who may call a server, what was done, and what is sent elsewhere."""

    async def add_token(self, token: AccessTokenRow, *, only_first: bool = False) -> bool:
        def work(session: Session, again: bool) -> bool:
            with session.transaction():
                session.run(_LOCK)
                if again and any(token_row(row) == token for row in session.run(_BY_DIGEST, token.digest)):
                    return True  # the answer of an earlier attempt was lost
                if only_first and session.run(_ANY_TOKEN):
                    return False
                namespaces = None if token.namespaces is None else json.dumps(token.namespaces)
                head = (token.name, token.digest, token.role, namespaces, json.dumps(token.pools))
                rest = (token.created_at, token.created_by, token.expires_at, token.revoked_at)
                return bool(session.run(_ADD_TOKEN, *head, *rest))

        return await self._write(work)

    async def tokens(self) -> list[AccessTokenRow]:
        return [token_row(row) for row in await self._read(_TOKENS)]

    async def find_token(self, digest: bytes) -> AccessTokenRow | None:
        return next((token_row(row) for row in await self._read(_BY_DIGEST, digest)), None)

    async def revoke_token(self, name: str, at: Instant) -> bool:
        return bool(await self._write(lambda session, again: session.run(_REVOKE, at, name)))

    async def add_session(self, session: SessionRow, *, expired: Instant) -> None:
        values = (session.digest, session.token, session.created_at, session.seen_at, int(session.is_code))

        def work(connected: Session, again: bool) -> None:
            connected.run(_EXPIRE_SESSIONS, expired)
            connected.run(_ADD_SESSION, *values)

        await self._write(work)

    async def take_code(self, digest: bytes, since: Instant) -> str | None:
        names = await self._write(lambda session, again: session.run(_TAKE_CODE, digest, since))
        return names[0][0] if names else None

    async def find_session(self, digest: bytes) -> SessionRow | None:
        rows = await self._read(_SESSION, digest)
        return next((SessionRow(row[0], row[1], row[2], row[3], bool(row[4])) for row in rows), None)

    async def see_session(self, digest: bytes, at: Instant) -> None:
        await self._write(lambda session, again: session.run(_SEE_SESSION, at, digest))

    async def end_session(self, digest: bytes) -> None:
        await self._write(lambda session, again: session.run(_END_SESSION, digest))

    async def add_audit_rows(self, rows: Sequence[AuditRow]) -> None:
        columns = [[row.id for row in rows], [row.at for row in rows], [row.run for row in rows]]
        await self._write(lambda session, again: session.run(_ADD_ROWS, *columns, [row.body for row in rows]))

    async def seal_audit(self, seal: Callable[[Sequence[AuditRow], AuditSeal | None], AuditSeal]) -> AuditSeal | None:
        if not await self._read(_SOME_UNSEALED):
            return None

        def work(session: Session, again: bool) -> AuditSeal | None:
            with session.transaction():
                session.run(_LOCK)
                rows = [AuditRow(*row) for row in session.run(_UNSEALED)]
                if not rows:
                    return None
                last = session.run(_LAST_SEAL)
                made = seal(rows, AuditSeal(*last[0]) if last else None)
                session.run(_ADD_SEAL, made.number, made.server, made.at, made.rows, made.previous, made.hash)
                session.run(_MARK_SEALED, made.number, [row.id for row in rows])
                return made

        return await self._write(work)

    async def audit_rows(self, run: str | None = None, before: str | None = None, limit: int = 100) -> list[AuditRow]:
        return [AuditRow(*row) for row in await self._read(_ROWS, run, before, limit)]

    async def rows_of_seals(self, first: int, last: int) -> list[AuditRow]:
        return [AuditRow(*row) for row in await self._read(_ROWS_OF_SEALS, first, last)]

    async def audit_seals(self, after: int = 0, limit: int = 1_000) -> list[AuditSeal]:
        return [AuditSeal(*row) for row in await self._read(_SEALS, after, limit)]

    async def last_audit_seal(self) -> AuditSeal | None:
        return next((AuditSeal(*row) for row in await self._read(_LAST_SEAL)), None)

    async def drop_audit(self, before: Instant) -> int:
        def work(session: Session, again: bool) -> int:
            with session.transaction():
                session.run(_LOCK)
                last = session.run(_LAST_BEFORE, before)[0][0]
                if last is None:
                    return 0
                dropped = len(session.run(_DROP_ROWS, last))
                session.run(_DROP_SEALS, last)
                return dropped

        return await self._write(work)

    async def request_key(self, who: str, key: str) -> RequestKeyRow | None:
        return next((RequestKeyRow(*row) for row in await self._read(_KEY, who, key)), None)

    async def answer_request_key(self, who: str, key: str, status: int, answer: bytes | None) -> None:
        await self._write(lambda session, again: session.run(_ANSWER, status, answer, who, key))

    async def drop_request_keys(self, before: Instant) -> int:
        return len(await self._write(lambda session, again: session.run(_EXPIRE_KEYS, before)))


def keep_act(session: Session, act: Act) -> None:
    """Beside what this transaction has changed; it is refused if the key was used for something else."""
    if not session.run(_HAS_CHANGED)[0][0]:
        return
    record = act.record()
    row, key = record.audit, record.key
    session.run(_ADD_ROWS, [row.id], [row.at], [row.run], [row.body])
    if key is not None:
        session.run(_ADD_KEY, *key.columns)
        (kept,) = session.run(_KEY, key.who, key.key)
        if kept[:2] != (key.row.digest, key.row.at):
            raise RequestKeyTaken
