"""One database: how it is connected to, brought up to date, and what its errors mean."""

import logging
import os
import re
import secrets
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from perdure.kernel.errors import PerdureError
from perdure.kernel.json_values.values import SECOND, Instant
from perdure.stores.errors import (
    BadStoreUrl,
    StoreAccessDenied,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreNewer,
    StoreNotDurable,
    StoreReadOnly,
    StoreRightsMissing,
    StoreServerUnfit,
    StoreUnreachable,
)
from perdure.stores.postgres.clock_offset import DatabaseClock, settle
from perdure.stores.postgres.plain_session import PlainSession
from perdure.stores.postgres.session import ConnectionLost, Session
from perdure.stores.store_urls import has_password, without_password

# Where a database is: `postgresql://user:password@host:port/name?parameters`, as libpq reads it.

SCHEMES = ("postgresql", "postgres")
HINT = "Use postgresql://user@host:5432/database; the password may be in PGPASSWORD or in ~/.pgpass."

DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "15",  # a peer that vanished is noticed in half a minute
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


ESCAPED = "write what is neither a letter nor a digit of the password as %40 and so on, and a port as a number"
"""In place of the library's words, which may quote the password."""


def parameters_of(url: str) -> str:
    """The address as libpq takes it, with our defaults where it says nothing."""
    if url.partition("://")[0] not in SCHEMES or "://" not in url:
        raise BadStoreUrl(f"{without_password(url)!r} is not the address of a PostgreSQL store", hint=HINT)
    try:
        parameters = conninfo_to_dict(url)
    except psycopg.Error as error:
        text = ESCAPED if has_password(url) else str(error).strip()
        raise BadStoreUrl(f"{without_password(url)!r} is not understood: {text}", hint=HINT) from None
    port = str(parameters.get("port") or "")
    if not all(part.isdecimal() for part in port.split(",") if part):
        text = ESCAPED if has_password(url) else f"{port!r} is not a port (expected e.g. 5432)"
        raise BadStoreUrl(f"{without_password(url)!r} is not understood: {text}", hint=HINT)
    return make_conninfo("", **{**DEFAULTS, **parameters})


_log = logging.getLogger("perdure.stores.postgres")

OLDEST_SERVER = 150_000
WARN_EVERY = 30.0  # seconds
MOST_WARNINGS = 100
PLAIN = "PERDURE_POSTGRES_PLAIN"  # 1: statements are executed by plain cursors of psycopg
MIGRATING = 0x50455244  # "PERD": the advisory lock of who changes the schema
NOW = "instant()"

# Every statement of ours goes by an index, and its plan does not depend on its values.
_SETTINGS = """
SET search_path = perdure;
SET client_encoding = 'UTF8';
SET jit = off;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET idle_in_transaction_session_timeout = {lease_milliseconds};
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply';
SELECT current_setting('fsync'), current_setting('server_encoding'), pg_is_in_recovery()
"""


class PostgresSettings(msgspec.Struct, frozen=True):
    """Settings of the PostgreSQL store. Times are in seconds."""

    lease: float = 10.0  # how long a process that fell silent keeps what it owns
    timeout: float = 30.0  # how long a database may be away before that is an error
    poll: float = 30.0  # between looks for messages that neither a hint nor a renewal of the lease told of
    readers: int = 2  # connections for reading, opened when they are needed

    @classmethod
    def from_environment(cls, lease: float | None = None, timeout: float | None = None) -> "PostgresSettings":
        usual = cls()
        return cls(
            lease=lease or _seconds("PERDURE_DB_LEASE", usual.lease),
            timeout=_seconds("PERDURE_DB_PATIENCE", timeout or usual.timeout),
        )


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "")
    try:
        seconds = float(text) if text.strip() else default
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise PerdureError(
            f"{variable}={text!r} is not a number of seconds", hint=f"For example {variable}={default:g}"
        )
    return seconds


class Notifications:
    """What is heard by the thread that keeps the lease, for all lives of the lease."""

    def __init__(self) -> None:
        self.catalog = 0  # how often something was heard of the catalog
        self.woken: Callable[[], None] = lambda: None


