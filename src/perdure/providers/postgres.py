"""`postgres`: statements on a PostgreSQL server, all of them in one transaction.

Text is sent as written; values are sent separately. Stopping a task cancels its statement on the server. It works in a
subprocess, because the library keeps a row, and whatever else a server sends, in memory before anybody can count it.
Programs and files of the database server are not accessible unless the operator allows it; the connection uses nothing
of this process's environment, and goes to an address that the policy allows.
"""

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.providers.addresses import AddressRefused, resolve_blocking
from perdure.providers.databases.statements import POSTGRES, SqlStatement, split
from perdure.providers.databases.transaction import (
    DatabaseTimeouts,
    StatementResult,
    Statements,
    StatementTexts,
    run_transaction,
    subprocess_memory,
)
from perdure.providers.databases.values import bounded, table
from perdure.providers.external_texts import Script
from perdure.providers.failure import Exhausted, ProviderFailure
from perdure.providers.optional_libraries import import_library
from perdure.providers.policy import of_api_document, policy_in_force
from perdure.providers.registry import DATABASE, Mode, Provider
from perdure.providers.task_outcomes import RESULT_LIMIT

if TYPE_CHECKING:
    import psycopg

PREFIX = "Provider.Call.Postgres"

_MEMORY = "256MB"
"""Of the library, which keeps what a server sends until it is complete: a row, a message, notifications."""

_ALIASES = {
    "database": "dbname",
    "db_database": "dbname",
    "db_name": "dbname",
    "username": "user",
    "db_username": "user",
}
_NOT_SETTINGS = ("type", "kind", "name", "description", "dsn", "url")  # of a credential, not of a connection

_GIVING_ROWS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "FETCH"})
_PERHAPS_GIVING_ROWS = frozenset({"EXECUTE", "CALL"})
_WITHOUT_ROWS = re.compile(r"\b(INSERT|UPDATE|DELETE|MERGE|INTO)\b", re.IGNORECASE)  # WITH … INSERT, SELECT … INTO
_RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
_DOCUMENT_SETTINGS = frozenset(
    [
        *("host", "hostaddr", "port", "dbname", "user", "password", "options", "target_session_attrs"),
        *("application_name", "fallback_application_name", "client_encoding", "connect_timeout", "load_balance_hosts"),
        *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "tcp_user_timeout"),
        *("sslmode", "sslnegotiation", "sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version"),
        *("channel_binding", "require_auth", "gssencmode", "min_protocol_version", "max_protocol_version"),
    ]
)
"""On a closed network. Others name files of this machine, to read or to write, or addresses that are not checked."""
_NEVER = frozenset({"sslkeylogfile", "passfile", "service", "servicefile"})
"""On no network: a file that is written; and passwords of this user, which `hostaddr` would send to any server."""
_SERVER_FILES = re.compile(
    r"\b(pg_read_(binary_)?file|pg_ls_\w+|pg_stat_file|pg_file_\w+|lo_import|lo_export|pg_execute_server_program"
    r"|pg_(read|write)_server_files|adminpack|file_fdw|dblink\w*|plpython\w*|plperlu)\b",
    re.IGNORECASE,
)
_PRIVILEGES = """
SELECT pg_catalog.bool_or(
  rolsuper
  OR rolname OPERATOR(pg_catalog.=) 'pg_execute_server_program'::pg_catalog.name
  OR rolname OPERATOR(pg_catalog.=) 'pg_read_server_files'::pg_catalog.name
  OR rolname OPERATOR(pg_catalog.=) 'pg_write_server_files'::pg_catalog.name
  OR rolcreaterole AND pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.<) 160000
)
FROM pg_catalog.pg_roles WHERE pg_catalog.pg_has_role(session_user, oid, 'MEMBER')
"""
"""Of every role that the connection can take by SET ROLE or RESET ROLE, not only of the current one.

Before version 16 whoever may create roles may also take these. Each name is written with its schema: the document may
choose the search path, and have made objects that are called the same.
"""

