"""One SQLite file: how it is opened, brought up to date, and what its errors mean."""

import ctypes
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import msgspec

from perdure.kernel.json_values.values import Instant
from perdure.stores.clocks import BootClock, refuse_behind, sources, wall_offset
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
from perdure.stores.sqlite.file_permissions import make_private, refuse_planted_store

# Room behind the end of the write-ahead log, made before it is needed; and behind the end of the file on a small
# disk.

FRAME_BYTES = 4_096 + 24
PIECE_BYTES = 65_536  # what SQLite's own file system layer takes at once
FIRST_PAGES = 64  # a short session makes its log longer as it goes, and pays for no room
GROWTH = 4
MOST_AT_ONCE = 256  # pages, 1 MB, while commits wait: what the disk takes in milliseconds
MOST_PAGES = 4_096  # longer than a log gets before it is folded into the file
FOLDED_AT = 4_000  # pages, 16 MB of log, before it is folded into the file: fewer syncs, little space
SHARE_OF_LOG = 4  # a log may take a fourth of the space that is free on its disk; then it is folded in
SHARE_OF_ROOM = 8  # and room is made of an eighth, or none
SPARE_PAGES = 64  # that one transaction may take beyond where the log is folded in
_PAGE = ctypes.c_int(4_096)


def _writable(folder: Path) -> float:
    """How many bytes this user can still write there; some file systems do not tell."""
    disk = os.statvfs(folder)
    if not disk.f_blocks:
        return math.inf
    return (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize


class WalPreallocation:
    def __init__(self, database: Path, vfs: str | None) -> None:
        self._folder = database.absolute().parent
        self._log = f"{database.absolute()}-wal"
        self._vfs = vfs or ""
        self.pages = FIRST_PAGES
        """How many pages the log may have before more room is wanted."""
        self.folded_at = FOLDED_AT
        """How many pages the log may have before it is folded into the file: fewer on a small disk."""
        self.look_around()

    @property
    def is_small(self) -> bool:
        """Whether little is free."""
        return self.folded_at < FOLDED_AT

    def look_around(self) -> int:
        """How many bytes are free on the disk, of which others may want some too."""
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        self.folded_at = min(FOLDED_AT, max(FIRST_PAGES, free // SHARE_OF_LOG // FRAME_BYTES))
        return free

    def is_ready(self, connection: apsw.Connection) -> bool:
        """Whether the file has room for what the log may get before it is folded in; on a large disk nobody asks.

        To be called behind a checkpoint, which gives back whatever room the file had behind its end.
        """
        if not self.is_small:
            return True
        pages = self.folded_at + SPARE_PAGES - connection.pragma("freelist_count")
        if pages <= 0:
            return True
        if pages * _PAGE.value > _writable(self._folder):  # a part of it would help nobody
            return False
        end = ctypes.c_int64((connection.pragma("page_count") + pages) * _PAGE.value)
        connection.file_control("main", apsw.SQLITE_FCNTL_CHUNK_SIZE, ctypes.addressof(_PAGE))
        try:
            connection.file_control("main", apsw.SQLITE_FCNTL_SIZE_HINT, ctypes.addressof(end))
        except apsw.Error:
            return False
        return True

    def lengthen(self, used: int) -> None:
        """Only while this process holds the right to write: nobody else may be adding to the log.

        Room is a luxury: where there is none to be had, commits say so themselves.
        """
        self.pages = min(used * GROWTH, used + MOST_AT_ONCE, MOST_PAGES) if used < MOST_PAGES else used * 2
        if (self.pages - used) * FRAME_BYTES <= self.look_around() // SHARE_OF_ROOM:
            with suppress(apsw.Error):
                self._make_room()

    def _make_room(self) -> None:
        log = apsw.VFSFile(self._vfs, self._log, [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0])
        try:
            end, size = log.xFileSize(), self.pages * FRAME_BYTES
            if end < size:
                try:
                    for place in range(end, size, PIECE_BYTES):
                        log.xWrite(bytes(min(PIECE_BYTES, size - place)), place)
                    log.xSync(apsw.SQLITE_SYNC_NORMAL)
                except apsw.Error:
                    log.xTruncate(end)  # the disk is full: what was made is given back to those who need it
                    raise
        finally:
            log.xClose()


# The clock of a store in a file: one offset per boot of the machine, drawn by the first who opens the file.

LOOKED_AT = 100  # rows of the log; commits of several processes are written in nearly the order of their instants

_turns = msgspec.msgpack.Decoder(list[tuple[int, Any]])


def set_count(count: BootClock, connection: apsw.Connection, path: Path, *, writes: bool) -> None:
    """Count as the store says. Who only reads keeps an offset of its own where nobody has drawn one since the boot."""
    last = last_recorded(connection)
    refuse_behind(str(path), sources.wall(), last)
    drawn = _drawn(connection)
    if drawn is None and writes:
        with _written(connection):
            drawn = _drawn(connection)
            if drawn is None:
                drawn = _offset(last_recorded(connection))
                connection.execute("INSERT INTO clock VALUES (?, ?)", (sources.machine(), drawn))
    count.offset = _offset(last) if drawn is None else drawn


def _offset(last: Instant) -> Instant:
    return max(wall_offset(), last - sources.boot())


def _drawn(connection: apsw.Connection) -> Instant | None:
    offset: Instant | None = connection.execute("SELECT start FROM clock WHERE boot = ?", (sources.machine(),)).get
    return offset


def last_recorded(connection: apsw.Connection) -> Instant:
    (instants,) = connection.execute(
        "SELECT (SELECT max(created_at) FROM runs), (SELECT max(ended_at) FROM runs WHERE ended_at IS NOT NULL),"
        " (SELECT at FROM inbox ORDER BY position DESC LIMIT 1)"
    )
    recorded = [at for at in instants if at is not None]
    for (body,) in connection.execute("SELECT body FROM log ORDER BY position DESC LIMIT ?", (LOOKED_AT,)):
        try:
            recorded += [at for at, _ in _turns.decode(body)]
        except msgspec.DecodeError:
            continue  # what is damaged is found by who reads it
    return max(recorded, default=0)


APPLICATION_ID = 0x50455244  # "PERD": tells our files from other people's
BUSY_MILLISECONDS = 10_000


def path_of(url: str) -> Path:
    """The file that `sqlite:///relative.db` or `sqlite:////absolute.db` names."""
    scheme, separator, rest = url.partition("://")
    if scheme != "sqlite" or not separator or not rest.startswith("/") or len(rest) < 2:
        from perdure.stores.store_urls import without_password

        raise BadStoreUrl(f"{without_password(url)!r} is not the address of a SQLite store")
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
        connection.pragma("synchronous", "full")
        connection.pragma("fullfsync", True)  # on macOS a plain fsync does not reach the disk
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else new values for a range are planned for each time
        _create(connection, path)
        _begin_log(connection)
        connection.pragma("wal_autocheckpoint", 0)  # the store does it, off the event loop
        _migrate(connection, path)
        refuse_planted_store(path)  # the log is there only now
        return connection


def open_for_reading(path: Path, vfs: str | None = None) -> apsw.Connection:
    with explained(path):
        if not path.exists():
            raise StoreMissing(f"there is no file {path}")
        _refuse_folder(path)
        refuse_planted_store(path)
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
_SCHEMA = Path(__file__).parent / "schema.sql"


@cache
def migration_names() -> tuple[str, ...]:
    """In order; the number of a schema is how many of them it has had."""
    return tuple(sorted(script.name for script in _MIGRATIONS.glob("*.sql")))


def needs_migration(connection: apsw.Connection) -> bool:
    version: int = connection.pragma("user_version")
    return version < len(migration_names())


def _refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    is_empty = _is_empty(connection)  # asked first: another process may be making the store
    version = connection.pragma("user_version")
    is_store = connection.pragma("application_id") == APPLICATION_ID
    if not is_store and not is_empty:
        raise StoreCorrupt(f"{path} is a SQLite file, but not a Perdure store")
    newest = len(migration_names())
    if is_store and version > newest:
        raise StoreNewer(f"{path} has schema {version}; this Perdure knows schemas up to {newest}")


def _is_empty(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get is None


def _create(connection: apsw.Connection, path: Path) -> None:
    """Give a new file the schema in one step; two processes may try at once.

    Before the log exists: whoever looks at the file, and not at its log, must see at once that it is ours. And the
    log begins empty, rather than with every page of the schema.
    """
    if not _is_empty(connection):
        return
    with _written(connection):
        _refuse_foreign(connection, path)
        if _is_empty(connection):
            connection.pragma("application_id", APPLICATION_ID)
            connection.execute(_schema())


def _begin_log(connection: apsw.Connection) -> None:
    """Of two who begin the log of one file at once, SQLite refuses one rather than let it wait."""
    until = time.monotonic() + BUSY_MILLISECONDS / 1_000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.001)


def foreign_triggers(connection: apsw.Connection) -> list[str]:
    """The names of triggers that no migration has made: they would change what is written, unseen."""
    ours = "".join(_migrations())
    made = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name")
    return [name for name, sql in made if sql not in ours]


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Apply the migrations that are missing, in one transaction; two processes may try at once."""
    newest = len(migration_names())
    if connection.pragma("user_version") == newest:
        return
    with _written(connection):
        _refuse_foreign(connection, path)
        for number, script in enumerate(_migrations(), start=1):
            if number > connection.pragma("user_version"):
                connection.execute(script)
                connection.pragma("user_version", number)


@contextmanager
def _written(connection: apsw.Connection) -> Iterator[None]:
    """One transaction that nobody else writes beside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


@cache
def _migrations() -> tuple[str, ...]:
    return tuple((_MIGRATIONS / name).read_text(encoding="utf-8") for name in migration_names())


@cache
def _schema() -> str:
    """What the migrations leave behind in an empty file; made by `python -m tests.stores.sqlite_schema`."""
    return _SCHEMA.read_text(encoding="utf-8")


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
