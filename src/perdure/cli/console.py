"""Messages for people, on stderr: lines, and in a terminal a small block that is redrawn in place."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from perdure.cli.terminal import LiveBlock

ESCAPE = f"\ufdd0{os.urandom(8).hex()}\ufdd1"
"""Our own escape character on its way to a stream. Data cannot contain it: it is different in every process."""

_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Colours, where the stream is a terminal and nobody objects (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self.is_on = is_coloured(stream)

    def __call__(self, text: str, style: str) -> str:
        return f"{ESCAPE}[{_STYLES[style]}m{text}{ESCAPE}[0m" if self.is_on and style and text else text


def harmless(text: str) -> str:
    """The text as people may get it: what would steer a terminal, or turn the order of letters, is spelled out."""
    return _HARMFUL.sub(_spelled, text).replace(ESCAPE, "\x1b")


def harmless_json(text: str) -> str:
    """The same for JSON, in which these characters stand only inside of texts: it stays the same JSON."""
    return _HARMFUL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def indented(text: str, width: int = 4) -> str:
    """One entry, however many lines it has: those that data bring along cannot be taken for entries of their own."""
    return text.replace("\n", "\n" + " " * width) if "\n" in text else text


def _spelled(match: "re.Match[str]") -> str:
    return match.group().encode("unicode_escape", "surrogatepass").decode()


@dataclass(frozen=True, slots=True)
class BlockLine:
    """A line of the block that is redrawn in place."""

    text: str
    style: str = ""
    has_spinner: bool = False


class Console:
    def __init__(self, stream: TextIO, *, is_quiet: bool = False) -> None:
        self._stream = stream
        self._block: LiveBlock | None = None
        self.is_quiet = is_quiet
        self.is_live = is_terminal(stream) and not is_quiet
        self.paint = Paint(stream)

    def say(self, text: str) -> None:
        """Print a line about progress, unless --quiet was given."""
        if not self.is_quiet:
            self.always(indented(text))

    def tell(self, run: str, text: str) -> None:
        """Print a line about a run, unless --quiet was given."""
        self.say(f"{run}: {text}")

    def log(self, level: str, text: str, members: dict[str, Any]) -> None:
        """Print an entry of the log; `members` are for programs that read it."""
        style = {"warning": "yellow", "error": "red", "critical": "red"}.get(level, "dim")
        self.always(f"{self.paint(f'{level}:', style)} {text}")

    def always(self, text: str) -> None:
        """Print a line even if --quiet was given."""
        line = harmless(text) + "\n"
        if self._block is not None:
            self._block.print_above(line)
            return
        try:
            self._stream.write(line)
            self._stream.flush()
        except BrokenPipeError:
            pass  # nobody reads the messages; the work goes on

    def draw(self, lines: Sequence[BlockLine]) -> None:
        """Replace the block at the foot of the terminal."""
        if not self.is_live or not lines:
            self.clear()
            return
        if self._block is None:
            from perdure.cli.terminal import LiveBlock

            self._block = LiveBlock(self._stream, has_colours=self.paint.is_on)
        self._block.draw(lines)

    def clear(self) -> None:
        """Remove the block."""
        if self._block is not None:
            self._block.clear()
            self._block = None

    @property
    def width(self) -> int:
        return width_of(self._stream) or 80


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb"


_is_colour_refused = False


def refuse_colours(is_refused: bool) -> None:
    """By --no-color, for this command."""
    global _is_colour_refused
    _is_colour_refused = is_refused


def is_coloured(stream: TextIO) -> bool:
    return is_terminal(stream) and not _is_colour_refused and not os.environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None where there is none and nothing needs to be cut."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    return columns or shutil.get_terminal_size().columns


def from_here(text: str) -> str:
    """The text with the files below the current folder named from there."""
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def cut(text: str, width: int | None) -> str:
    """The text on one line, not wider than `width`."""
    line = " ".join(text.split()) if "\n" in text else text
    return line if width is None or len(line) <= width else line[: max(0, width - 1)] + "…"


def wrapped(text: str, width: int | None, indent: int) -> str:
    """The text in lines that fit beside an indent, broken between words; commands and addresses are not broken."""
    if width is None or width - indent < 20:
        return text
    import textwrap

    room = width - indent
    lines = [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]
    ]
    return "\n".join(lines)
