"""Whether the file that we write to is still the one that others find under its name.

SQLite goes on in a file that was deleted or replaced, and says nothing: what it acknowledges then is on no disk that
anybody will ever look at. So the names are looked at after every sync, before anyone is told (invariant 31), and at
every poll: the database's and that of its log, by device and inode. A file that was written over in place keeps its
inode; its header gives it away, which is read when its time of change is another than the one we know.
"""

import ctypes
import os
from operator import attrgetter
from pathlib import Path
from typing import NoReturn

import apsw

from perdure.stores.errors import StoreMoved

Identity = tuple[int, int]

_read_status = os.stat  # of a text: every commit asks twice, and a path would look its text up each time

_identity = attrgetter("st_dev", "st_ino")

HEADER_BYTES = 100  # as the file format has it: "Database File Format" of SQLite
_MAGIC = b"SQLite format 3\x00"
_WITH_LOG = b"\x02\x02"


class FileIdentity:
    def __init__(self, connection: apsw.Connection, path: Path, vfs: str | None) -> None:
        """Of a file that `connection` has just opened."""
        self._path = str(path.absolute())
        self._log = f"{self._path}-wal"
        self._vfs = vfs or ""
        status = self._stat()
        self.identity = _identity(status)
        self._changed_at = status.st_mtime_ns
        self._header = self._read_header()
        self._log_identity = self._identity_of_log()
        if has_moved(connection):
            self._refuse("was replaced while it was being opened")

    def check(self) -> None:
        status = self._stat()
        if _identity(status) != self.identity:
            self._refuse("was replaced by another file")
        log = self._identity_of_log()
        if self._log_identity is None:
            self._log_identity = log
        elif log != self._log_identity:
            self._refuse(f"has lost its log {self._log}: it was {'deleted' if log is None else 'replaced'}")
        if status.st_mtime_ns != self._changed_at:
            self._look_inside(status.st_mtime_ns)

    def _look_inside(self, changed_at: int) -> None:
        """Somebody has written to the file: SQLite, which folds the log into it, or a program that does not know it."""
        header = self._read_header()
        if not _follows(header, self._header):
            self._refuse("was written over by another program")
        self._header, self._changed_at = header, changed_at

    def _stat(self) -> os.stat_result:
        try:
            return _read_status(self._path)
        except FileNotFoundError:
            self._refuse("was deleted")

    def _identity_of_log(self) -> Identity | None:
        try:
            return _identity(_read_status(self._log))
        except FileNotFoundError:
            return None

    def _read_header(self) -> bytes:
        # By SQLite's own layer: closing a file of ours would drop the locks that it holds on the same file.
        file = apsw.VFSFile(self._vfs, self._path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
        try:
            return bytes(file.xRead(HEADER_BYTES, 0))
        except apsw.IOError:
            return b""  # shorter than a header
        finally:
            file.xClose()

    def _refuse(self, event: str) -> NoReturn:
        raise StoreMoved(f"{self._path} {event} while it was in use")


def has_moved(connection: apsw.Connection) -> bool:
    moved = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
    return bool(moved.value)


def _follows(new: bytes, old: bytes) -> bool:
    """Whether SQLite may have made this header of that one. A file with a write-ahead log keeps it (a backup has none),
    and has fewer pages only after VACUUM, which counts as a change of the schema (an older copy has fewer without).
    """
    if not new.startswith(_MAGIC):
        return False
    if not old.startswith(_MAGIC):
        return True  # it was just being made
    has_log = new[18:20] == _WITH_LOG or old[18:20] != _WITH_LOG
    changes_of_schema = (_number(new, 40) - _number(old, 40)) % 2**32
    has_all_pages = _number(new, 28) >= _number(old, 28) or changes_of_schema > 0
    return has_log and has_all_pages and changes_of_schema < 2**31


def _number(header: bytes, place: int) -> int:
    return int.from_bytes(header[place : place + 4], "big")
