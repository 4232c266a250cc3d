"""Large JSON text, read, sorted and written by short calls into C: one long call would hold up every other thread.

The standard decoder reads what fits into a window of the text: the rest of a list or object, else as many of its
elements as fit, else one by one. An element that is longer than the window is read in the same way.
"""

from collections.abc import Callable, Iterator
from heapq import merge
from json import JSONDecodeError, JSONDecoder
from typing import Any

import msgspec

from perdure.kernel.json_values.jsontext import HOLDERS, LARGE_NUMBER, NODES, is_large, weigh, weigh_digits
from perdure.kernel.lazy_regex import lazy_regex
from perdure.kernel.turn_budget import rest

_TRIES = 4  # to find where the elements of a group end
_LONGEST_TOKEN = 32  # characters: nearer to the end of a window `1` may be the beginning of `1.5e-7`
_BLANKS = frozenset(" \t\n\r")
_NOT_BLANK = lazy_regex(r"[^ \t\n\r]")
_BLANKS_AT_ONCE = 100_000  # characters
_SCANNED_AT_ONCE = 1_000_000
_SORTED_AT_ONCE = 20_000  # names
_LONGEST_ESCAPE = 12  # characters, of two halves of a character
_WRITTEN_AT_ONCE = 128 * 1024  # characters
_SMALL_PART, _MOST_WEIGHTS = 64, 20_000  # values of a small part; weights that are kept of such parts

_encode = msgspec.json.Encoder().encode


def read_large(text: str, decoder: JSONDecoder, window: int) -> Any:
    """As the decoder reads the whole text. `ValueError` if it is not JSON."""
    value, end = _Reader(text, decoder, window).read(_next(text, 0))
    if (end := _next(text, end)) < len(text):
        raise JSONDecodeError("Extra data", text, end)
    return value


class _Reader:
    def __init__(self, text: str, decoder: JSONDecoder, window: int) -> None:
        self._text = text
        self._decode = decoder.decode
        self._scan_once: Callable[[str, int], tuple[Any, int]] = getattr(decoder, "scan_once")  # noqa: B009
        self._window = window

    def read(self, at: int) -> tuple[Any, int]:
        """A value that may be longer than the window, and where it ends."""
        if self._text[at : at + 1] in ("[", "{"):
            return self._read_container(at)
        if self._text[at : at + 1] == '"':
            return self._read_text(at)
        try:
            return self._scan_once(self._text, at)
        except StopIteration:
            raise JSONDecodeError("Expecting value", self._text, at) from None

    def _read_text(self, at: int) -> tuple[str, int]:
        """A text that may be longer than the window, in pieces that end between two characters."""
        parts: list[str] = []
        begin = at + 1
        while True:
            rest()
            window = '"' + self._text[begin : begin + self._window]
            try:
                part, end = self._scan_once(window, 0)
            except JSONDecodeError as error:
                if begin + self._window >= len(self._text) or (piece := self._first_piece(window)) is None:
                    where = begin - 1 + error.pos if error.pos else at
                    raise JSONDecodeError(error.msg, self._text, where) from None
                parts.append(piece[0])
                begin += piece[1]
                continue
            return "".join([*parts, part]), begin - 1 + end

    def _first_piece(self, window: str) -> tuple[str, int] | None:
        """What can be read of a text that goes on behind the window, and its length; None if it cannot be read."""
        piece = None
        for length in range(len(window), len(window) - _LONGEST_ESCAPE - 1, -1):
            try:
                part, _ = self._scan_once(window[:length] + '"', 0)
            except JSONDecodeError:
                continue
            piece = part, length - 1
            if not "\ud800" <= part[-1:] <= "\udbff":  # half a character, whose other half may follow
                break
        return piece

    def _read_container(self, at: int) -> tuple[Any, int]:
        text, begins = self._text, self._text[at]
        ends = "]" if begins == "[" else "}"
        held: Any = [] if begins == "[" else {}
        at = _next(text, at + 1)
        if text[at : at + 1] == ends:
            return held, at + 1
        while True:  # once per window
            rest()
            window = text[at : at + self._window]
            if (whole := self._scan(begins + window, 0)) is not None:
                _add(held, whole[0])
                return held, at + whole[1] - 1
            if (size := self._add_group(held, begins, window, ends)) is None:
                size, is_end = self._add_elements(held, window, at, ends)
                if is_end:
                    return held, at + size
            at = _next(text, at + size)
            if text[at : at + 1] == ends:
                raise JSONDecodeError("Expecting value", text, at)

    def _scan(self, window: str, at: int) -> tuple[Any, int] | None:
        """A value that ends within the window, and where; None if it goes on behind it, or is none."""
        try:
            value, end = self._scan_once(window, at)
        except (JSONDecodeError, StopIteration):
            return None
        is_whole = end + _LONGEST_TOKEN <= len(window) or window[end - 1] in ']}"'
        return (value, end) if is_whole else None

    def _add_group(self, held: Any, begins: str, window: str, ends: str) -> int | None:
        """Add elements up to one of the last commas. Within a text or a deeper list quotes or brackets are open."""
        separator = {"{": "},", "[": "],"}.get(window[:1], ",")
        cut = len(window) + 1
        for _ in range(_TRIES):
            cut = window.rfind(separator, 0, cut - 1) + len(separator) - 1
            if cut < len(separator):
                return None
            try:
                group = self._decode(begins + window[:cut] + ends)
            except JSONDecodeError:
                continue
            if group:
                _add(held, group)
                return cut + 1
        return None

    def _add_elements(self, held: Any, window: str, begin: int, ends: str) -> tuple[int, bool]:
        """Add one element after the other: where the next one begins, and whether there is none."""
        text, at = self._text, begin
        while True:
            name = None
            if ends == "}":
                name, at = self._read_name(window, begin, at)
            scanned = self._scan(window, at - begin)
            value, end = self.read(at) if scanned is None else (scanned[0], begin + scanned[1])
            _add(held, [value] if name is None else {name: value})
            end = _next(text, end)
            separator = text[end : end + 1]
            if separator == ends:
                return end + 1 - begin, True
            if separator != ",":
                raise JSONDecodeError("Expecting ',' delimiter", text, end)
            at = _next(text, end + 1)
            if scanned is None or text[at : at + 1] == ends:
                return at - begin, False

    def _read_name(self, window: str, begin: int, at: int) -> tuple[str, int]:
        """The name of a member, and where its value begins."""
        text = self._text
        if text[at : at + 1] != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        scanned = self._scan(window, at - begin)
        name, end = self._read_text(at) if scanned is None else (scanned[0], begin + scanned[1])
        end = _next(text, end)
        if text[end : end + 1] != ":":
            raise JSONDecodeError("Expecting ':' delimiter", text, end)
        return name, _next(text, end + 1)


