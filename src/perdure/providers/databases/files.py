"""Which database files a task may open: those below the operator's folders, and never one of the engine's own."""

import os
import re
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from perdure.kernel.file_modes import SETTING, folder_mode, private_mode
from perdure.providers.failure import ProviderFailure

MEMORY = ":memory:"

_OURS = 0x50455244  # the `application_id` of the engine's own files
_MARK_AT = 68  # its offset in a SQLite file

_LOCK = re.compile(r"(?P<store>.+)-owner\d+")  # beside a store that is in use


def keep_private() -> None:
    """Files that this process creates from now on are readable by its user only, unless the operator shares them."""
    os.umask(0o777 & ~folder_mode(_mode()))


def create_shared(path: str) -> None:
    """SQLite makes a new file private, whatever the operator configured; an existing file keeps its mode."""
    if _mode() & 0o077 and path != MEMORY:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _mode()))
        except OSError:
            return  # it exists, or opening it will report why it cannot be used


def _mode() -> int:
    return private_mode(os.environ.get(SETTING, ""))


def attached_path(name: str | None, folders: Sequence[str] | None, prefix: str, setting: str) -> str:
    """Likewise for a statement that names the file: the library resolves it from the working directory."""
    if name is None:
        raise _forbidden(prefix, "ATTACH: write the name of the file as a text, not as an expression or a parameter")
    return name if name in ("", MEMORY) else database_path(_absolute(name), folders, prefix, setting)


def _absolute(name: str) -> str:
    return name if name.startswith("file:") else str(Path.cwd() / name)


def database_path(name: str, folders: Sequence[str] | None, prefix: str, setting: str) -> str:
    """The file as it may be opened. A relative name is resolved in the first folder, or in the working directory."""
    if name in ("", MEMORY):
        return MEMORY
    roots = [Path.cwd()] if folders is None else [Path(folder).resolve() for folder in folders]
    if not roots:
        raise _forbidden(prefix, f"{name!r}: the operator has opened no folder for databases ({setting})")
    if name.startswith("file:") or "\0" in name:
        raise _forbidden(prefix, f"{name!r}: give the path of a file, not a URI")
    try:
        path = (roots[0] / name).resolve()
    except (OSError, RuntimeError, ValueError) as problem:
        raise _forbidden(prefix, f"{name!r}: {problem}") from None
    if not any(path.is_relative_to(root) for root in roots):
        allowed = ", ".join(map(str, roots))
        raise _forbidden(prefix, f"{name!r} is outside of {allowed}; an operator opens other folders with {setting}")
    if is_ours(path):
        raise ProviderFailure(
            f"{prefix}.Unavailable", f"{name!r} holds runs of Perdure; tasks may not touch it", retryable=False
        )
    return str(path)


def is_ours(path: Path) -> bool:
    """Whether it is a store of Perdure, or one of the files that belong to a store (`-wal`, `-shm`, locks)."""
    if _is_store(path):
        return True
    base, dash, _ = path.name.rpartition("-")
    while dash:
        if _is_store(path.with_name(base)):
            return True
        base, dash, _ = base.rpartition("-")
    return False


def store_below(folder: Path) -> Path | None:
    """A store of Perdure in this folder or deeper: one that is in use, or a copy of one."""
    for place, _, names in os.walk(folder):
        for name in names:
            lock = _LOCK.fullmatch(name)
            if lock is not None and lock["store"] in names:
                return Path(place, lock["store"])
            if _is_marked_now(Path(place, name)):
                return Path(place, name)
    return None


_looked_at: dict[Path, tuple[int, int, int]] = {}  # files without the mark, with their state when they were read


def _is_marked_now(path: Path) -> bool:
    """A file is read only once unless it changes: a folder may contain very many."""
    try:
        status = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    seen = (status.st_ino, status.st_size, status.st_mtime_ns)
    if _looked_at.get(path) == seen:
        return False
    if _has_mark(path):
        return True
    _looked_at[path] = seen
    return False


def _is_store(path: Path) -> bool:
    """By its mark; that of a new store may still be in the write-ahead log, but then the store is in use."""
    return _has_mark(path) or any(map(_LOCK.fullmatch, _beside(path)))


def _beside(path: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(path.parent) if entry.name.startswith(f"{path.name}-owner")]
    except OSError:
        return []


def _has_mark(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            header = file.read(_MARK_AT + 4)
    except OSError:
        return False
    return len(header) == _MARK_AT + 4 and struct.unpack(">I", header[_MARK_AT:])[0] == _OURS


def _forbidden(prefix: str, message: str) -> ProviderFailure:
    return ProviderFailure(f"{prefix}.Forbidden", message, retryable=False)
