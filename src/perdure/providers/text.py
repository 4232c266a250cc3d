"""Bytes from outside as JSON can carry them: text where they are text, base64 where they are not."""

import base64
import codecs


def readable(data: bytes, *, is_cut: bool = False, charset: str = "utf-8") -> tuple[str, str | None]:
    """The text, and "base64" when that is what it is written in.

    `is_cut`: the end is missing, so half a character there proves nothing.
    """
    try:
        decoder = codecs.getincrementaldecoder(charset)()
        return decoder.decode(data, final=not is_cut), None
    except (UnicodeError, LookupError):
        return base64.b64encode(data).decode("ascii"), "base64"


def excerpt(data: bytes, limit: int = 2000) -> str:
    """The beginning, for people."""
    text = data[:limit].decode("utf-8", "replace")
    return text if len(data) <= limit else f"{text}…"


def is_file_name(name: str) -> bool:
    """Whether a name from outside names a file in a folder, and nothing beside or above it."""
    return name not in ("", ".", "..") and not any(c in name for c in "/\\\0")
