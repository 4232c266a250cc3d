"""Large work in pieces: each call into C does a few milliseconds of work at most, so that other threads get their turn.

Small operands are handled directly. The results are those of the methods of `str` and `list` with the same names. The
caller pays first; `split` reports the number of parts as it goes, because it is not known before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

CHARACTERS = 200_000  # characters that one call scans
LONGEST_PART = 1_000_000  # characters of a text to search for; no piece may be shorter
PARTS = 50_000  # elements that one call creates or reads
SHORT = 16  # characters of a text that may be searched for from the end: Python's search from there takes longer
_RUN = 4_096  # elements sorted by one call
_LONG_KEY = 256  # comparing longer keys is so slow that fewer of them are sorted by one call
_RUN_OF_LONG_KEYS = 8

Pay = Callable[[int], None]


def find(text: str, part: str, start: int = 0, end: int | None = None) -> int:
    end = len(text) if end is None else end
    if end - start <= CHARACTERS:
        return text.find(part, start, end)
    reach = max(CHARACTERS, len(part))
    while True:
        stop = min(end, start + reach + len(part) - 1)
        at = text.find(part, start, stop)
        if at >= 0 or stop == end:
            return at
        start += reach


def rfind(text: str, part: str, start: int, end: int) -> int:
    """Where the last one begins. A long part is searched for forwards in reversed text.

    Python's search from the end can take the product of both lengths, the other one takes their sum.
    """
    if end - start <= CHARACTERS:
        return _rfind(text, part, start, end)
    reach = max(CHARACTERS, len(part))
    while True:
        first = max(start, end - reach - len(part) + 1)
        at = _rfind(text, part, first, end)
        if at >= 0 or first == start:
            return at
        end -= reach


def _rfind(text: str, part: str, start: int, end: int) -> int:
    if len(part) <= SHORT:
        return text.rfind(part, start, end)
    at = text[start:end][::-1].find(part[::-1])
    return -1 if at < 0 else end - at - len(part)


def rsplit(text: str, separator: str, limit: int) -> list[str]:
    """Like `text.rsplit(separator, limit)`, of a long separator."""
    return [part[::-1] for part in reversed(text[::-1].split(separator[::-1], limit))]


def split(text: str, separator: str, limit: int, pay: Pay) -> list[str]:
    """Like `text.split(separator, limit)`; `limit` is negative for no limit, `separator` is not empty."""
    parts: list[str] = []
    begin = at = 0  # of the open part, and of the text not scanned yet
    length, width = len(text), len(separator)
    while at < length and limit != 0:
        stop = min(length, at + max(CHARACTERS, width) + width - 1)
        piece = text[at:stop]
        pay(1 + (piece.count(separator) if limit < 0 else min(limit, piece.count(separator))))
        pieces = piece.split(separator, limit)
        if len(pieces) > 1:
            parts.append(text[begin:at] + pieces[0])
            parts += pieces[1:-1]
            begin = stop - len(pieces[-1])
            limit -= len(pieces) - 1 if limit > 0 else 0
        at = length if stop == length else max(begin, stop - width + 1)
    pay(1)
    parts.append(text[begin:])
    return parts


def characters(text: str) -> list[str]:
    """Like `list(text)`."""
    result: list[str] = []
    for at in range(0, len(text), PARTS):
        result += text[at : at + PARTS]
    return result


def join(separator: str, parts: Sequence[str]) -> str:
    if len(parts) <= PARTS:
        return separator.join(parts)
    return separator.join([separator.join(parts[at : at + PARTS]) for at in range(0, len(parts), PARTS)])


def count(items: Sequence[Any], item: Any) -> int:
    return sum(items[first : first + PARTS].count(item) for first in range(0, len(items), PARTS))


def index(items: Sequence[Any], item: Any, start: int = 0, end: int | None = None) -> int:
    start, end, _ = slice(start, end).indices(len(items))
    for first in range(start, end, PARTS):
        part = items[first : min(first + PARTS, end)]
        if item in part:
            return first + part.index(item)
    raise ValueError("the value is not in the list")


def strip(text: str, characters: str, *, left: bool = True, right: bool = True) -> str:
    """Like `text.strip(characters)`, or only on one side. The work grows with the product of both lengths."""
    step = max(1, CHARACTERS // (2 + len(characters)))
    first, last = 0, len(text)
    while left and first < last:
        rest = text[first : first + step].lstrip(characters)
        first = min(first + step, last) - len(rest)
        if rest:
            break
    while right and first < last:
        rest = text[max(first, last - step) : last].rstrip(characters)
        last = max(first, last - step) + len(rest)
        if rest:
            break
    return text[first:last]


def replace(text: str, old: str, new: str, limit: int, pay: Pay) -> str:
    """Like `text.replace(old, new, limit)`; `limit` is negative for no limit."""
    if old:
        return join(new, split(text, old, limit, pay))
    count = len(text) + 1 if limit < 0 else min(limit, len(text) + 1)
    pay(count)
    before = new + join(new, characters(text[:count])) if count else ""
    return before + (new if count > len(text) > 0 else "") + text[count:]


def translate(text: str, table: Mapping[int, Any]) -> str:
    step = CHARACTERS // 4
    if len(text) <= step:
        return text.translate(table)
    return "".join([text[at : at + step].translate(table) for at in range(0, len(text), step)])


def order(keys: Sequence[Any], longest: int = 0) -> list[int]:
    """The places of the keys in ascending order, equal keys in their original order. `longest` is a key's length."""
    step = _RUN if longest <= _LONG_KEY else _RUN_OF_LONG_KEYS
    at = keys.__getitem__
    runs = [sorted(range(first, min(first + step, len(keys))), key=at) for first in range(0, len(keys), step)]
    while len(runs) > 1:
        pairs = [runs[first : first + 2] for first in range(0, len(runs), 2)]
        runs = [pair[0] if len(pair) == 1 else _merged(keys, *pair) for pair in pairs]
    return runs[0] if runs else []


def _merged(keys: Sequence[Any], left: list[int], right: list[int]) -> list[int]:
    if not keys[right[0]] < keys[left[-1]]:
        return left + right
    merged: list[int] = []
    add = merged.append
    rest, other = iter(left), iter(right)
    first, second = next(rest), next(other)
    key, key_of_two = keys[first], keys[second]
    while True:
        if key_of_two < key:
            add(second)
            if (second := next(other, -1)) < 0:
                return [*merged, first, *rest]
            key_of_two = keys[second]
        else:
            add(first)
            if (first := next(rest, -1)) < 0:
                return [*merged, second, *other]
            key = keys[first]
