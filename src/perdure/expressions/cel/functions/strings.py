"""The strings extension. Positions count code points; `format` has its own module."""

from collections.abc import Callable

from perdure.expressions import bounded_calls
from perdure.expressions.cel.frame import (
    BYTES_OF_A_TEXT,
    LIMITS,
    Frame,
    allow_elements,
    allow_size,
    charge,
    charge_search,
    each,
    spend,
    width_of,
)
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.values import CelList, Value, type_name
from perdure.expressions.errors import EvaluationFault, LimitExceeded

_BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code + 32: code for code in range(ord("A"), ord("Z") + 1)}
_QUOTES = str.maketrans({
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
    **{chr(surrogate): "\ufffd" for surrogate in range(0xD800, 0xE000)},
})  # fmt: skip


def _within(text: str, position: int) -> None:
    if not 0 <= position <= len(text):
        raise EvaluationFault(f"position {position} is out of range: the string has {len(text)} code points")


def _char_at(_: Frame, text: str, position: int) -> str:
    _within(text, position)
    return text[position : position + 1]


def _index_of(frame: Frame, text: str, part: str, start: int = 0) -> int:
    _within(text, start)
    charge_search(frame, text, part)
    return bounded_calls.find(text, part, start)


def _last_index_of(frame: Frame, text: str, part: str, start: int | None = None) -> int:
    start = len(text) if start is None else start
    _within(text, start)
    charge_search(frame, text, part)
    return bounded_calls.rfind(text, part, 0, min(start + len(part), len(text)))


def _substring(frame: Frame, text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    _within(text, start)
    _within(text, end)
    if start > end:
        raise EvaluationFault(f"a substring cannot end at {end} before its start at {start}")
    allow_size(frame, end - start, width=width_of(text))
    return text[start:end]


def _replace(frame: Frame, text: str, old: str, new: str, limit: int = -1) -> str:
    charge_search(frame, text, old)
    width = width_of(text, new)
    if len(text) <= bounded_calls.CHARACTERS or not old:
        count = text.count(old) if len(text) <= bounded_calls.CHARACTERS else len(text) + 1
        count = count if limit < 0 else min(count, limit)
        charge(frame, count)
        allow_size(frame, len(text) + count * (len(new) - len(old)), width=width)
        return bounded_calls.replace(text, old, new, limit, _pay_for_parts(frame, width))
    parts = bounded_calls.split(text, old, limit, _pay_for_parts(frame, width))
    allow_size(frame, len(text) + (len(parts) - 1) * (len(new) - len(old)), width=width)
    return bounded_calls.join(new, parts)


def _split(frame: Frame, text: str, separator: str, limit: int = -1) -> CelList:
    if limit == 0:
        return CelList()
    width = width_of(text)
    charge_search(frame, text, separator)
    spend(frame, width * len(text))
    if separator:
        return CelList(
            bounded_calls.split(text, separator, limit - 1 if limit > 0 else -1, _pay_for_parts(frame, width))
        )
    allow_elements(frame, len(text) if limit < 0 else min(limit, len(text)), each=8 if width == 1 else 88)
    if limit < 0 or limit >= len(text):
        return CelList(bounded_calls.characters(text))
    return CelList([*bounded_calls.characters(text[: limit - 1]), text[limit - 1 :]])


def _pay_for_parts(frame: Frame, width: int) -> Callable[[int], None]:
    total = 0

    def pay(count: int) -> None:
        nonlocal total
        total += count
        if 8 * total > frame[LIMITS].size:
            raise LimitExceeded(f"more than {frame[LIMITS].size // 8} parts are too many")
        charge(frame, 4 * count)
        spend(frame, count * (8 + BYTES_OF_A_TEXT + (0 if width == 1 else 24)))

    return pay


def _join(frame: Frame, parts: Value, separator: str = "") -> str:
    charge(frame, 4 * len(parts))
    spend(frame, 8 * len(parts))
    size, width = 0, width_of(separator)
    for part in each(frame, parts):
        if type(part) is not str:
            raise EvaluationFault(f"join() needs a list of strings, this one holds {type_name(part)}")
        size += len(part) + len(separator)
        width = width if part.isascii() else 4
    allow_size(frame, size, width=width)
    return bounded_calls.join(separator, parts)


def _trim(frame: Frame, text: str) -> str:
    charge(frame, len(text) >> 2)
    allow_size(frame, len(text), width=width_of(text))
    return bounded_calls.strip(text, _BLANKS)


def _reverse(frame: Frame, text: str) -> str:
    allow_size(frame, len(text), width=width_of(text))
    return text[::-1]


def _change_case(plain: Callable[[str], str], table: dict[int, int]) -> Callable[[Frame, str], str]:
    """Changes ASCII letters. Pure ASCII text has a fast path."""

    def apply(frame: Frame, text: str) -> str:
        allow_size(frame, len(text), width=width_of(text))
        if text.isascii():
            return plain(text)
        charge(frame, 4 * len(text))
        return bounded_calls.translate(text, table)

    return apply


def _quote(frame: Frame, text: str) -> str:
    charge(frame, 4 * len(text))
    allow_size(frame, 2 * len(text), width=width_of(text))
    return f'"{bounded_calls.translate(text, _QUOTES)}"'


LIBRARY = Library(
    functions={"strings.quote": Function(((str,), _quote))},
    methods={
        "charAt": Function(((str, int), _char_at)),
        "indexOf": Function(((str, str), _index_of), ((str, str, int), _index_of)),
        "lastIndexOf": Function(((str, str), _last_index_of), ((str, str, int), _last_index_of)),
        "substring": Function(((str, int), _substring), ((str, int, int), _substring)),
        "replace": Function(((str, str, str), _replace), ((str, str, str, int), _replace)),
        "split": Function(((str, str), _split), ((str, str, int), _split)),
        "join": Function(((LIST,), _join), ((LIST, str), _join)),
        "trim": Function(((str,), _trim)),
        "lowerAscii": Function(((str,), _change_case(str.lower, _LOWER))),
        "upperAscii": Function(((str,), _change_case(str.upper, _UPPER))),
        "reverse": Function(((str,), _reverse)),
    },
)