_BY_STATE: tuple[tuple[str, str, bool], ...] = (  # the first matching prefix (appendix A of the manual)
    ("08", "Connection", True),
    ("53100", "Full", False),
    ("53300", "Connection", True),
    ("53", "Broken", True),
    ("57014", "ServerTimeout", True),
    ("57", "Connection", True),
    ("55P03", "ServerTimeout", True),
    ("40", "Deadlock", True),
    ("23", "Constraint", False),
    ("28", "Denied", False),
    ("42501", "Denied", False),
    ("3D000", "NotFound", False),
    ("58", "Broken", True),
    ("XX", "Broken", True),
)
_OUT_OF_MEMORY = re.compile("out of memory|cannot allocate memory")  # of this process, as the library says it


async def postgres(
    auth: dict[str, Any] | None = None,
    command: str | None = None,
    commands: StatementTexts | None = None,
    query: str | None = None,
    params: list[Any] | dict[str, Any] | None = None,
    script: Script | str | None = None,
    command_b64: str | None = None,
    commands_b64: str | None = None,
    query_b64: str | None = None,
    dsn: str | None = None,
    host: str | None = None,
    port: int | str | None = None,
    user: str | None = None,
    password: str | None = None,
    dbname: str | None = None,
    timeout: DatabaseTimeouts | float | None = None,
    each_statement: bool = False,
) -> msgspec.Raw:
    """Run statements in one transaction; return the rows of the last statement that has any.

    `auth` is the connection: host, port, user, password, dbname or any other setting of libpq, or `dsn`, an address;
    explicit parameters take precedence. Values of `params` are bound to `%s` or `$1` (a list) or `%(name)s` (a map).
    Needs `perdure[postgres]`.
    """
    times = DatabaseTimeouts.of(timeout)
    explicit = {"dsn": dsn, "host": host, "port": port, "user": user, "password": password, "dbname": dbname}
    session = _Session(_settings(auth or {}, explicit), times)
    statements = Statements(
        command, commands, query, command_b64, commands_b64, query_b64, script, params, each_statement
    )
    return await run_transaction(session, statements, times.total)


def _settings(auth: dict[str, Any], explicit: dict[str, Any]) -> dict[str, Any]:
    """Settings of libpq. Credentials may have the prefix `db_`, as other tools store them."""
    named = {_ALIASES.get(name, name).removeprefix("db_"): value for name, value in auth.items() if value is not None}
    settings = {name: value for name, value in named.items() if name not in _NOT_SETTINGS}
    address = explicit.pop("dsn") or named.get("dsn") or named.get("url")
    settings |= {name: value for name, value in explicit.items() if value is not None}
    if address is not None:
        settings["conninfo"] = address
    return settings


