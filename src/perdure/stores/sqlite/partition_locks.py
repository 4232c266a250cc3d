"""Who owns a partition: an operating-system lock on a small file beside the store, free at the instant of death.

`flock` belongs to the open file, so two engines in one process exclude each other like two processes do.

The file names the life of the machine in which its owner lives, and whether the owner is a server. A dead owner
leaves it behind; whoever lets go in order, or has looked after what the dead left, removes it.
"""

import errno
import fcntl
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from perdure.stores.errors import StoreFull
from perdure.stores.sqlite.file_permissions import file_mode, refuse_planted

_MOST_READ = 200  # bytes; such a name has less
_SERVES = " serves"


@cache
def boot_id() -> str:
    """Names the present life of this machine; where the system gives it no name, all are taken for one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class PartitionLock:
    """Holds `runs.db-owner7` for partition 7."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.left = _read(descriptor).removesuffix(_SERVES)
        """The life of the machine in which a dead owner lived; empty when nothing is known of one."""

    def sign(self, *, serves: bool) -> None:
        """It is ours: say when we lived, for whoever finds the file after our death."""
        with suppress(OSError):  # on a full disk nothing is known of us then, and nobody is charged for that
            os.pwrite(self._descriptor, f"{boot_id()}{_SERVES if serves else ''}".encode("ascii"), 0)

    @property
    def is_named(self) -> bool:
        """Whether others who look for the lock find this one."""
        return _is_still_named(self._descriptor, self.path)

    def release(self) -> None:
        # Removed while still locked: whoever opened the old file finds that its name is gone and tries again.
        if self.is_named:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def abandon(self) -> None:
        """Let go as a dying process does: the file stays, the lock is free."""
        os.close(self._descriptor)


def lock_path(store: Path, partition: int) -> Path:
    return store.with_name(f"{store.name}-owner{partition}")


def try_lock(store: Path, partition: int) -> PartitionLock | None:
    path = lock_path(store, partition)
    refuse_planted(path)  # whoever made it could keep it locked
    for _ in range(3):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreFull(f"{path}: the disk is full") from error
            raise
        if not _try(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            time.sleep(0.002)  # it may be somebody who only looks whether it is free, see `is_locked`
        elif _is_still_named(descriptor, path):
            return PartitionLock(path, descriptor)
        else:
            os.close(descriptor)
    return None


def is_locked(store: Path, partition: int, *, by_server: bool = False) -> bool:
    try:
        descriptor = os.open(lock_path(store, partition), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return (not by_server or _read(descriptor).endswith(_SERVES)) and not _try(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> str:
    return os.pread(descriptor, _MOST_READ, 0).decode("ascii", "replace")


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_still_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