class Database:
    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self.clock = DatabaseClock()
        self.address = without_password(url)
        self.settings = settings
        self.timeout = settings.timeout
        self.notifications = Notifications()
        self.token = f"perdure-{secrets.token_hex(6)}"
        """Begins the name of all our sessions, so that a successor can end what we left open."""
        self._parameters = parameters_of(url)
        self._warned: dict[str, float] = {}

    def warn(self, text: str) -> None:
        """Log a warning at most once in `WARN_EVERY` seconds: an outage may last for hours."""
        now = time.monotonic()
        if now - self._warned.get(text, -WARN_EVERY) >= WARN_EVERY:
            if len(self._warned) > MOST_WARNINGS:
                self._warned.clear()
            self._warned[text] = now
            _log.warning("%s", text)

    def connect(self, purpose: str) -> Session:
        """A session that is fit for use. Errors say what to do; `StoreUnreachable` may pass."""
        try:
            connection: psycopg.Connection[Any] = psycopg.connect(
                self._parameters, autocommit=True, application_name=f"{self.token} {purpose}"
            )
        except psycopg.Error as error:
            raise self._refusal(error) from None
        session = PlainSession(connection) if os.environ.get(PLAIN) == "1" else Session(connection)
        try:
            self._prepare(session)
        except BaseException as error:
            session.close()
            if isinstance(error, psycopg.Error | ConnectionLost):
                raise self.explain(error) from None
            raise
        return session

    def _prepare(self, session: Session) -> None:
        if session.server_version < OLDEST_SERVER:
            version = session.server_version // 10_000
            raise StoreServerUnfit(f"{self.address} is PostgreSQL {version}; Perdure needs 15 or newer")
        milliseconds = int(self.settings.lease * 1_000)
        ((fsync, encoding, is_standby),) = session.execute(_SETTINGS.format(lease_milliseconds=milliseconds))
        if fsync != "on":
            raise StoreNotDurable(f"{self.address}: the server runs with fsync = off")
        if encoding != "UTF8":
            raise StoreServerUnfit(
                f"{self.address}: the database's encoding is {encoding}, not UTF8",
                hint="Create the database with ENCODING 'UTF8' TEMPLATE template0.",
            )
        if is_standby == "t":
            raise StoreReadOnly(
                f"{self.address} is a standby, which cannot be written",
                hint="Name the primary server, or add ?target_session_attrs=read-write to an address of several hosts.",
            )

    def settle(self, session: Session) -> None:
        """Judge nobody by a clock that has jumped: it is set right first."""
        jumped = settle(session, self.clock, self.token)
        if jumped:
            way = "ahead" if jumped > 0 else "back"
            self.warn(
                f"the database's clock was set {way} by {abs(jumped) / SECOND:.0f} s; the store's clock continues"
            )

    # The schema.

    def refuse_foreign(self, session: Session) -> None:
        """Something is there, and this program can work with it."""
        version, compatible = self.version(session)
        newest = len(migrations())
        if not version:
            raise StoreMissing(
                f"there is no Perdure store in {self.address} yet",
                hint="Start a run first (`perdure run FILE`), or check the name of the database.",
            )
        if compatible > newest:
            raise StoreNewer(
                f"{self.address} has schema {version}, which needs a Perdure that knows schema {compatible};"
                f" this one knows schemas up to {newest}",
                hint="Upgrade Perdure, or choose another database with --db. Nothing was touched.",
            )

    def migrate(self, session: Session) -> None:
        """Apply the migrations that are missing; several processes may try at once. A newer schema stays as it is."""
        scripts = migrations()
        if self.version(session)[0] >= len(scripts):
            return
        try:
            with session.transaction():
                session.execute(f"SELECT pg_advisory_xact_lock({MIGRATING})")
                if session.execute("SELECT to_regnamespace('perdure')")[0][0] is None:
                    session.execute("CREATE SCHEMA perdure")
                session.execute(
                    "CREATE TABLE IF NOT EXISTS schema (version integer NOT NULL, compatible integer NOT NULL)"
                )
                done = self.version(session)[0]
                for number, (compatible, script) in enumerate(scripts, start=1):
                    if number > done:
                        session.execute(script)
                        session.execute(f"DELETE FROM schema; INSERT INTO schema VALUES ({number}, {compatible})")
        except errors.InsufficientPrivilege as error:
            raise StoreRightsMissing(
                f"{self.address}: the role may not create or change Perdure's tables ({_first_line(error)})",
                hint="Let a role that may do so run `perdure db migrate` once; docs/reference/postgres.md lists the"
                " rights for daily use.",
            ) from None

    def version(self, session: Session) -> tuple[int, int]:
        """The schema's version, and the oldest one a program must know to work with it; 0 when there is none."""
        if session.execute("SELECT to_regclass('perdure.schema')")[0][0] is None:
            return 0, 0
        rows = session.execute("SELECT version, compatible FROM perdure.schema")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    # What errors mean.

    def _refusal(self, error: psycopg.Error) -> StoreError:
        """Why there is no connection. libpq has no code for that, only the server's message."""
        text = " ".join(str(error).split())
        for pattern, kind, hint in _REFUSALS:
            if re.search(pattern, text):
                return kind(f"{self.address}: {_without_prefix(text)}", hint=hint)
        if isinstance(error, psycopg.ProgrammingError):
            return BadStoreUrl(f"{self.address} is not understood: {text}")
        return StoreUnreachable(f"{self.address}: {_without_prefix(text)}")

    def explain(self, error: BaseException) -> StoreError:
        match error:
            case StoreError():
                return error
            case ConnectionLost():
                return StoreUnreachable(f"{self.address}: the connection was lost ({_first_line(error)})")
            case errors.DiskFull() | errors.OutOfMemory():
                return StoreFull(f"{self.address}: {_first_line(error)}", hint=_FULL)
            case errors.InsufficientPrivilege():
                return StoreRightsMissing(f"{self.address}: {_first_line(error)}")
            case errors.ReadOnlySqlTransaction():
                return StoreReadOnly(
                    f"{self.address}: {_first_line(error)}",
                    hint="The database is a standby, or set to read only. Name the primary server.",
                )
            case errors.UndefinedTable() | errors.InvalidSchemaName():
                return StoreMissing(
                    f"{self.address}: {_first_line(error)}",
                    hint="Perdure's tables were removed, or were never made; `perdure db migrate` makes them.",
                )
            case _:
                return StoreError(f"{self.address}: {_first_line(error)}")


