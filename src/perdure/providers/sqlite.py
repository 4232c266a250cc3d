"""`sqlite`: statements on one SQLite file, all of them in one transaction.

It uses the SQLite of the engine's own store, for two copies of SQLite in one process break each other's locks. The
engine's own files are refused: they have one writer, and that is not a task.
"""

import time
from typing import Any

import apsw
import msgspec

from perdure.kernel import jsontext
from perdure.providers.databases.statements import SQLITE, Statement
from perdure.providers.databases.transaction import Answer, Plain, Timeouts, Work, perform
from perdure.providers.databases.values import table
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import DATABASE, Provider
from perdure.providers.sources import Script

PREFIX = "Provider.Call.Sqlite"
MEMORY = ":memory:"

_OURS = 0x50455244  # the mark of the engine's own files
_READING = frozenset({"SELECT", "VALUES", "EXPLAIN", "PRAGMA"})

_CODES: tuple[tuple[type[Exception], str, bool], ...] = (
    (apsw.ConstraintError, "Constraint", False),
    (apsw.BusyError, "Busy", True),
    (apsw.LockedError, "Deadlock", True),
    (apsw.FullError, "Full", False),
    (apsw.CantOpenError, "Unavailable", False),
    (apsw.ReadOnlyError, "Unavailable", False),
    (apsw.PermissionsError, "Unavailable", False),
    (apsw.NotADBError, "Unavailable", False),
    (apsw.CorruptError, "Unavailable", False),
    (apsw.IOError, "Unavailable", True),
    (apsw.TooBigError, "TooLarge", False),
    (apsw.NoMemError, "TooLarge", False),
)


async def sqlite(
    database: str | None = None,
    command: str | None = None,
    commands: Plain | None = None,
    query: str | None = None,
    params: list[Any] | dict[str, Any] | None = None,
    script: Script | str | None = None,
    command_b64: str | None = None,
    commands_b64: str | None = None,
    query_b64: str | None = None,
    auth: dict[str, Any] | None = None,
    timeout: Timeouts | float | None = None,
) -> msgspec.Raw:
    """Run statements on `database` (a file; default: in memory) in one transaction; answer with the last rows.

    Values of `params` stand at `?`, `?1`, `$1` (a list) or `:name`, `@name`, `$name` (a map).
    Waits `timeout.connect` seconds (default 10) for other writers. Foreign keys are enforced.
    """
    times = Timeouts.of(timeout)
    session = _Session(database or (auth or {}).get("database") or MEMORY, times.connect)
    work = Work(command, commands, query, command_b64, commands_b64, query_b64, script, params)
    return await perform(session, work, times.total)


class _Session:
    grammar = SQLITE
    prefix = PREFIX

    def __init__(self, file: str, patience: float) -> None:
        self._file = file
        self._patience = patience
        self._is_stopping = False
        self._connection: apsw.Connection | None = None

    def open(self) -> None:
        self._connection = connection = apsw.Connection(self._file)
        connection.set_busy_handler(self._wait)
        if connection.pragma("application_id") == _OURS:
            message = f"{self._file} holds runs of Perdure; tasks may not touch it"
            raise ProviderFailure(f"{PREFIX}.Unavailable", message, retryable=False)
        connection.pragma("foreign_keys", True)

    def _wait(self, asked: int) -> bool:
        """Another writer is at work. Unlike SQLite's own waiting this one can be interrupted."""
        if self._is_stopping or asked * 0.01 >= self._patience:
            return False
        time.sleep(0.01)
        return True

    def begin(self, statements: list[Statement]) -> None:
        # One that turns from reading to writing may not wait for another writer: better to write from the start.
        reads_only = all(statement.words[:1] and statement.words[0] in _READING for statement in statements)
        self._open.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")

    def execute(self, text: str, values: list[Any]) -> Answer:
        columns: list[str] = []

        def look(cursor: apsw.Cursor, _text: str, _values: Any) -> bool:
            columns.extend(name for name, *_ in cursor.get_description())
            return True

        cursor = self._open.cursor()
        cursor.exec_trace = look  # the only moment at which the columns of an empty result are known
        before = self._open.total_changes()
        rows = list(cursor.execute(text, [_given(value) for value in values]))
        if columns:
            return Answer(*table(columns, rows))
        return Answer(None, [], self._open.total_changes() - before)

    def commit(self) -> None:
        self._open.execute("COMMIT")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)

    def interrupt(self) -> None:
        self._is_stopping = True
        if self._connection is not None:
            self._connection.interrupt()

    def explain(self, error: Exception) -> ProviderFailure | None:
        if not isinstance(error, apsw.Error):
            return None
        code, retryable = next(((code, again) for kind, code, again in _CODES if isinstance(error, kind)), _BAD)
        facts = {"error": type(error).__name__, "code": getattr(error, "extendedresult", None)}
        return ProviderFailure(f"{PREFIX}.{code}", f"{self._file}: {error}", retryable, facts)

    @property
    def _open(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection


_BAD = ("BadStatement", False)


def _given(value: Any) -> Any:
    """Lists and maps as JSON text, which SQLite's own functions understand."""
    return jsontext.encode(value).decode() if isinstance(value, list | dict) else value


PROVIDER = Provider.of("sqlite", sqlite, group=DATABASE)
