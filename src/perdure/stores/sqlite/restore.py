"""Putting a backup in the place of a store's file: whole or not at all, and never under anybody who works on it.

    copy beside it, synced ─▶ nobody has it open: its log is folded in and gone ─▶ renamed into place ─▶ folder synced

A log that stayed behind would be read into the file that took the place; so it goes first, and a crash at any moment
leaves either the store as it was or the backup.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from perdure.stores.errors import BadStoreUrl, StoreCorrupt, StoreInUse, StoreMissing
from perdure.stores.sqlite.database import APPLICATION_ID, explained, foreign_triggers, open_for_reading
from perdure.stores.sqlite.file_permissions import make_private
from perdure.stores.sqlite.partition_locks import is_locked

WAIT_MILLISECONDS = 1_000  # for a command that is about to end


def restore(backup: Path, target: Path) -> int:
    """How many bytes the store has now."""
    if not backup.exists():
        raise StoreMissing(f"there is no file {backup}", hint="Name a file that `perdure backup` has made.")
    if target.exists() and backup.samefile(target):
        raise BadStoreUrl(f"{backup} is the store itself", hint="Name the backup, and the store with --db.")
    _refuse_owned(target)
    partial = target.with_name(f"{target.name}.partial")
    _remove(partial)
    try:
        _copy(backup, partial)
        with _exclusive(target):
            partial.replace(target)
            _sync_folder(target.absolute().parent)
    finally:
        _remove(partial)
    return target.stat().st_size


def _copy(backup: Path, partial: Path) -> None:
    with explained(backup):
        source = open_for_reading(backup)
        try:
            if source.pragma("application_id") != APPLICATION_ID:
                raise StoreCorrupt(
                    f"{backup} is not a Perdure store", hint="Name a file that `perdure backup` has made."
                )
            if triggers := foreign_triggers(source):
                raise StoreCorrupt(
                    f"{backup} has triggers that are not Perdure's: {', '.join(triggers)}",
                    hint="They would keep changing the store. Restore another backup, or drop them if they are yours.",
                )
            make_private(partial)
            destination = apsw.Connection(str(partial))
            try:
                with destination.backup("main", source, "main") as copying:
                    while not copying.done:
                        copying.step(1_000)
                damage = destination.execute("PRAGMA quick_check(1)").get
                if damage != "ok":
                    raise StoreCorrupt(f"{backup} is damaged: {damage}", hint="Restore another backup.")
            finally:
                destination.close()
        finally:
            source.close()
    with partial.open("rb+") as copy:
        os.fsync(copy.fileno())


@contextmanager
def _exclusive(target: Path) -> Iterator[None]:
    """While nobody has the file open. Its log is gone by then: folded in, or, of a damaged file, removed."""
    connection = _alone(target) if target.exists() else None
    try:
        if connection is None:
            for end in ("-wal", "-shm", "-journal"):
                target.with_name(target.name + end).unlink(missing_ok=True)
            _sync_folder(target.absolute().parent)
        _refuse_owned(target)
        yield
    finally:
        if connection is not None:
            connection.close(True)


def _alone(target: Path) -> apsw.Connection | None:
    """The file, opened exclusively; None if it is not a database any more."""
    connection = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(WAIT_MILLISECONDS)
    try:
        if connection.pragma("journal_mode", "delete") != "delete":  # which only the last one who is there can do
            raise apsw.BusyError("its log is in use")
        connection.execute("BEGIN EXCLUSIVE")
    except (apsw.CorruptError, apsw.NotADBError):
        connection.close(True)
        return None
    except (apsw.BusyError, apsw.LockedError):
        connection.close(True)
        raise StoreInUse(f"{target} is in use: a process has it open") from None
    return connection


def _refuse_owned(target: Path) -> None:
    for lock in target.absolute().parent.glob(f"{target.name}-owner*"):
        number = lock.name.rpartition("-owner")[2]
        if number.isdecimal() and is_locked(target, int(number)):
            raise StoreInUse(f"{target} is in use: a live engine owns runs in it", partitions=[int(number)])


def _remove(partial: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        partial.with_name(partial.name + end).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
