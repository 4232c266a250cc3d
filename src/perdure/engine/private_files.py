"""Files with data of runs: only their owner reads them, and nobody else can have created them."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replace_private(path: Path) -> Iterator[BinaryIO]:
    """All of a new file takes the place of what was there, or nothing does. A device or a pipe is written to."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            with path.open("wb") as device:
                yield device
            return
    partial = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> None:
    with replace_private(path) as file:
        file.write(content)
