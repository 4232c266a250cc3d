"""Files that only their owner may read and write: the store, its locks, its copies.

SQLite gives the mode of a database to its log and its index as well. An operator whose servers share a group says so:
`PERDURE_FILE_MODE=0660`.
"""

import os
import stat
from pathlib import Path

from perdure.kernel.file_modes import SETTING, private_mode


def file_mode() -> int:
    return private_mode(os.environ.get(SETTING, ""))


def make_private(path: Path) -> None:
    """Create the file if it is not there; take rights away that the setting does not give. A stranger's file stays."""
    mode = file_mode()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except FileExistsError:
        restrict(path)
    except OSError:
        return  # whoever opens it next tells why it cannot be had


def restrict(path: Path) -> None:
    found = path.stat()
    wanted = stat.S_IMODE(found.st_mode) & file_mode()
    if found.st_uid == os.geteuid() and stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != wanted:
        path.chmod(wanted)
