"""Texts: cutting, trimming, wrapping, quoting. Positions count bytes, as in Go."""

import re

from perdure.expressions import bounded_calls
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.budget import Budget
from perdure.expressions.gotemplate.escapes import quote_go
from perdure.expressions.gotemplate.formatting import format_value
from perdure.expressions.gotemplate.frame import Frame
from perdure.expressions.gotemplate.functions.letters import lower, to_lower, to_title, upper
from perdure.expressions.gotemplate.functions.library import ANY, INTEGER, TEXT, takes, takes_frame, takes_letters
from perdure.expressions.gotemplate.values import Value

_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SPACE = ord(" ")
_NOSPACE = str.maketrans(dict.fromkeys(_SPACES, ""))
_DOTS = b"..."
_HALVES = re.compile("[\udc80-\udcff]")


def abbreviate(width: int, text: str) -> str:
    return text if width < 4 else _replace_invalid(_abbreviate(_bytes(text), 0, width))


def abbreviate_both(left: int, width: int, text: str) -> str:
    if width < 4 or (left > 0 and width < 7):
        return text
    return _replace_invalid(_abbreviate(_bytes(text), left, width))


def _abbreviate(text: bytes, offset: int, width: int) -> bytes:
    if len(text) <= width:
        return text
    offset = min(offset, len(text) - (width - 3))
    if offset <= 4:
        return text[: width - 3] + _DOTS
    if offset + width - 3 < len(text):
        return _DOTS + _abbreviate(text[offset:], 0, width - 3)
    return _DOTS + text[len(text) - (width - 3) :]


def truncate(count: int, text: str) -> str:
    """The first `count` bytes, or the last ones when it is negative."""
    data = _bytes(text)
    if count >= 0:
        return _replace_invalid(data[:count])
    return _replace_invalid(data[count:]) if len(data) + count > 0 else text


def substring(start: int, end: int, text: str) -> str:
    data = _bytes(text)
    if start < 0:
        start = 0
    elif end < 0 or end > len(data):
        end = len(data)
    if not 0 <= start <= end <= len(data):
        raise EvaluationFault(f"there is no part from {start} to {end} of {len(data)} bytes")
    return _replace_invalid(data[start:end])


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _replace_invalid(text: bytes) -> str:
    """Like Go for incomplete characters: each byte that belongs to none is U+FFFD."""
    return _HALVES.sub("\ufffd", text.decode("utf-8", "surrogateescape"))


def title(text: str) -> str:
    """Every word begins with an upper-case letter."""
    return "".join(to_title(char) if at == 0 or _separates(text[at - 1]) else char for at, char in enumerate(text))


def _separates(char: str) -> bool:
    if char.isascii():
        return not (char.isalnum() or char == "_")
    return char in _SPACES


def untitle(text: str) -> str:
    return "".join(to_lower(char) if at == 0 or text[at - 1] in _SPACES else char for at, char in enumerate(text))


def initials(text: str) -> str:
    return "".join(char for at, char in enumerate(text) if char not in _SPACES and (at == 0 or text[at - 1] in _SPACES))


def wrap(frame: Frame, width: int, text: str) -> str:
    """At spaces; a longer word exceeds the width."""
    return _wrap(frame.budget, text, max(width, 1), "\n", breaks_words=False)


def wrap_with(frame: Frame, width: int, separator: str, text: str) -> str:
    """At spaces, with a custom separator; a longer word is broken."""
    return _wrap(frame.budget, text, max(width, 1), separator or "\n", breaks_words=True)


def _wrap(budget: Budget, text: str, width: int, separator: str, *, breaks_words: bool) -> str:
    data, joint = _bytes(text), _bytes(separator)
    lines: list[bytes] = []
    at = 0
    while len(data) - at > width:
        if data[at] == _SPACE:
            at += 1
            continue
        space = data.rfind(b" ", at, at + width + 1)
        if space < 0 and breaks_words:
            _add(lines, budget, data[at : at + width] + joint)
            at += width
            continue
        if space < 0:
            space = data.find(b" ", at + width)
        if space < 0:
            break
        _add(lines, budget, data[at:space] + joint)
        at = space + 1
    _add(lines, budget, data[at:])
    return _replace_invalid(b"".join(lines))


def _add(lines: list[bytes], budget: Budget, line: bytes) -> None:
    budget.charge_text(len(line))
    lines.append(line)


def indent(frame: Frame, spaces: int, text: str) -> str:
    if spaces < 0:
        raise EvaluationFault("the indent of a text cannot be negative")
    frame.budget.charge_text(spaces)
    return replace(frame, "\n", "\n" + " " * spaces, "\n" + text)[1:]


def replace(frame: Frame, old: str, new: str, text: str) -> str:
    count = text.count(old)
    frame.budget.charge_text(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new)


def quote(frame: Frame, *values: Value) -> str:
    return " ".join(quote_go(format_value(value, frame.budget)) for value in values if value is not None)


def single_quote(frame: Frame, *values: Value) -> str:
    return " ".join(f"'{format_value(value, frame.budget)}'" for value in values if value is not None)


def concatenate(frame: Frame, *values: Value) -> str:
    return " ".join(format_value(value, frame.budget) for value in values if value is not None)


def trim_all(frame: Frame, characters: str, text: str) -> str:
    """Each character at the edges is looked up among those to be removed."""
    frame.budget.charge(len(text) * len(characters) // 256)
    return bounded_calls.strip(text, characters)


_TRIM_ALL = takes_frame(trim_all, TEXT, TEXT)

FUNCTIONS = {
    "abbrev": takes(abbreviate, INTEGER, TEXT),
    "abbrevboth": takes(abbreviate_both, INTEGER, INTEGER, TEXT),
    "cat": takes_frame(concatenate, rest=ANY),
    "contains": takes(lambda part, text: part in text, TEXT, TEXT),
    "hasPrefix": takes(lambda prefix, text: text.startswith(prefix), TEXT, TEXT),
    "hasSuffix": takes(lambda suffix, text: text.endswith(suffix), TEXT, TEXT),
    "indent": takes_frame(indent, INTEGER, TEXT),
    "initials": takes_letters(initials),
    "lower": takes_letters(lower),
    "nindent": takes_frame(lambda frame, spaces, text: "\n" + indent(frame, spaces, text), INTEGER, TEXT),
    "nospace": takes(lambda text: bounded_calls.translate(text, _NOSPACE), TEXT),
    "plural": takes(lambda singular, plural, count: singular if count == 1 else plural, TEXT, TEXT, INTEGER),
    "quote": takes_frame(quote, rest=ANY),
    "replace": takes_frame(replace, TEXT, TEXT, TEXT),
    "squote": takes_frame(single_quote, rest=ANY),
    "substr": takes(substring, INTEGER, INTEGER, TEXT),
    "title": takes_letters(title),
    "toString": takes_frame(lambda frame, value: format_value(value, frame.budget), ANY),
    "trim": takes(lambda text: bounded_calls.strip(text, _SPACES), TEXT),
    "trimAll": _TRIM_ALL,
    "trimPrefix": takes(lambda prefix, text: text.removeprefix(prefix), TEXT, TEXT),
    "trimSuffix": takes(lambda suffix, text: text.removesuffix(suffix), TEXT, TEXT),
    "trimall": _TRIM_ALL,
    "trunc": takes(truncate, INTEGER, TEXT),
    "untitle": takes_letters(untitle),
    "upper": takes_letters(upper),
    "wrap": takes_frame(wrap, INTEGER, TEXT),
    "wrapWith": takes_frame(wrap_with, INTEGER, TEXT, TEXT),
}
