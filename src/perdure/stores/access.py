"""What a store keeps about access: tokens, the audit log with its seals, and idempotency keys of requests.

An act is a change that somebody asks for: its record, and the key of its request, are in its transaction.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from perdure.kernel.inputs import Sender
from perdure.kernel.json_values.values import Instant, RunId


class AccessTokenRow(msgspec.Struct, gc=False, frozen=True):
    """A token without the token: only its digest is kept."""

    name: str
    digest: bytes
    role: str
    namespaces: tuple[str, ...] | None  # None: all
    pools: tuple[str, ...]
    created_at: Instant
    created_by: str
    expires_at: Instant | None = None
    revoked_at: Instant | None = None

    def is_valid_at(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class SessionRow(msgspec.Struct, gc=False, frozen=True):
    """A session of a browser; with `is_code` a code from which one is made, once. Only the digest of it is kept."""

    digest: bytes
    token: str  # the name of its access token
    created_at: Instant
    seen_at: Instant
    is_code: bool = False


class AuditRow(msgspec.Struct, gc=False, frozen=True):
    id: str
    at: Instant
    run: str | None
    body: bytes  # JSON
    seal: int | None = None

    @property
    def digest(self) -> bytes:
        head = msgspec.json.encode([self.id, self.at, self.run])
        return sha256(head + b"\n" + self.body).digest()


class AuditSeal(msgspec.Struct, gc=False, frozen=True):
    number: int
    server: str
    at: Instant
    rows: int
    previous: bytes
    hash: bytes

    @classmethod
    def over(cls, rows: Sequence[AuditRow], last: "AuditSeal | None", server: str, at: Instant) -> "AuditSeal":
        """The next seal: over the hash of the one before and the digests of these rows, in order of their ids."""
        number, previous = (1, b"") if last is None else (last.number + 1, last.hash)
        return cls(number, server, at, len(rows), previous, seal_hash(number, server, at, previous, rows))


def seal_hash(number: int, server: str, at: Instant, previous: bytes, rows: Sequence[AuditRow]) -> bytes:
    head = msgspec.json.encode([number, server, at, len(rows), previous.hex()])
    return sha256(b"\n".join([head, *(row.digest for row in sorted(rows, key=lambda row: row.id))])).digest()


class RequestKeyRow(msgspec.Struct, gc=False, frozen=True):
    """What was done under an idempotency key, and what was answered; no status: the answer was lost."""

    digest: bytes
    at: Instant
    status: int | None = None
    answer: bytes | None = None


class RequestKey(msgspec.Struct, gc=False, frozen=True):
    """An idempotency key that no run keeps, with what was asked under it."""

    who: str
    key: str
    row: RequestKeyRow

    @property
    def columns(self) -> tuple[str, str, bytes, Instant, int | None, bytes | None]:
        return self.who, self.key, self.row.digest, self.row.at, self.row.status, self.row.answer


class ActRecord(msgspec.Struct, gc=False, frozen=True):
    """The rows that a transaction writes beside the act that it makes."""

    audit: AuditRow
    key: RequestKey | None = None


LONGEST_OBJECT = 1_000  # characters of what an act says that it is about


class RequestKeyTaken(Exception):
    """Another request has used the key meanwhile; nothing was written."""


class Act:
    """One act, before and while it is made. It may take several transactions: its record is in the first of them."""

    def __init__(self, write: Callable[["Act"], AuditRow], key: RequestKey | None = None) -> None:
        self._write = write
        self._record: ActRecord | None = None
        self.key = key
        self.object = ""
        self.run: RunId | None = None
        self.namespace = ""
        self.sender: Sender | None = None  # of the control messages that it sends
        self.starter: tuple[str, str] | None = None  # who starts runs by it: a name, and how it is known
        self.is_recorded = False
        """Whether its record is written with it, if it is made."""

    def about(self, object: str, *, run: RunId | None = None, namespace: str = "") -> None:
        """What is changed; of a long description the beginning."""
        self.object = object if len(object) <= LONGEST_OBJECT else f"{object[:LONGEST_OBJECT]}…"
        self.run, self.namespace = run, namespace

    def starts(self, run: RunId, namespace: str) -> None:
        """It starts a run, which is what it is about unless something else was said."""
        if not self.object:
            self.object, self.namespace = f"run/{run}", namespace
        self.run = self.run or run

    def record(self) -> ActRecord:
        """The same rows each time."""
        if self._record is None:
            self._record = ActRecord(self._write(self), self.key)
        self.is_recorded = True
        return self._record


class AccessStore(Protocol):
    async def add_token(self, token: AccessTokenRow, *, only_first: bool = False) -> bool:
        """False, and nothing is written, if the name or the digest was used; with `only_first`, if there is any."""

    async def tokens(self) -> list[AccessTokenRow]:
        """All of them, also revoked and expired ones, by name."""

    async def find_token(self, digest: bytes) -> AccessTokenRow | None: ...

    async def revoke_token(self, name: str, at: Instant) -> bool:
        """False if there is no such token. One that was revoked before stays as it is."""

    async def add_session(self, session: SessionRow, *, expired: Instant) -> None:
        """Rows that were made before `expired` are removed."""

    async def take_code(self, digest: bytes, since: Instant) -> str | None:
        """The name of the token for which a code was made, if that was not before `since`; the code is gone then."""

    async def find_session(self, digest: bytes) -> SessionRow | None: ...

    async def see_session(self, digest: bytes, at: Instant) -> None: ...

    async def end_session(self, digest: bytes) -> None: ...

    async def add_audit_rows(self, rows: Sequence[AuditRow]) -> None: ...

    async def seal_audit(self, seal: Callable[[Sequence[AuditRow], AuditSeal | None], AuditSeal]) -> AuditSeal | None:
        """Write a seal over the rows that have none, in one transaction; None if there are no such rows."""

    async def audit_rows(self, run: str | None = None, before: str | None = None, limit: int = 100) -> list[AuditRow]:
        """The latest first; those of a run; those before an id."""

    async def rows_of_seals(self, first: int, last: int) -> list[AuditRow]:
        """In order of seal and id."""

    async def audit_seals(self, after: int = 0, limit: int = 1_000) -> list[AuditSeal]:
        """In order of their numbers."""

    async def last_audit_seal(self) -> AuditSeal | None: ...

    async def drop_audit(self, before: Instant) -> int:
        """Remove the rows of seals older than this, oldest first, and these seals but the last; how many rows."""

    async def request_key(self, who: str, key: str) -> RequestKeyRow | None:
        """What was done under an idempotency key; it is written in the transaction of the act (`Act`)."""

    async def answer_request_key(self, who: str, key: str, status: int, answer: bytes | None) -> None:
        """Keep the answer beside a key."""

    async def drop_request_keys(self, before: Instant) -> int:
        """Remove keys from before then; how many."""
