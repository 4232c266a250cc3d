"""Addresses of stores: what they open, and how they may be shown. What people read, copy and log holds no password."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.kernel.json_values.values import Instant
from perdure.stores.errors import BackupRefused, BadStoreUrl, StoreDriverMissing

if TYPE_CHECKING:
    from perdure.kernel.ids import ServerGroup
    from perdure.stores.admin import StoreAdmin

_PASSWORD = re.compile(r"\A([^:/?#@\s]*:/{0,2}[^/?#@:]*):[^\n]*@")
"""Up to the last @: what a password should have escaped, and has not, belongs to it."""
_PARAMETER = re.compile(r"(?i)([?&])([^=&?]*(?:password|passwd|pwd|secret|token)[^=&]*)=[^&]*")
_KIND = re.compile(r"[a-z][a-z0-9+.-]{0,20}")


def without_password(url: str) -> str:
    """The address with something in place of its password."""
    return _PARAMETER.sub(r"\1\2=***", _PASSWORD.sub(r"\1:***@", url))


def has_password(url: str) -> bool:
    """Whether what others say of the address may quote its password."""
    return without_password(url) != url


def kind_of_store(url: str) -> str:
    """As the address begins, if that is a word; all else may be a password that stands where it should not."""
    kind, mark, _ = url.partition("://")
    return repr(kind) if mark and _KIND.fullmatch(kind) else "its address has no kind, as sqlite:// or postgresql://"


def shell_quoted(url: str) -> str:
    """The address for a command that we tell people to type: the password comes from PGPASSWORD or ~/.pgpass."""
    return re.sub(r"\?$", "", _PARAMETER.sub(r"\1", _PASSWORD.sub(r"\1@", url)).replace("?&", "?").replace("&&", "&"))


# Only the backend that is used is imported.


def store_at(
    url: str,
    now: Callable[[], Instant] | None,
    *,
    must_exist: bool,
    lease: float | None,
    timeout: float | None,
    group: "ServerGroup | None",
) -> Any:
    """The store at this address; `now` None: it has its own clock."""
    if _is_postgres(url):
        from perdure.stores.postgres.database import PostgresSettings
        from perdure.stores.postgres.store import PostgresStore

        settings = PostgresSettings.from_environment(lease, timeout)
        return PostgresStore(url, now, settings=settings, must_exist=must_exist)
    from perdure.stores.sqlite.database import path_of
    from perdure.stores.sqlite.store import SqliteStore

    return SqliteStore(path_of(url), now, must_exist=must_exist, timeout=timeout, group=group)


def admin_at(url: str, now: Callable[[], Instant]) -> "StoreAdmin":
    if _is_postgres(url):
        from perdure.stores.postgres.admin import PostgresAdmin

        return PostgresAdmin(url)
    from perdure.stores.sqlite.admin import SqliteAdmin
    from perdure.stores.sqlite.database import path_of

    return SqliteAdmin(path_of(url), now)


def restore_at(backup: Path, url: str) -> int:
    """Put a backup in the place of the store at this address; how many bytes it has."""
    if url.partition(":")[0] in _POSTGRES:
        raise BackupRefused("a PostgreSQL database is restored by its own tools", hint="Use pg_restore.")
    from perdure.stores.sqlite.database import path_of
    from perdure.stores.sqlite.restore import restore

    return restore(backup, path_of(url))


_POSTGRES = ("postgresql", "postgres")


def _is_postgres(url: str) -> bool:
    """Otherwise it is a SQLite file."""
    scheme = url.partition(":")[0]
    if scheme not in ("sqlite", *_POSTGRES):
        raise BadStoreUrl(f"unknown kind of store: {kind_of_store(url)}")  # the rest may hold a password
    if scheme == "sqlite":
        return False
    try:
        import psycopg  # noqa: F401  (asked for here, so that its absence is explained)
    except ImportError as error:
        message = f"a PostgreSQL store needs the package psycopg, which cannot be loaded: {error}"
        raise StoreDriverMissing(message) from None
    return True
