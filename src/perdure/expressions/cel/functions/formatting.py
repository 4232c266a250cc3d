"""`string.format(list)`: %s %d %f %e %b %o %x %X %%, with a precision for %f and %e."""

import math
import re
from collections.abc import Iterator, Sequence

from perdure.expressions import bounded_calls
from perdure.expressions.cel.frame import (
    BYTES_OF_A_TEXT,
    BYTES_OF_AN_ELEMENT,
    LIMITS,
    PRICE_OF_TEXT,
    Frame,
    allow_size,
    charge,
    each,
    entries,
    spend,
    width_of,
)
from perdure.expressions.cel.functions.library import LIST, Function, Library
from perdure.expressions.cel.instants import Duration, Timestamp, format_duration, format_timestamp
from perdure.expressions.cel.text_forms import encode_text, format_double, plain_double
from perdure.expressions.cel.values import CelList, CelMap, TypeValue, Uint, Value, type_name
from perdure.expressions.errors import EvaluationFault
from perdure.kernel.lazy_regex import lazy_regex

_CLAUSE = lazy_regex(r"%(?:\.([0-9]{1,9}))?(.?)", re.DOTALL)
_MOST_DIGITS = 1000


def format_text(frame: Frame, template: str, args: Value) -> str:
    values = iter(each(frame, args))
    out: list[str] = []
    size = at = 0
    allow_size(frame, len(template), width=width_of(template))
    for clause in _CLAUSE.finditer(template):
        charge(frame, 2 * PRICE_OF_TEXT)
        spend(frame, 3 * BYTES_OF_A_TEXT)
        out.append(template[at : clause.start()])
        at = clause.end()
        out.append("%" if clause[0] == "%%" else _render(frame, clause, values))
        size += len(out[-1])
        if size > frame[LIMITS].size:
            break
    out.append(template[at:])
    return _joined(frame, "", out)


def _render(frame: Frame, clause: re.Match[str], values: Iterator[Value]) -> str:
    verb, precision = clause[2], 6 if clause[1] is None else int(clause[1])
    if verb not in tuple("sdfeboxX") or (clause[1] is not None and verb not in "fe"):
        raise EvaluationFault(f"unknown formatting clause {clause[0]!r}")
    if precision > _MOST_DIGITS:
        raise EvaluationFault(f"a precision of {precision} is more than {_MOST_DIGITS}")
    try:
        value = next(values)
    except StopIteration:
        raise EvaluationFault(f"there is no argument for {clause[0]!r}") from None
    if verb == "s":
        return _as_string(frame, value)
    text = _as_number(frame, verb, precision, value)
    if text is None:
        raise EvaluationFault(f"%{verb} does not take {type_name(value)}")
    return text


def _as_number(frame: Frame, verb: str, precision: int, value: Value) -> str | None:
    kind = type(value)
    is_whole = kind is int or kind is Uint
    if kind is float and not math.isfinite(value) and verb in "dfe":
        return format_double(value)
    match verb:
        case "d" if is_whole:
            return str(int(value))
        case "d" if kind is float:
            return plain_double(value)
        case "f" | "e" if is_whole or kind is float:
            allow_size(frame, precision)
            return f"{float(value):.{precision}{verb}}"
        case "b" if is_whole or kind is bool:
            return f"{int(value):b}"
        case "o" if is_whole:
            return f"{int(value):o}"
        case "x" | "X" if is_whole:
            return f"{int(value):{verb}}"
        case "x" | "X" if kind is str or kind is bytes:
            allow_size(frame, 2 * len(value))
            digits = (encode_text(frame, value) if kind is str else value).hex()
            return digits if verb == "x" else digits.upper()
    return None


def _as_string(frame: Frame, value: Value) -> str:
    """Lists and maps in brackets, recursively; map entries sorted by the text of their key."""
    charge(frame, 16)
    spend(frame, BYTES_OF_A_TEXT + BYTES_OF_AN_ELEMENT)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float():
            charge(frame, PRICE_OF_TEXT)
            return format_double(value)
        case int():
            return str(int(value))
        case bytes():
            allow_size(frame, len(value), width=1 if value.isascii() else 4)
            return value.decode("utf-8", "replace")
        case TypeValue():
            return value.name
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
    if type(value) in (list, CelList):
        return f"[{_joined(frame, ', ', [_as_string(frame, item) for item in each(frame, value)])}]"
    if type(value) in (dict, CelMap):
        pairs = [(_as_string(frame, key), _as_string(frame, item)) for key, item in entries(frame, value)]
        longest = max([len(key) for key, _ in pairs], default=0)
        charge(frame, 2 * len(pairs) * len(pairs).bit_length() * (1 + (longest >> 9)))
        ordered = [pairs[at] for at in bounded_calls.order(pairs, longest)]
        return f"{{{_joined(frame, ', ', [_joined(frame, ': ', pair) for pair in ordered])}}}"
    raise EvaluationFault(f"%s does not take {type_name(value)}")


def _joined(frame: Frame, separator: str, parts: Sequence[str]) -> str:
    size, width = len(separator) * len(parts), 1
    for part in parts:
        size += len(part)
        width = width if part.isascii() else 4
    allow_size(frame, size, width=width)
    return bounded_calls.join(separator, parts)


LIBRARY = Library(methods={"format": Function(((str, LIST), format_text))})
