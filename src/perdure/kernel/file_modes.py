"""Modes of new files: readable by their owner alone, unless the operator configures otherwise."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from perdure.kernel.errors import PerdureError

SETTING = "PERDURE_FILE_MODE"
PRIVATE = 0o600


def private_mode(text: str) -> int:
    """The mode of new files, from an octal number as in `chmod`."""
    if not text.strip():
        return PRIVATE
    try:
        mode = int(text.strip(), 8)
    except ValueError:
        mode = 0
    if not mode & 0o600 == 0o600 or mode & ~0o666:
        raise PerdureError(
            f"{SETTING} is {text!r}, which is not the mode of a file that its owner reads and writes",
            hint="For example 0600 (the owner alone) or 0660 (the owner's group as well).",
        )
    return mode


def folder_mode(mode: int) -> int:
    """Whoever may read files may also enter the folders that contain them."""
    return mode | (mode & 0o444) >> 2


def write_private(path: Path, content: bytes) -> None:
    """All of a file or nothing, that only its owner reads: data of runs are in it.

    Nobody else can have created it: it takes the place of what was there. A device or a pipe is written to.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            path.write_bytes(content)
            return
    descriptor, name = tempfile.mkstemp(prefix=".perdure-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
