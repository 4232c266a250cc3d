"""Bytes from outside as JSON can carry them: text where they are text, base64 where they are not.

Secrets of the task are taken out first: what is encoded, cut or shortened could not be recognised any more.
"""

import base64
import codecs
from collections.abc import Callable
from contextvars import ContextVar

MARGIN = 64 * 1024
"""Bytes that are kept beyond a limit until secrets are taken out, so that none is cut in half."""

Hide = Callable[[bytes], bytes]

hidden_by: ContextVar[Hide | None] = ContextVar("hidden_by", default=None)
"""What takes the secrets of the task at hand out of bytes; set by the worker."""


family_at_work: ContextVar[str] = ContextVar("family_at_work", default="")
"""The family of runs whose task is at hand; set by the worker."""


def hide(data: bytes) -> bytes:
    secrets = hidden_by.get()
    return data if secrets is None else secrets(data)


def readable(data: bytes, *, is_cut: bool = False, charset: str = "utf-8") -> tuple[str, str | None]:
    """The text, and "base64" when that is what it is written in.

    `is_cut`: the end is missing, so half a character there proves nothing.
    """
    try:
        decoder = codecs.getincrementaldecoder(charset)()
        return decoder.decode(hide(data), final=not is_cut), None
    except (UnicodeError, LookupError):
        return base64.b64encode(hide(data)).decode("ascii"), "base64"


def excerpt(data: bytes, limit: int = 2000) -> str:
    """The beginning, for people."""
    shown = hide(data[: limit + MARGIN])
    text = shown[:limit].decode("utf-8", "replace")
    return text if len(data) <= limit else f"{text}…"


def excerpt_of_end(data: bytes, limit: int) -> str:
    """The end, for people; `data` has a margin before it."""
    return hide(data)[-limit:].decode("utf-8", "replace")


def is_file_name(name: str) -> bool:
    """Whether a name from outside names a file in a folder, and nothing beside or above it."""
    return name not in ("", ".", "..") and not any(c in name for c in "/\\\0")
