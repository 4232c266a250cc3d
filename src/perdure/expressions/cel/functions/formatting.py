"""`string.format(list)`: %s %d %f %e %b %o %x %X %%, with a precision for %f and %e."""

import math
import re
from collections.abc import Iterator

from perdure.expressions.cel.errors import EvaluationFault
from perdure.expressions.cel.frame import Frame, allow_size, charge, elements, entries
from perdure.expressions.cel.functions.conversions import encode_text, format_double, plain_double
from perdure.expressions.cel.instants import Duration, Timestamp, format_duration, format_timestamp
from perdure.expressions.cel.values import CelList, CelMap, TypeValue, Uint, Value, type_name
from perdure.kernel.late import late

_CLAUSE = late(r"%(?:\.([0-9]{1,9}))?(.?)", re.DOTALL)
_MOST_DIGITS = 1000


def format_text(frame: Frame, template: str, args: Value) -> str:
    values = iter(elements(frame, args))
    out: list[str] = []
    size = at = 0
    for clause in _CLAUSE.finditer(template):
        out.append(template[at : clause.start()])
        at = clause.end()
        out.append("%" if clause[0] == "%%" else _render(frame, clause, values))
        size += len(out[-1]) + len(out[-2])
        allow_size(frame, size)
    out.append(template[at:])
    allow_size(frame, size + len(out[-1]))
    return "".join(out)


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
    shown = _as_number(frame, verb, precision, value)
    if shown is None:
        raise EvaluationFault(f"%{verb} does not take {type_name(value)}")
    return shown


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
    charge(frame, 6)
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float():
            return format_double(value)
        case int():
            return str(int(value))
        case bytes():
            return value.decode("utf-8", "replace")
        case TypeValue():
            return value.name
        case Timestamp():
            return format_timestamp(value)
        case Duration():
            return format_duration(value)
    if type(value) in (list, CelList):
        return f"[{_joined(frame, [_as_string(frame, item) for item in elements(frame, value)])}]"
    if type(value) in (dict, CelMap):
        pairs = sorted((_as_string(frame, key), _as_string(frame, item)) for key, item in entries(frame, value))
        return f"{{{_joined(frame, [f'{key}: {item}' for key, item in pairs])}}}"
    raise EvaluationFault(f"%s does not take {type_name(value)}")


def _joined(frame: Frame, parts: list[str]) -> str:
    allow_size(frame, sum(map(len, parts)) + 2 * len(parts))
    return ", ".join(parts)
