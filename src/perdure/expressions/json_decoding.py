"""Large JSON text, decoded in pieces: one call into C reads a few hundred kilobytes at most.

A longer list or object is split between its elements, and what is still too long is split again. Each level scans its
text once more, which is paid for in advance.
"""

import re
from collections.abc import Callable
from typing import Any

from perdure.kernel.lazy_regex import lazy_regex

LARGEST = 200_000  # characters that one call decodes
_TOKEN = lazy_regex(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
_KEY = lazy_regex(r'[ \t\n\r]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\n\r]*:', re.DOTALL)
_BLANKS = " \t\n\r"

Decode = Callable[[str], Any]
Pay = Callable[[int], None]


class MalformedJson(ValueError):
    """The text is not JSON, as far as its brackets and commas show."""


def decode(text: str, decode_piece: Decode, pay: Pay, *, unique: bool = False) -> Any:
    """The result of `decode_piece` for the whole text. With `unique` a repeated member of an object is refused."""
    if len(text) <= LARGEST:
        return decode_piece(text)
    body = text.strip(_BLANKS)
    if body[:1] + body[-1:] not in ("[]", "{}"):
        return decode_piece(text)
    pay(4 * len(body))
    result: Any = [] if body[0] == "[" else {}
    for piece, is_alone in _cut(body):
        if not is_alone:
            _extend(result, decode_piece(body[0] + piece + body[-1]), unique)
        elif type(result) is list:
            result.append(decode(piece, decode_piece, pay, unique=unique))
        else:
            key = _KEY.match(piece)
            if key is None:
                raise MalformedJson("an object has a member without a name")
            value = decode(piece[key.end() :], decode_piece, pay, unique=unique)
            _extend(result, {decode_piece(key[1]): value}, unique)
    return result


def _extend(result: Any, more: Any, unique: bool) -> None:
    if type(result) is list:
        result += more
        return
    before = len(result)
    result.update(more)
    if unique and len(result) < before + len(more):
        raise MalformedJson("a member is repeated in one object")


def _cut(body: str) -> list[tuple[str, bool]]:
    """The elements between the outer brackets, small ones in groups, large ones alone."""
    pieces: list[tuple[str, bool]] = []
    start = first = 1  # of the elements in the current group, and of the open one
    depth = 0
    last = len(body) - 1
    for token in _TOKEN.finditer(body, 1):
        char = token[0]
        if char in "[{":
            depth += 1
            continue
        if char not in "]},":
            continue
        at = token.start()
        if depth == 0:
            if char != "," and at != last:
                raise MalformedJson("there is unexpected text after the value")
            if not body[first:at].strip(_BLANKS):
                if at == last and first == 1:
                    return pieces
                raise MalformedJson("an element is missing between two commas")
            if at - first > LARGEST:
                if start < first:
                    pieces.append((body[start : first - 1], False))
                pieces.append((body[first:at], True))
                start = at + 1
            elif at - start > LARGEST:
                pieces.append((body[start:at], False))
                start = at + 1
            first = at + 1
            if at == last:
                if start < at:
                    pieces.append((body[start:at], False))
                return pieces
        elif char != ",":
            depth -= 1
    raise MalformedJson("a bracket or a quote is not closed")