_FULL = "Free disk space on the database server (`perdure prune` helps), then continue with `perdure resume`."
_REFUSALS: tuple[tuple[str, type[StoreError], str | None], ...] = (
    (r"password authentication failed|no password supplied|authentication failed", StoreAccessDenied, None),
    (r'role ".*" does not exist|pg_hba\.conf', StoreAccessDenied, None),
    (
        r'database ".*" does not exist',
        StoreMissing,
        "Create the database (`createdb NAME`), or correct the name in the address.",
    ),
    (r"permission denied for database", StoreRightsMissing, None),
    (
        r"too many (connections|clients)|remaining connection slots",
        StoreUnreachable,
        "Raise max_connections on the server, or run fewer processes; an engine keeps about four connections.",
    ),
)


def is_transient(error: Exception) -> bool:
    """Whether waiting may help: nothing was written, and the same again may work."""
    return isinstance(
        error,
        errors.DeadlockDetected | errors.SerializationFailure | errors.LockNotAvailable | errors.QueryCanceled,
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _without_prefix(text: str) -> str:
    """Without the usual prefix and without the questions of libpq: the hint says what to do."""
    return re.sub(r" Is the server running [^?]*\?", "", text.removeprefix("connection failed: "))


def migration_names() -> list[str]:
    """In order; the number of a schema is how many of them it has had."""
    folder = files("perdure.stores.postgres") / "migrations"
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Each with the oldest schema a program must know to go on beside it."""
    folder = files("perdure.stores.postgres") / "migrations"
    scripts = [(folder / name).read_text(encoding="utf-8") for name in migration_names()]
    return tuple((int(script.partition("\n")[0].removeprefix("-- compatible:")), script) for script in scripts)


def microseconds(seconds: float) -> Instant:
    return int(seconds * SECOND)