class _Session:
    grammar = POSTGRES
    prefix = PREFIX

    def __init__(self, settings: dict[str, Any], times: DatabaseTimeouts) -> None:
        self._settings = settings
        self._times = times
        self._library: Any = None
        self._connection: psycopg.Connection[Any] | None = None
        self._is_connecting = False

    def open(self) -> None:
        self._library = import_library("postgres", PREFIX)
        settings = {"application_name": "perdure", "connect_timeout": max(2, round(self._times.connect))}
        self._is_connecting = True
        connection = self._library.connect(**settings | self._address(), cursor_factory=self._library.RawCursor)
        self._is_connecting = False
        _register_loaders(connection)
        self._connection = connection

    def _address(self) -> dict[str, Any]:
        """Where to connect, and as whom: as the task says, and nothing from this process's own settings."""
        from psycopg.conninfo import conninfo_to_dict

        settings_in_task = dict(self._settings)
        settings: dict[str, Any] = {**conninfo_to_dict(str(settings_in_task.pop("conninfo", ""))), **settings_in_task}
        settings.setdefault("password", "")  # otherwise libpq would use PGPASSWORD, or the password file
        policy = policy_in_force()
        is_bound = policy.network == "closed" or of_api_document.get()
        named = settings.keys() - _DOCUMENT_SETTINGS if is_bound else settings.keys() & _NEVER
        if named:
            message = f"{', '.join(sorted(named))}: documents may not change this connection setting"
            raise ProviderFailure(f"{PREFIX}.Forbidden", message, retryable=False)
        settings.setdefault("passfile", str(Path(os.devnull, "none")))
        if policy.checks_addresses:
            settings |= _resolved_address(settings)
        return settings

    def begin(self, statements: list[SqlStatement]) -> None:
        """The driver begins the transaction; here the server is told how to format intervals, and when to give up."""
        self._keep_from_server(statements)
        limit = 0 if self._times.total is None else int((self._times.total + 1) * 1000)
        statement = "SELECT pg_catalog.set_config('intervalstyle', 'iso_8601', true)"
        if limit:  # a limit beyond our own, in case this process vanishes: the server must not continue for nobody
            statement += f", pg_catalog.set_config('statement_timeout', '{limit}', true)"
        self._open.execute(statement)

    def _keep_from_server(self, statements: list[SqlStatement]) -> None:
        """A document has no access to programs and files of the database's machine, whatever its role may do there."""
        policy = policy_in_force()
        if policy.postgres_server_files:
            return
        for statement in statements:
            if reached := _reaches_server(statement):
                message = f"{reached} reaches programs or files of the database server; an operator can allow it"
                hint = {"hint": "policy.postgres_server_files = true in the settings file"}
                raise ProviderFailure(f"{PREFIX}.Forbidden", message, retryable=False, details=hint)
        if policy.network == "closed":
            row = self._open.execute(_PRIVILEGES).fetchone()
            if row is not None and row[0]:
                message = "the role of this connection may run programs on the database server; use one that may not"
                raise ProviderFailure(f"{PREFIX}.Forbidden", message, retryable=False)

    def execute(self, text: str, values: list[Any]) -> StatementResult:
        parameters = [_to_parameter(value) for value in values] or None
        if self._gives_rows(text):
            cursor = self._open.cursor()
            rows = bounded(cursor.stream(text, parameters), RESULT_LIMIT, PREFIX)
            columns = [column.name for column in cursor.description or ()] if rows else self._columns(text)
        else:
            cursor = self._open.execute(text, parameters)
            rows = [] if cursor.description is None else bounded(cursor, RESULT_LIMIT, PREFIX)
            columns = [column.name for column in cursor.description or ()]
        return StatementResult(*table(columns, rows)) if columns else StatementResult(None, [], cursor.rowcount)

    def _gives_rows(self, text: str) -> bool:
        """Whether it returns rows, which are then read one by one and counted, rather than collected first."""
        first = {statement.words[0] for statement in split(text, POSTGRES) if statement.words}
        if first & _GIVING_ROWS and not _WITHOUT_ROWS.search(text):
            return True
        is_open = first & (_GIVING_ROWS | _PERHAPS_GIVING_ROWS) or _RETURNING.search(text)
        return bool(is_open) and bool(self._columns(text))

    def _columns(self, text: str) -> list[str]:
        """Of a statement without rows: requested again, because rows read one by one bring their columns along."""
        server = self._open.pgconn
        prepared = server.prepare(b"", text.encode())
        if prepared.status == self._library.pq.ExecStatus.FATAL_ERROR:
            raise self._library.errors.error_from_result(prepared)
        description = server.describe_prepared(b"")
        return [(description.fname(number) or b"").decode() for number in range(description.nfields)]

    def commit(self) -> None:
        self._open.commit()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()  # the server undoes what was not committed

    def interrupt(self) -> None:
        if self._connection is not None:
            self._connection.cancel_safe(timeout=2.0)

    def explain(self, error: Exception) -> ProviderFailure | None:
        if self._library is None or not isinstance(error, self._library.Error):
            return None
        state = getattr(error, "sqlstate", None)
        code, retryable = ("BadStatement", False)
        if state is not None:
            code, retryable = _classify_state(state)
        elif _OUT_OF_MEMORY.search(str(error)):
            code = "TooLarge"
        elif isinstance(error, self._library.OperationalError):  # not from the server: the connection broke
            code, retryable = _classify_connection_error(str(error)) if self._is_connecting else ("Connection", True)
        diagnosis = getattr(error, "diag", None)
        facts: dict[str, Any] = {"sqlstate": state}
        for name in ("message_detail", "message_hint", "constraint_name", "table_name", "column_name"):
            if diagnosis is not None and getattr(diagnosis, name) is not None:
                facts[name.removeprefix("message_").removesuffix("_name")] = getattr(diagnosis, name)
        message = (diagnosis is not None and diagnosis.message_primary) or str(error).strip() or type(error).__name__
        kind = Exhausted if code == "TooLarge" else ProviderFailure
        return kind(f"{PREFIX}.{code}", message, retryable, facts)

    @property
    def _open(self) -> "psycopg.Connection[Any]":
        assert self._connection is not None
        return self._connection


