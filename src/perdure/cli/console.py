"""Messages for people, on stderr: lines, and in a terminal a small block that is redrawn in place."""

import os
import re
import shutil
from collections.abc import Sequence
from typing import TextIO

_ESCAPE = f"\ufdd0{os.urandom(8).hex()}\ufdd1"
"""Our own escape character on its way to a stream. Data cannot spell it: it is another one in every process."""

_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Colours, where the stream is a terminal and nobody objects (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self.is_on = is_terminal(stream) and not os.environ.get("NO_COLOR")

    def __call__(self, text: str, style: str) -> str:
        return f"{_ESCAPE}[{_STYLES[style]}m{text}{_ESCAPE}[0m" if self.is_on and style and text else text


def harmless(text: str) -> str:
    """The text as people may get it: what would steer a terminal, or turn the order of letters, is spelled out."""
    return _HARMFUL.sub(_spelled, text).replace(_ESCAPE, "\x1b")


def harmless_json(text: str) -> str:
    """The same for JSON, in which these characters stand only inside of texts: it stays the same JSON."""
    return _HARMFUL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def indented(text: str, width: int = 4) -> str:
    """One entry, however many lines it has: those that data bring along cannot be taken for entries of their own."""
    return text.replace("\n", "\n" + " " * width) if "\n" in text else text


def _spelled(found: "re.Match[str]") -> str:
    return found.group().encode("unicode_escape", "surrogatepass").decode()


class Console:
    def __init__(self, stream: TextIO, *, is_quiet: bool = False) -> None:
        self._stream = stream
        self._block: list[str] = []
        self.is_quiet = is_quiet
        self.is_live = is_terminal(stream) and not is_quiet
        self.paint = Paint(stream)

    def say(self, text: str) -> None:
        """A line about what goes on; not said when quiet was asked for."""
        if not self.is_quiet:
            self.always(indented(text))

    def always(self, text: str) -> None:
        """A line that is said in any case."""
        block = self._block
        self.clear()
        self._write(text + "\n")
        self.draw(block)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace the block at the foot of the terminal. Lines are plain text, cut to the width by the caller."""
        if not self.is_live or (not lines and not self._block):
            return
        self._write(self._erasure() + "".join(f"{line}\n" for line in lines))
        self._block = list(lines)

    def clear(self) -> None:
        self.draw(())

    @property
    def width(self) -> int:
        return width_of(self._stream) or 80

    def _erasure(self) -> str:
        return f"{_ESCAPE}[{len(self._block)}F{_ESCAPE}[J" if self._block else ""

    def _write(self, text: str) -> None:
        try:
            self._stream.write(harmless(text))
            self._stream.flush()
        except BrokenPipeError:
            pass  # nobody listens to talk; the work goes on


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None where there is none and nothing needs to be cut."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns


def cut(text: str, width: int | None) -> str:
    """The text on one line, not wider than `width`."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if width is None or len(line) <= width else line[: max(0, width - 1)] + "…"
