"""`postgres`: statements on a PostgreSQL server, all of them in one transaction.

Text is sent as it is written; values travel apart from it. Stopping a task cancels its statement on the server.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.providers.databases.statements import POSTGRES, Statement
from perdure.providers.databases.transaction import Answer, Plain, Timeouts, Work, perform
from perdure.providers.databases.values import table
from perdure.providers.extras import need
from perdure.providers.failure import ProviderFailure
from perdure.providers.registry import DATABASE, Provider
from perdure.providers.sources import Script

if TYPE_CHECKING:
    import psycopg

PREFIX = "Provider.Call.Postgres"

_ALIASES = {
    "database": "dbname",
    "db_database": "dbname",
    "db_name": "dbname",
    "username": "user",
    "db_username": "user",
}
_NOT_OURS = ("type", "kind", "name", "description", "dsn", "url")  # of a credential, but no setting of a connection

_BY_STATE: tuple[tuple[str, str, bool], ...] = (  # the first whose beginning fits (appendix A of PostgreSQL's manual)
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


async def postgres(
    auth: dict[str, Any] | None = None,
    command: str | None = None,
    commands: Plain | None = None,
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
    timeout: Timeouts | float | None = None,
) -> msgspec.Raw:
    """Run statements in one transaction; answer with the rows of the last statement that has any.

    `auth` is the connection: host, port, user, password, dbname or any other setting of libpq, or `dsn`, an address;
    explicit parameters come before it. Values of `params` stand at `%s` or `$1` (a list) or `%(name)s` (a map).
    Needs `perdure[postgres]`.
    """
    times = Timeouts.of(timeout)
    explicit = {"dsn": dsn, "host": host, "port": port, "user": user, "password": password, "dbname": dbname}
    session = _Session(_settings(auth or {}, explicit), times)
    work = Work(command, commands, query, command_b64, commands_b64, query_b64, script, params)
    return await perform(session, work, times.total)


def _settings(auth: dict[str, Any], explicit: dict[str, Any]) -> dict[str, Any]:
    """Settings of libpq. Credentials may be written with the prefix `db_`, as other tools store them."""
    given = {_ALIASES.get(name, name).removeprefix("db_"): value for name, value in auth.items() if value is not None}
    settings = {name: value for name, value in given.items() if name not in _NOT_OURS}
    address = explicit.pop("dsn") or given.get("dsn") or given.get("url")
    settings |= {name: value for name, value in explicit.items() if value is not None}
    if address is not None:
        settings["conninfo"] = address
    return settings


class _Session:
    grammar = POSTGRES
    prefix = PREFIX

    def __init__(self, settings: dict[str, Any], times: Timeouts) -> None:
        self._settings = settings
        self._times = times
        self._library: Any = None
        self._connection: psycopg.Connection[Any] | None = None
        self._is_connecting = False

    def open(self) -> None:
        self._library = need("postgres", PREFIX)
        settings = {"application_name": "perdure", "connect_timeout": max(2, round(self._times.connect))}
        self._is_connecting = True
        connection = self._library.connect(**settings | self._settings, cursor_factory=self._library.RawCursor)
        self._is_connecting = False
        _load_faithfully(connection)
        self._connection = connection

    def begin(self, statements: list[Statement]) -> None:
        """The driver begins by itself; here the server learns how to write intervals, and when to give up on us."""
        limit = 0 if self._times.total is None else int((self._times.total + 1) * 1000)
        wish = "SELECT set_config('intervalstyle', 'iso_8601', true)"
        if limit:  # a net below our own limit, should this process vanish: the server must not work on for nobody
            wish += f", set_config('statement_timeout', '{limit}', true)"
        self._open.execute(wish)

    def execute(self, text: str, values: list[Any]) -> Answer:
        given = [_given(value) for value in values]
        cursor = self._open.execute(text, given or None)
        if cursor.description is None:
            return Answer(None, [], cursor.rowcount)
        return Answer(*table([column.name for column in cursor.description], cursor.fetchall()))

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
            code, retryable = _judged(state)
        elif isinstance(error, self._library.OperationalError):  # not the server's word: the connection broke
            code, retryable = _at_the_door(str(error)) if self._is_connecting else ("Connection", True)
        said = getattr(error, "diag", None)
        facts: dict[str, Any] = {"sqlstate": state}
        for name in ("message_detail", "message_hint", "constraint_name", "table_name", "column_name"):
            if said is not None and getattr(said, name) is not None:
                facts[name.removeprefix("message_").removesuffix("_name")] = getattr(said, name)
        message = (said is not None and said.message_primary) or str(error).strip() or type(error).__name__
        return ProviderFailure(f"{PREFIX}.{code}", message, retryable, facts)

    @property
    def _open(self) -> "psycopg.Connection[Any]":
        assert self._connection is not None
        return self._connection


def _judged(state: str) -> tuple[str, bool]:
    fitting = ((code, retryable) for start, code, retryable in _BY_STATE if state.startswith(start))
    return next(fitting, ("BadStatement", False))


def _at_the_door(said: str) -> tuple[str, bool]:
    """A refused connection has no code here, only words; the server's part of them is not ours to choose."""
    if any(words in said for words in ("authentication failed", "no password supplied", "no pg_hba.conf entry")):
        return "Denied", False
    if "role" in said and "does not exist" in said:
        return "Denied", False
    if "database" in said and "does not exist" in said:
        return "NotFound", False
    return "Connection", True


def _given(value: Any) -> Any:
    """Maps, and lists that hold one, are JSON; other lists are arrays."""
    from psycopg.types.json import Jsonb

    return Jsonb(value) if isinstance(value, dict) or _holds_map(value) else value


def _holds_map(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) or _holds_map(item) for item in value)


def _load_faithfully(connection: "psycopg.Connection[Any]") -> None:
    """Instants that Python has no form for (`infinity`, the year 20000) and intervals of months stay text."""
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


PROVIDER = Provider.of("postgres", postgres, group=DATABASE)
