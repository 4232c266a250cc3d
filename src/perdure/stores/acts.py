"""Acts: changes that somebody asks for. The record of an act, and the key of its request, are in its transaction."""

from collections.abc import Callable

import msgspec

from perdure.kernel.values import Instant, RunId
from perdure.stores.access import AuditRow, RequestKeyRow


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
        self.is_recorded = False
        """Whether its record is written with it, if it is made."""

    def about(self, object: str, *, run: RunId | None = None, namespace: str = "") -> None:
        """What is changed."""
        self.object, self.run, self.namespace = object, run, namespace

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
