"""`sqlite`: statements on one SQLite file, all of them in one transaction.

It works in a subprocess, whose library has a hard memory limit: whatever a statement creates, sorts or keeps counts.
The engine's own files are refused: they have one writer, which is never a task. Statements may read and write databases
in the operator's folders, and cannot change the library's settings.
"""

import time
from typing import Any

import apsw
import msgspec

from perdure.kernel.json_values import jsontext
from perdure.providers.databases.files import attached_path, create_shared, database_path, keep_private
from perdure.providers.databases.statements import SQLITE, SqlStatement
from perdure.providers.databases.transaction import (
    DatabaseTimeouts,
    StatementResult,
    Statements,
    StatementTexts,
    limited,
    run_transaction,
    subprocess_memory,
)
from perdure.providers.databases.values import bounded, table
from perdure.providers.external_texts import Script
from perdure.providers.failure import Exhausted, ProviderFailure
from perdure.providers.policy import bytes_of, policy_in_force
from perdure.providers.registry import DATABASE, Mode, Provider
from perdure.providers.task_outcomes import RESULT_LIMIT

PREFIX = "Provider.Call.Sqlite"
SETTING = "policy.sqlite_folders"

_READING = frozenset({"SELECT", "VALUES", "EXPLAIN", "PRAGMA"})

_PRAGMAS = frozenset(
    [
        "auto_vacuum",
        "busy_timeout",
        "case_sensitive_like",
        "collation_list",
        "compile_options",
        "database_list",
        "defer_foreign_keys",
        "encoding",
        "foreign_key_check",
        "foreign_key_list",
        "foreign_keys",
        "freelist_count",
        "function_list",
        "incremental_vacuum",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "journal_mode",
        "module_list",
        "optimize",
        "page_count",
        "page_size",
        "pragma_list",
        "quick_check",
        "recursive_triggers",
        "reverse_unordered_selects",
        "secure_delete",
        "synchronous",
        "table_info",
        "table_list",
        "table_xinfo",
        "user_version",
        "wal_checkpoint",
    ]
)
_READABLE_PRAGMAS = frozenset({"application_id", "schema_version", "data_version", "cache_size", "mmap_size"})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "sqlite_rename_table", "edit"})

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
)


async def sqlite(
    database: str | None = None,
    command: str | None = None,
    commands: StatementTexts | None = None,
    query: str | None = None,
    params: list[Any] | dict[str, Any] | None = None,
    script: Script | str | None = None,
    command_b64: str | None = None,
    commands_b64: str | None = None,
    query_b64: str | None = None,
    auth: dict[str, Any] | None = None,
    timeout: DatabaseTimeouts | float | None = None,
    each_statement: bool = False,
) -> msgspec.Raw:
    """Run statements on `database` (a file; default: in memory) in one transaction; return the last rows.

    Values of `params` are bound to `?`, `?1`, `$1` (a list) or `:name`, `@name`, `$name` (a map). Waits
    `timeout.connect` seconds (default 10) for other writers. Foreign keys are enforced.
    """
    keep_private()
    times = DatabaseTimeouts.of(timeout)
    session = _Session(str(database or (auth or {}).get("database") or ""), times.connect)
    statements = Statements(
        command, commands, query, command_b64, commands_b64, query_b64, script, params, each_statement
    )
    return await run_transaction(session, statements, limited(times.total))


class _Session:
    grammar = SQLITE
    prefix = PREFIX

    def __init__(self, file: str, timeout: float) -> None:
        self._file = file
        self._timeout = timeout
        self._is_stopping = False
        self._refused = ""
        self._connection: apsw.Connection | None = None

    def open(self) -> None:
        apsw.hard_heap_limit(bytes_of(policy_in_force().sqlite_memory))
        path = _path(self._file)
        create_shared(path)
        self._connection = connection = apsw.Connection(path, statementcachesize=0)
        connection.set_busy_handler(self._wait)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, RESULT_LIMIT)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.pragma("foreign_keys", True)
        connection.pragma("temp_store", "memory")  # where it is counted; on a disk it would not be
        connection.authorizer = self._authorize

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """What a statement may do: SQLite asks while it prepares the statement, however the text is written."""
        match action:
            case apsw.SQLITE_ATTACH:
                try:
                    attached_path(first, policy_in_force().sqlite_folders, PREFIX, SETTING)
                except ProviderFailure as failure:
                    self._refused = failure.message
                    return int(apsw.SQLITE_DENY)
            case apsw.SQLITE_PRAGMA:
                name = (first or "").lower()
                if name not in _PRAGMAS and not (second is None and name in _READABLE_PRAGMAS):
                    self._refused = f"PRAGMA {name} is not allowed in tasks"
                    return int(apsw.SQLITE_DENY)
            case apsw.SQLITE_FUNCTION if (second or "").lower() in _FORBIDDEN_FUNCTIONS:
                self._refused = f"the function {second} is not allowed in tasks"
                return int(apsw.SQLITE_DENY)
        return int(apsw.SQLITE_OK)

    def _wait(self, attempt: int) -> bool:
        """Another writer is active. Unlike SQLite's own wait, this one can be interrupted."""
        if self._is_stopping or attempt * 0.01 >= self._timeout:
            return False
        time.sleep(0.01)
        return True

    def begin(self, statements: list[SqlStatement]) -> None:
        # A transaction that turns from reading to writing cannot wait for another writer, so it begins as a writer.
        reads_only = all(statement.words[:1] and statement.words[0] in _READING for statement in statements)
        self._open.execute("BEGIN" if reads_only else "BEGIN IMMEDIATE")

    def execute(self, text: str, values: list[Any]) -> StatementResult:
        columns: list[str] = []

        def look(cursor: apsw.Cursor, _text: str, _values: Any) -> bool:
            columns.extend(name for name, *_ in cursor.get_description())
            return True

        cursor = self._open.cursor()
        cursor.exec_trace = look  # the only moment at which the columns of an empty result are known
        before = self._open.total_changes()
        rows = bounded(cursor.execute(text, [_to_parameter(value) for value in values]), RESULT_LIMIT, PREFIX)
        if columns:
            return StatementResult(*table(columns, rows))
        return StatementResult(None, [], self._open.total_changes() - before)

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
        if isinstance(error, apsw.NoMemError):
            limit = policy_in_force().sqlite_memory
            message = f"the statement needs more than {limit} of memory (policy.sqlite_memory); ask for less at a time"
            return Exhausted(f"{PREFIX}.TooLarge", message, retryable=False, details={"limit": bytes_of(limit)})
        if isinstance(error, apsw.AuthError) or (self._refused and "not authorized" in str(error)):
            return ProviderFailure(f"{PREFIX}.Forbidden", self._refused or str(error), retryable=False)
        code, retryable = next(((code, again) for kind, code, again in _CODES if isinstance(error, kind)), _BAD)
        facts = {"error": type(error).__name__, "code": getattr(error, "extendedresult", None)}
        return ProviderFailure(f"{PREFIX}.{code}", f"{self._file}: {error}", retryable, facts)

    @property
    def _open(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection


_BAD = ("BadStatement", False)


def _path(name: str) -> str:
    return database_path(name, policy_in_force().sqlite_folders, PREFIX, SETTING)


def _to_parameter(value: Any) -> Any:
    """Lists and maps as JSON text, which SQLite's own functions understand."""
    return jsontext.encode(value).decode() if isinstance(value, list | dict) else value


def _memory() -> int:
    return subprocess_memory(policy_in_force().sqlite_memory)


PROVIDER = Provider.of("sqlite", sqlite, mode=Mode.ISOLATED, group=DATABASE, memory=_memory)
