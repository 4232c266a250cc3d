"""`duckdb`: statements on one DuckDB database, all of them in one transaction.

DuckDB can read files and addresses, load extensions and use all memory. Here it does so only in folders that the
operator has opened, and within limits that the operator sets; statements cannot change that. It works in a subprocess,
because its own memory limit does not count everything. Only one process can open a file: its tasks take turns.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.providers.databases.files import MEMORY, database_path, keep_private, store_below
from perdure.providers.databases.statements import DUCKDB, SqlStatement
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
from perdure.providers.optional_libraries import import_library
from perdure.providers.policy import policy_in_force
from perdure.providers.registry import DATABASE, Mode, Provider
from perdure.providers.task_outcomes import RESULT_LIMIT

if TYPE_CHECKING:
    import duckdb as library

PREFIX = "Provider.Call.Duckdb"
SETTING = "policy.duckdb_folders"

_CODES: tuple[tuple[str, str, bool], ...] = (
    ("ConstraintException", "Constraint", False),
    ("TransactionException", "Deadlock", True),  # two transactions changed the same rows
    ("OutOfMemoryException", "TooLarge", False),
    ("ConnectionException", "Connection", True),
    ("HTTPException", "Connection", True),
    ("PermissionException", "Unavailable", False),
    ("InternalException", "Broken", False),
    ("FatalException", "Broken", False),
)
_TEMPORARY = "8GB"  # on the disk, beside the file
_LOCKED = "Could not set lock"
_CHANGING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE_INTO", "MERGE"})


async def duckdb(
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

    Values of `params` are bound to `?` or `$1` (a list) or `$name` (a map). Needs `perdure[duckdb]`.
    """
    keep_private()
    times = DatabaseTimeouts.of(timeout)
    session = _Session(str(database or (auth or {}).get("database") or ""))
    statements = Statements(
        command, commands, query, command_b64, commands_b64, query_b64, script, params, each_statement
    )
    return await run_transaction(session, statements, limited(times.total))


class _Session:
    grammar = DUCKDB
    prefix = PREFIX

    def __init__(self, file: str) -> None:
        self._file = file
        self._library: Any = None
        self._connection: library.DuckDBPyConnection | None = None

    def open(self) -> None:
        self._library = import_library("duckdb", PREFIX)
        policy = policy_in_force()
        path = database_path(self._file, policy.duckdb_folders, PREFIX, SETTING)
        folders = [_without_store(Path(folder).resolve()) for folder in policy.duckdb_folders or ()]
        settings = {
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "memory_limit": policy.duckdb_memory,
            "threads": str(policy.duckdb_threads),
            "max_temp_directory_size": _TEMPORARY,
        }
        if path == MEMORY:
            settings["temp_directory"] = ""
        self._connection = connection = self._library.connect(path, config=settings)
        if connection.execute("SELECT current_setting('lock_configuration')").fetchone() == (True,):
            return  # another task has the same file open: its database is set up already
        if folders:
            connection.execute(f"SET allowed_directories = {_listed(folders)}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")

    def begin(self, statements: list[SqlStatement]) -> None:
        self._open.begin()

    def execute(self, text: str, values: list[Any]) -> StatementResult:
        [statement] = self._open.extract_statements(text)
        done = self._open.execute(statement, values)
        changes = self._library.ExpectedResultType.CHANGED_ROWS in statement.expected_result_type
        has_rows = self._library.ExpectedResultType.QUERY_RESULT in statement.expected_result_type
        if changes:  # a statement that changes rows returns rows only with RETURNING, and then no count
            has_rows = statement.type.name in _CHANGING and done.rowcount < 0
            if has_rows and _is_count(done.description) and "RETURNING" not in text.upper():
                return StatementResult(None, [], int(done.fetchall()[0][0]))  # before DuckDB 2 the count is a row
        if not has_rows:
            return StatementResult(None, [], done.rowcount)
        rows = bounded(_pieces(done), RESULT_LIMIT, PREFIX)
        return StatementResult(*table([column[0] for column in done.description or ()], rows))

    def commit(self) -> None:
        self._open.commit()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()  # undoes what was not committed

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()

    def explain(self, error: Exception) -> ProviderFailure | None:
        if self._library is None or not isinstance(error, self._library.Error):
            return None
        facts = {"error": type(error).__name__}
        code, retryable = "BadStatement", False
        if isinstance(error, self._library.IOException):
            is_locked = _LOCKED in str(error)  # another process has the file open
            code, retryable = ("Busy", True) if is_locked else ("Unavailable", False)
        for name, code_name, again in _CODES:
            if isinstance(error, getattr(self._library, name, ())):
                code, retryable = code_name, again
        kind = Exhausted if code in ("TooLarge", "Broken") else ProviderFailure
        return kind(f"{PREFIX}.{code}", str(error), retryable, facts)

    @property
    def _open(self) -> "library.DuckDBPyConnection":
        assert self._connection is not None
        return self._connection


def _without_store(folder: Path) -> str:
    """A folder as passed to DuckDB. In an open folder it reads and writes any file, including a store's."""
    if (store := store_below(folder)) is not None:
        message = f"{folder}, a folder of policy.duckdb_folders, holds runs of Perdure ({store.name}); keep them apart"
        raise ProviderFailure(f"{PREFIX}.Forbidden", message, retryable=False)
    return f"{folder}/"


def _is_count(columns: Any) -> bool:
    return [column[0] for column in columns or ()] == ["Count"]


def _listed(texts: list[str]) -> str:
    return "[" + ", ".join("'" + text.replace("'", "''") + "'" for text in texts) + "]"


def _pieces(done: Any) -> Iterator[Any]:
    while rows := done.fetchmany(1_000):
        yield from rows


def _memory() -> int:
    return subprocess_memory(policy_in_force().duckdb_memory)


def _file(arguments: Mapping[str, Any]) -> str:
    auth = arguments.get("auth")
    name = str(arguments.get("database") or (auth.get("database") if isinstance(auth, Mapping) else "") or "")
    folder = next(iter(policy_in_force().duckdb_folders or ()), "")
    try:
        return "" if name in ("", MEMORY) else str(Path(folder, name).resolve())
    except (OSError, RuntimeError, ValueError):  # opening it will report the reason
        return name


PROVIDER = Provider.of("duckdb", duckdb, mode=Mode.ISOLATED, group=DATABASE, memory=_memory, turn_key=_file)