def _add(held: Any, more: Any) -> None:
    if type(held) is list:
        held += more
        return
    before = len(held)
    held.update(more)
    if len(held) < before + len(more):
        raise ValueError("a member is repeated in one object")


def _next(text: str, at: int) -> int:
    """Where something other than blanks begins."""
    if text[at : at + 1] not in _BLANKS:
        return at
    while at < len(text):
        match = _NOT_BLANK.search(text, at, at + _BLANKS_AT_ONCE)
        if match is not None:
            return match.start()
        at += _BLANKS_AT_ONCE
        rest()
    return len(text)


def has_any(text: str, *parts: str) -> bool:
    """Whether one of a few short texts is in a long one."""
    for at in range(0, len(text), _SCANNED_AT_ONCE):
        rest()
        if any(text.find(part, at, at + _SCANNED_AT_ONCE + len(part) - 1) >= 0 for part in parts):
            return True
    return False


def sorted_names(members: dict[str, Any]) -> list[str]:
    """As `sorted` gives them; very many are sorted by short calls."""
    if len(members) <= _SORTED_AT_ONCE:
        return sorted(members)
    names = list(members)
    return list(merge(*(sorted(names[at : at + _SORTED_AT_ONCE]) for at in range(0, len(names), _SORTED_AT_ONCE))))


def in_order(value: Any) -> Any:
    """The same value, with all members of objects in order."""
    if type(value) is dict:
        return {name: in_order(value[name]) for name in sorted_names(value)}
    return [in_order(item) for item in value] if type(value) is list else value


def write_large(value: Any) -> bytes:
    """As the encoder writes it, in groups of elements and members."""
    kind = type(value)
    if kind is str and len(value) > _WRITTEN_AT_ONCE:
        starts = range(0, len(value), _WRITTEN_AT_ONCE)
        return b'"%b"' % b"".join(_encode(value[at : at + _WRITTEN_AT_ONCE])[1:-1] for at in starts)
    if kind not in (list, dict) or not is_large(value):
        return _encode(value)
    weights: dict[int, int] = {}
    _weigh_parts(value, weights)
    return _write(value, weights)


def _weigh_parts(value: Any, weights: dict[int, int]) -> int:
    """As `weigh`, to the end. Weights of parts are kept by identity, since they are asked for again; those of small
    parts only as long as there are few.
    """
    weight = len(value)
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is str:
            weight += len(item) >> 6
        elif kind in HOLDERS:
            weight += weights.get(id(item)) or _weigh_parts(item, weights)
        elif kind is int and not -LARGE_NUMBER < item < LARGE_NUMBER:
            weight += weigh_digits(item)
    if weight > _SMALL_PART:
        weights[id(value)] = weight
        rest()
    elif len(weights) < _MOST_WEIGHTS:
        weights[id(value)] = weight
    return weight


def _write(value: Any, weights: dict[int, int]) -> bytes:
    if type(value) is list:
        return b"[%b]" % b",".join(_elements_of(value, weights))
    return b"{%b}" % b",".join(_members_of(value, weights)) if type(value) is dict else write_large(value)


def _elements_of(items: list[Any], weights: dict[int, int]) -> Iterator[bytes]:
    group: list[Any] = []
    weight = 0
    for element in items:
        more = 1 + (weights.get(id(element)) or weigh(element, NODES))
        weight += more
        if weight > NODES and group:
            yield _encode(group)[1:-1]
            rest()
            group, weight = [], more
        if more > NODES:
            yield _write(element, weights)
            weight = 0
        else:
            group.append(element)
    if group:
        yield _encode(group)[1:-1]


def _members_of(items: dict[Any, Any], weights: dict[int, int]) -> Iterator[bytes]:
    group: dict[Any, Any] = {}
    weight = 0
    for name, member in items.items():
        more = 1 + (weights.get(id(member)) or weigh(member, NODES))
        weight += more
        if weight > NODES and group:
            yield _encode(group)[1:-1]
            rest()
            group, weight = {}, more
        if more > NODES:
            yield _encode({name: 0})[1:-2] + _write(member, weights)
            weight = 0
        else:
            group[name] = member
    if group:
        yield _encode(group)[1:-1]
