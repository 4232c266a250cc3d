"""One SQLite file: how it is opened, brought up to date, and what its errors mean."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from perdure.stores.errors import (
    BadStoreUrl,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreMissing,
    StoreNewer,
    StoreReadOnly,
)
from perdure.stores.sqlite.file_permissions import make_private

APPLICATION_ID = 0x50455244  # "PERD": tells our files from other people's
BUSY_MILLISECONDS = 10_000


def path_of(url: str) -> Path:
    """The file that `sqlite:///relative.db` or `sqlite:////absolute.db` names."""
    scheme, separator, rest = url.partition("://")
    if scheme != "sqlite" or not separator or not rest.startswith("/") or len(rest) < 2:
        raise BadStoreUrl(f"{url!r} is not the address of a SQLite store")
    return Path(rest[1:])


def open_for_writing(path: Path, vfs: str | None = None) -> apsw.Connection:
    with explained(path):
        _refuse_folder(path)
        folder = path.absolute().parent
        if not folder.is_dir():
            raise StoreMissing(f"{folder} is not a folder", hint="Create the folder, or choose another file with --db.")
        make_private(path)
        connection = apsw.Connection(str(path), vfs=vfs)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        _refuse_foreign(connection, path)
        _mark(connection)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("fullfsync", True)  # on macOS a plain fsync does not reach the disk
        connection.pragma("wal_autocheckpoint", 0)  # the store does it, off the event loop
        _migrate(connection, path)
        return connection


def open_for_reading(path: Path, vfs: str | None = None) -> apsw.Connection:
    with explained(path):
        if not path.exists():
            raise StoreMissing(f"there is no file {path}")
        _refuse_folder(path)
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        try:
            _refuse_foreign(connection, path)
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            # A file that may only be read, in a folder that may only be read: nobody can be writing to it.
            connection.close()
            uri = f"{path.absolute().as_uri()}?immutable=1"
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs=vfs)
            _refuse_foreign(connection, path)
        connection.pragma("query_only", True)
        return connection


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise BadStoreUrl(f"{path} is a folder", hint=f"Name a file in it: --db sqlite:///{path}/runs.db")


_MIGRATIONS = Path(__file__).parent / "migrations"


def migration_names() -> list[str]:
    """In order; the number of a schema is how many of them it has had."""
    return sorted(script.name for script in _MIGRATIONS.glob("*.sql"))


def needs_migration(connection: apsw.Connection) -> bool:
    version: int = connection.pragma("user_version")
    return version < len(_migrations())


def _refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    version = connection.pragma("user_version")
    ours = connection.pragma("application_id") == APPLICATION_ID
    is_empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if not ours and not is_empty:
        raise StoreCorrupt(f"{path} is a SQLite file, but not a Perdure store")
    newest = len(_migrations())
    if ours and version > newest:
        raise StoreNewer(f"{path} has schema {version}; this Perdure knows schemas up to {newest}")


def _mark(connection: apsw.Connection) -> None:
    """Before the log exists: whoever looks at the file, and not at its log, must see at once that it is ours."""
    if connection.pragma("application_id") != APPLICATION_ID:
        connection.pragma("application_id", APPLICATION_ID)


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Apply the migrations that are missing, each in a transaction; two processes may try at once."""
    newest = len(_migrations())
    if connection.pragma("user_version") == newest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        _refuse_foreign(connection, path)
        for number, script in enumerate(_migrations(), start=1):
            if number > connection.pragma("user_version"):
                connection.execute(script)
                connection.pragma("user_version", number)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _migrations() -> list[str]:
    return [(_MIGRATIONS / name).read_text(encoding="utf-8") for name in migration_names()]


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours, which say what to do."""
    try:
        yield
    except apsw.Error as error:
        raise explain(path, error) from error


def _is_full(path: Path) -> bool:
    """Whether nothing at all is free: then SQLite cannot even make the files that it keeps beside its own."""
    try:
        disk = os.statvfs(path.absolute().parent)
        return disk.f_blocks > 0 and disk.f_bavail == 0
    except OSError:
        return False


def explain(path: Path, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    match error:
        case apsw.FullError():
            return StoreFull(f"{path}: the disk is full")
        case apsw.CantOpenError() | apsw.IOError() if _is_full(path):
            return StoreFull(f"{path}: the disk is full")
        case apsw.BusyError() | apsw.LockedError():
            return StoreLocked(f"{path}: another program keeps the file locked")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreReadOnly(f"{path} cannot be written")
        case apsw.CantOpenError():
            return StoreReadOnly(f"{path} cannot be opened: {error}")
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorrupt(f"{path}: {error}")
        case apsw.IOError():
            return StoreError(f"{path}: reading or writing failed ({error})")
        case _:
            return StoreError(f"{path}: {error}")
