"""Room behind the end of the write-ahead log, made before it is needed; and behind the end of the file on a small disk.

A commit that makes a file longer has to sync the file system's own books as well; one that writes where something
stood before does not, and on ext4 it takes half the time. What stands behind the last valid frame means nothing to
SQLite: after every checkpoint it is the rest of an older log.

On a small disk nothing is written to the log for which the file has no room. So a full disk is noticed while the log
can still be folded in, and begun anew where it stands: there is always room to remove something.
"""

import ctypes
import math
import os
from contextlib import suppress
from pathlib import Path

import apsw

FRAME_BYTES = 4_096 + 24
PIECE_BYTES = 65_536  # what SQLite's own file system layer takes at once
FIRST_PAGES = 64  # a short session makes its log longer as it goes, and pays for no room
GROWTH = 4
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
        wanted = self.folded_at + SPARE_PAGES - connection.pragma("freelist_count")
        if wanted <= 0:
            return True
        if wanted * _PAGE.value > _writable(self._folder):  # a part of it would help nobody
            return False
        end = ctypes.c_int64((connection.pragma("page_count") + wanted) * _PAGE.value)
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
        self.pages = max(min(used * GROWTH, MOST_PAGES), used * 2)
        if (self.pages - used) * FRAME_BYTES <= self.look_around() // SHARE_OF_ROOM:
            with suppress(apsw.Error):
                self._make_room()

    def _make_room(self) -> None:
        log = apsw.VFSFile(self._vfs, self._log, [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0])
        try:
            end, wanted = log.xFileSize(), self.pages * FRAME_BYTES
            if end < wanted:
                try:
                    for place in range(end, wanted, PIECE_BYTES):
                        log.xWrite(bytes(min(PIECE_BYTES, wanted - place)), place)
                    log.xSync(apsw.SQLITE_SYNC_NORMAL)
                except apsw.Error:
                    log.xTruncate(end)  # the disk is full: what was made is given back to those who need it
                    raise
        finally:
            log.xClose()
