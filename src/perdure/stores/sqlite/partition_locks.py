"""Who owns a partition: an operating-system lock on a small file beside the store, free at the instant of death.

`flock` belongs to the open file, so two engines in one process exclude each other like two processes do.

The file names the life of the machine in which its owner lives, the group of processes that it is one server with,
and whether the owner is a server. A dead owner leaves it behind; whoever lets go in order, or has looked after what
the dead left, removes it.

The owner also hears by it: who has sent a message to one of its runs touches the file (`wake_owner`), and the operating
system tells whoever watches it (`LockWatch`).
"""

import asyncio
import ctypes
import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from perdure.kernel.json_values.values import RunId
from perdure.kernel.tasks.crash_attribution import LossKind
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
        self.left = _read(descriptor).partition(" ")[0]
        """The life of the machine in which a dead owner lived; empty when nothing is known of one."""

    def sign(self, *, serves: bool, group: str = "") -> None:
        """It is ours: say when we lived, for whoever finds the file after our death."""
        text = f"{boot_id()}{group and f' {group}'}{_SERVES if serves else ''}"
        with suppress(OSError):  # on a full disk nothing is known of us then, and nobody is charged for that
            os.pwrite(self._descriptor, text.encode("ascii"), 0)

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
    return group_of_owner(store, partition, by_server=by_server) is not None


def group_of_owner(store: Path, partition: int, *, by_server: bool = False) -> str | None:
    """The group of processes that its live owner belongs to, empty for one that is alone; None: there is no owner."""
    try:
        descriptor = os.open(lock_path(store, partition), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        text = _read(descriptor)
        if (by_server and not text.endswith(_SERVES)) or _try(descriptor, fcntl.LOCK_SH):
            return None
        return text.removesuffix(_SERVES).partition(" ")[2]
    finally:
        os.close(descriptor)


def wake_owner(store: Path, partition: int) -> None:
    """Tell the owner that something has come for its runs; where there is none, nobody is told."""
    with suppress(OSError):
        os.utime(lock_path(store, partition))


class LockWatch:
    """Hears when somebody touches or removes a lock of ours: inotify, which only Linux has."""

    _EVENTS = 0x4 | 0x400 | 0x800  # IN_ATTRIB, IN_DELETE_SELF, IN_MOVE_SELF
    _FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # IN_NONBLOCK and IN_CLOEXEC have the same values

    def __init__(self, woken: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(self._FLAGS)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify is not to be had")  # each user may have so many
        self._woken = woken
        self._loop.add_reader(self._descriptor, self._hear)

    @classmethod
    def begin(cls, woken: Callable[[], None]) -> "LockWatch | None":
        if not sys.platform.startswith("linux"):
            return None
        try:
            return cls(woken)
        except (OSError, NotImplementedError):  # a loop without readers
            return None

    def add(self, lock: PartitionLock) -> bool:
        added: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(lock.path), self._EVENTS)
        return added >= 0

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, 65_536)
        self._woken()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)


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


# What can be said of the end of a dead owner, from the lock file that it left beside the store (invariant 27).

_WITH_WORK = "SELECT id FROM runs WHERE partition = ? AND has_work = 1"


class OwnerLosses:
    def __init__(self, read: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
        self._read = read
        self._known: dict[RunId, LossKind] = {}

    def classify(self, lock: PartitionLock, partition: int) -> None:
        """A partition of a dead owner is locked by us: what it left is looked at before anything of it is touched."""
        if not lock.left:
            return
        if lock.left != boot_id():
            self._known.update((run, LossKind.STOPPED) for (run,) in self._read(_WITH_WORK, (partition,)))
        elif len(runs := self._read(f"{_WITH_WORK} LIMIT 2", (partition,))) == 1:
            self._known[runs[0][0]] = LossKind.ONLY

    def tell(self, run: RunId) -> LossKind:
        """Once: what comes later is another loss."""
        return self._known.pop(run, LossKind.PROCESS)
