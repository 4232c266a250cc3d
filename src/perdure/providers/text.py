"""Bytes from outside in JSON: as text if they are text, otherwise as base64.

Secrets of the task are masked first: once encoded, cut or shortened they could not be recognised.
"""

import base64
import codecs
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

MARGIN = 64 * 1024
"""Bytes that are kept beyond a limit until secrets are masked, so that none is cut in half."""

READ_AT_ONCE = 256 * 1024
"""Bytes that the event loop reads at once; more are read in a thread."""

_OF_NAMES = frozenset({"idna", "punycode"})  # codecs for names of hosts, whose time grows with the square of the length


class Hider(Protocol):
    """Masks the secrets of a task."""

    def raw(self, data: bytes) -> bytes: ...

    def is_quick(self, size: int) -> bool:
        """Whether so many bytes can be masked on the event loop."""
        ...


hidden_by: ContextVar[Hider | None] = ContextVar("hidden_by", default=None)
"""Masks the secrets of the current task in bytes; set by the worker."""


family_at_work: ContextVar[str] = ContextVar("family_at_work", default="")
"""The family of runs of the current task; set by the worker."""


def hide(data: bytes) -> bytes:
    hider = hidden_by.get()
    return data if hider is None else hider.raw(data)


def is_quick(size: int) -> bool:
    """Whether so many bytes can be masked and read on the event loop."""
    hider = hidden_by.get()
    return size <= READ_AT_ONCE and (hider is None or hider.is_quick(size))


def readable(data: bytes, *, is_cut: bool = False, charset: str = "utf-8") -> tuple[str, str | None]:
    """The text, and "base64" if it is encoded in that.

    `is_cut`: the end is missing, so half a character there proves nothing.
    """
    try:
        b" ".decode(charset, "ignore")  # refuses what makes no text of bytes: Python has codecs that inflate
        if codecs.lookup(charset).name in _OF_NAMES:
            raise LookupError(charset)
        decoder = codecs.getincrementaldecoder(charset)()
        return decoder.decode(hide(data), final=not is_cut), None
    except (ValueError, LookupError):
        return base64.b64encode(hide(data)).decode("ascii"), "base64"


def excerpt(data: bytes, limit: int = 2000) -> str:
    """The beginning, for messages."""
    masked = hide(data[: limit + MARGIN])
    text = masked[:limit].decode("utf-8", "replace")
    return text if len(data) <= limit else f"{text}…"


def excerpt_of_end(data: bytes, limit: int) -> str:
    """The end, for messages; `data` has a margin before it."""
    return hide(data)[-limit:].decode("utf-8", "replace")


def is_file_name(name: str) -> bool:
    """Whether a name from outside names a file in a folder, and nothing beside or above it."""
    return name not in ("", ".", "..") and not any(c in name for c in "/\\\0")


# What the function of a task prints; see `workers.output_capture`.


class Printer(Protocol):
    """A task at work."""

    def printed(self, stream: str, text: str) -> None: ...

    def logged(self, level: str, text: str, logger: str) -> None: ...


at_work: ContextVar[Printer | None] = ContextVar("at_work", default=None)

Echo = Callable[[str, str], None]
"""Shows a line of a task (its path, the text) to whoever watches."""


class Capture:
    """What is installed in this process; nothing until `install_capture`."""

    is_on = False
    echo: Echo | None = None
    restore: Callable[[], None] | None = None