def _reaches_server(statement: SqlStatement) -> str | None:
    """The part of a statement that uses the server's files and programs; a role without rights protects better."""
    match = _SERVER_FILES.search(statement.text)
    if match is not None:
        return match.group()
    if statement.words[:1] == ["COPY"]:
        words = re.findall(r"[A-Za-z_]+|'", re.sub(r"\([^()]*\)", "", statement.text))
        for before, after in pairwise(words):
            if before.upper() in ("FROM", "TO") and after.upper() not in ("STDIN", "STDOUT"):
                return f"COPY … {before.upper()} {'PROGRAM' if after.upper() == 'PROGRAM' else 'a file'}"
    return None


def _resolved_address(settings: dict[str, Any]) -> dict[str, Any]:
    """Names are resolved and checked here; libpq connects to the checked addresses. Local sockets are not checked."""
    hosts = str(settings.get("host") or settings.get("hostaddr") or "").split(",")
    ports = str(settings.get("port") or "5432").split(",")
    if any(not host or host.startswith(("/", "@")) for host in hosts):
        raise AddressRefused(settings.get("host") or "a local socket", PREFIX)
    policy = policy_in_force()
    targets: list[tuple[str, str, str]] = []
    for number, host in enumerate(hosts):
        port = ports[number] if number < len(ports) else ports[-1]
        targets += [(host, address, port) for address in resolve_blocking(policy, host, int(port), PREFIX)]
    return {
        "host": ",".join(h for h, _, _ in targets),
        "hostaddr": ",".join(a for _, a, _ in targets),
        "port": ",".join(p for _, _, p in targets),
    }


def _classify_state(state: str) -> tuple[str, bool]:
    fitting = ((code, retryable) for start, code, retryable in _BY_STATE if state.startswith(start))
    return next(fitting, ("BadStatement", False))


def _classify_connection_error(message: str) -> tuple[str, bool]:
    """A refused connection has no code here, only a message; the server's part of it is not fixed."""
    if any(words in message for words in ("authentication failed", "no password supplied", "no pg_hba.conf entry")):
        return "Denied", False
    if "role" in message and "does not exist" in message:
        return "Denied", False
    if "database" in message and "does not exist" in message:
        return "NotFound", False
    return "Connection", True


def _to_parameter(value: Any) -> Any:
    """Maps, and lists that contain one, are JSON; other lists are arrays."""
    from psycopg.types.json import Jsonb

    return Jsonb(value) if isinstance(value, dict) or _holds_map(value) else value


def _holds_map(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) or _holds_map(item) for item in value)


def _register_loaders(connection: "psycopg.Connection[Any]") -> None:
    """Instants that Python cannot represent (`infinity`, the year 20000) and intervals of months stay text."""
    from psycopg.types import datetime as kinds
    from psycopg.types.string import TextLoader

    adapters = connection.adapters
    adapters.register_loader("interval", TextLoader)
    for name, kind in (
        ("date", kinds.DateLoader),
        ("timestamp", kinds.TimestampLoader),
        ("timestamptz", kinds.TimestamptzLoader),
        ("time", kinds.TimeLoader),
        ("timetz", kinds.TimetzLoader),
    ):
        adapters.register_loader(name, _or_text(kind))


def _or_text(kind: Any) -> Any:
    from psycopg import DataError

    class Loader(kind):  # type: ignore[misc]
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except (DataError, ValueError, OverflowError):
                return bytes(data).decode()

    return Loader


def _memory() -> int:
    return subprocess_memory(_MEMORY)


PROVIDER = Provider.of("postgres", postgres, mode=Mode.ISOLATED, group=DATABASE, memory=_memory)
