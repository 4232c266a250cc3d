"""A secret whose characters are written in different ways, found in a text in a counted number of steps."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from perdure.kernel.json_values import jsontext
from perdure.kernel.turn_budget import TooManySteps, rest

MOST_BACKSLASHES = 8  # in a row, of which each may be encoded in its own way
_PIECE = jsontext.PIECE
_PORTION = 500  # steps between two pauses: about a millisecond
_SEARCHED = 16 * 1024  # characters that one call searches for a pattern


def find(text: str, part: str, start: int = 0) -> int:
    """As `str.find`, in short calls."""
    while start < len(text):
        if (at := text.find(part, start, start + _PIECE + len(part))) >= 0:
            return at
        start += _PIECE
    return -1


def is_within(text: bytes, part: bytes) -> bool:
    """As `part in text`, in short calls."""
    return any(text.find(part, at, at + _PIECE + len(part)) >= 0 for at in range(0, len(text), _PIECE))


class SearchSteps:
    """How many steps the search for spellings may take: more than any text needs that was not made for it."""

    __slots__ = ("_left", "_taken")

    def __init__(self, spellings: int) -> None:
        self._left = 5_000 + 32 * spellings
        self._taken = 0

    def allow_for(self, size: int) -> None:
        """For a text of so many characters."""
        self._left += 2 * size

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooManySteps
        self._taken += count
        if self._taken >= _PORTION:
            self._taken = 0
            rest()


class Spelling:
    """A secret with each of its characters encoded in any of the ways of JSON, URLs, Python, HTML and shells.

    Servers mix them: they differ in which characters of a URL they escape, and in how deeply JSON texts are nested.
    ASCII letters and digits are written in the same way by all, so a text without the longest run of them, the anchor,
    does not contain it.

    The places that each character may end at are followed all at once. A regular expression would try them one after
    the other, and some secrets and texts have so many combinations that it never ends.
    """

    __slots__ = ("_elements", "_parts", "_secret", "anchor")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        rows = ("".join(row) for is_plain, row in groupby(secret, _is_plain) if is_plain)
        self.anchor = max(rows, key=len, default="")
        self._parts: list[str] = []
        self._elements: list[_Element] = []  # of the first parts, as far as a text has matched

    def __len__(self) -> int:
        return len(self._secret)

    def is_in(self, text: str, steps: SearchSteps) -> bool:
        return next(self._places(text, steps), None) is not None

    def hide(self, text: str, replacement: str, steps: SearchSteps) -> str:
        pieces: list[str] = []
        after = 0
        for start, end in self._places(text, steps):
            pieces.append(text[after:start])
            after = end
        return replacement.join([*pieces, text[after:]]) if pieces else text

    def _places(self, text: str, steps: SearchSteps) -> Iterator[tuple[int, int]]:
        if self.anchor and find(text, self.anchor) < 0:
            return
        if not self._parts:  # most masks never see a text with the anchor
            self._parts = list(_parts(self._secret))
        first = self._element(0)
        at = 0
        while at < len(text):
            match = first.start.search(text, at, at + _SEARCHED + first.length)
            if match is None or match.start() >= at + _SEARCHED:
                at += _SEARCHED
                continue
            end = self._end(text, match.start(), steps)
            if end > 0:
                yield match.start(), end
            at = end if end > 0 else match.start() + 1

    def _end(self, text: str, start: int, steps: SearchSteps) -> int:
        """Where the secret ends that begins here; 0 if none does."""
        places = {start}
        for number in range(len(self._parts)):
            element = self._element(number)
            steps.take(len(places) * (1 + element.backslashes // 16))
            places = {end for place in places for end in element.ends(text, place)}
            if not places:
                return 0
        return max(places)

    def _element(self, number: int) -> "_Element":
        if number == len(self._elements):
            self._elements = [*self._elements, _element(self._parts[number])]  # one assignment: threads share it
        return self._elements[number]


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()


class _Element(NamedTuple):
    """A part of a secret: a run of letters and digits, another character, or a run of backslashes."""

    start: "re.Pattern[str]"  # how any of its forms begins
    ways: "tuple[re.Pattern[str], ...]"  # each of them ends at one place
    length: int  # of its longest form
    backslashes: int = 0
    run: "re.Pattern[str] | None" = None

    def ends(self, text: str, at: int) -> Iterator[int]:
        for way in self.ways:
            if match := way.match(text, at):
                yield match.end()
        if self.run is not None and (match := self.run.match(text, at)):
            # Nested texts double them, and those before the next character may belong to that.
            yield from range(max(at + self.backslashes, match.end() - 15), match.end() + 1)


def _parts(secret: str) -> Iterator[str]:
    for is_plain, row in groupby(secret, _is_plain):
        if is_plain:
            yield "".join(row)
            continue
        for character, same in groupby(row):
            times = len(list(same))
            if character == "\\" and times > MOST_BACKSLASHES:
                yield character * times
            else:
                yield from character * times


def _element(part: str) -> _Element:
    if _is_plain(part[0]):
        return _plain_run(part)
    return _backslashes(len(part)) if part[0] == "\\" else _other(part)


def _plain_run(run: str) -> _Element:
    pattern = re.compile(re.escape(run))
    return _Element(pattern, (pattern,), len(run))


# Every repetition is bounded: four levels of nested texts have up to fifteen backslashes in a row.
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ENTITIES = {'"': "quot", "'": "apos", "&": "amp", "<": "lt", ">": "gt"}
_ESCAPE = r"\\\\{0,14}"  # one to fifteen; patterns that begin with a literal are searched for quickly
_LONGEST = 128  # characters of one that is encoded


@lru_cache(maxsize=1024)
def _other(character: str) -> _Element:
    plain = f"{re.escape(character)}|{_ESCAPE}{re.escape(character)}"
    any_way = re.compile("|".join([plain, *_encodings(character)]))
    if not (ambiguous := _ambiguous(character)):
        return _Element(any_way, (any_way,), _LONGEST)
    ways = (plain, "|".join(_encodings(character)), *ambiguous)
    return _Element(any_way, tuple(map(re.compile, ways)), _LONGEST)


@lru_cache(maxsize=64)
def _backslashes(times: int) -> _Element:
    encoded = "|".join(_encodings("\\"))
    run = re.compile(rf"\\{{{times},{16 * times + 15}}}")
    return _Element(re.compile(rf"\\|{encoded}"), (re.compile(f"(?:{encoded}){{{times}}}"),), _LONGEST, times, run)


def _encodings(character: str) -> Iterator[str]:
    """The encodings of a character that is not a letter or digit, as patterns."""
    code, data = ord(character), character.encode("utf-8", "surrogatepass")
    percent = "%" if character == "%" else "%(?:25){0,2}"
    yield "".join(percent + _hex(f"{byte:02x}") for byte in data)
    yield "".join(f"{_ESCAPE}x{_hex(f'{byte:02x}')}" for byte in data)
    units = character.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(f"{_ESCAPE}u{_hex(units[at : at + 4])}" for at in range(0, len(units), 4))
    yield f"{_ESCAPE}(?:U{_hex(f'{code:08x}')}|u\\{{{_hex(f'{code:x}')}\\}})"
    named = f"|{_ENTITIES[character]}" if character in _ENTITIES and character != "&" else ""
    yield f"&(?:amp;){{0,2}}(?:#0{{0,4}}{code}|#[xX]0{{0,4}}{_hex(f'{code:x}')}{named});"
    if 0x80 <= code < 0x100:
        yield f"{_ESCAPE}x{_hex(f'{code:02x}')}"
    if code >= 0x80:
        yield re.escape(data.decode("latin-1"))  # bytes of UTF-8, decoded as another encoding
    if character in _CONTROLS:
        yield _ESCAPE + _CONTROLS[character]
    if character == " ":
        yield r"\+"


def _ambiguous(character: str) -> tuple[str, ...]:
    """Encodings that begin with another encoding of the same character."""
    match character:
        case "%":
            return "%2525", "%252525"
        case "Ã":
            return "Ã\x83", rf"{_ESCAPE}xc3"
        case "&":
            return "&amp;", "&amp;amp;", "&amp;amp;amp;"
        case "'":
            return r"'\\{1,3}''", """'"'"'"""
        case _:
            return ()


def _hex(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)
