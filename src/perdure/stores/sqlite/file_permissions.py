"""Files that only their owner may read and write: the store, its locks, its copies.

SQLite gives the mode of a database to its log and its index as well. An operator whose servers share a group says so:
`PERDURE_FILE_MODE=0660`.
"""

import os
import stat
from pathlib import Path

from perdure.kernel.file_modes import SETTING, private_mode
from perdure.stores.errors import StoreReadOnly


def file_mode() -> int:
    return private_mode(os.environ.get(SETTING, ""))


def refuse_planted(path: Path) -> None:
    """Refuse a file, or a link to one, that another user may have put there for us to write to.

    In a folder that everybody may write to anybody can be the first; elsewhere whoever put it there may do so.
    """
    places = (path.absolute(), path.resolve()) if path.is_symlink() else (path.absolute(),)
    for place in places:
        try:
            is_open = place.parent.stat().st_mode & stat.S_IWOTH
            is_planted = is_open and place.lstat().st_uid not in (os.geteuid(), 0)
        except OSError:
            continue  # there is none, or whoever opens it next tells why it cannot be had
        if is_planted:
            raise StoreReadOnly(
                f"{path} belongs to another user, in a folder that everybody may write to",
                hint="Choose a file in a folder of your own with --db.",
            )


def refuse_planted_store(path: Path) -> None:
    """Likewise of all files that SQLite writes for a store: it takes those that it finds."""
    for end in ("", "-wal", "-shm", "-journal"):
        refuse_planted(path.with_name(path.name + end))


def make_private(path: Path) -> None:
    """Create the file if it is not there; take rights away that the setting does not give. A stranger's file stays."""
    refuse_planted_store(path)
    mode = file_mode()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except FileExistsError:
        refuse_planted_store(path)  # somebody may have been faster
        restrict(path)
    except OSError:
        return  # whoever opens it next tells why it cannot be had


def restrict(path: Path) -> None:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode) & file_mode()
    if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)
