"""The values that templates compute with: JSON's, instants, versions. Their type names, and when they are true.

Integers and floats are both numbers here (STY-206): an integer is exact, prints without exponent, and compares with a
float by value. Which Go type a number would have had is not kept: every integer is an `int`.
"""

from math import inf
from typing import Any

from perdure.expressions import bounded_calls
from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.errors import NeedsStoredValue
from perdure.expressions.gotemplate.instants import GoTime
from perdure.expressions.gotemplate.literals import INT_MAX, INT_MIN
from perdure.expressions.gotemplate.versions import Version
from perdure.kernel.lazy_regex import lazy_regex

Value = Any  # None, bool, int, float, str, list, dict, Moment or Version

STORAGE_REFERENCE = "$bubuStorageRef"
STORAGE_PATH = "$bubuStoragePath"
LONGEST_NUMBER = 400  # characters of a number
_WHOLE = lazy_regex(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)(?:\.0*)?")

_TYPES: dict[type, tuple[str, str]] = {
    type(None): ("<nil>", "invalid"),
    bool: ("bool", "bool"),
    int: ("int", "int"),
    float: ("float64", "float64"),
    str: ("string", "string"),
    list: ("[]interface {}", "slice"),
    dict: ("map[string]interface {}", "map"),
    GoTime: ("time.Time", "struct"),
    Version: ("*semver.Version", "ptr"),
}
_UNKNOWN = ("interface {}", "interface")  # data that are not JSON


def type_name(value: Value) -> str:
    """The name that Go's `%T` prints."""
    return _TYPES.get(type(value), _UNKNOWN)[0]


def kind_name(value: Value) -> str:
    return _TYPES.get(type(value), _UNKNOWN)[1]


def describe(value: Value) -> str:
    """For messages: what an author would call this value."""
    names = {"<nil>": "nil", "bool": "a bool", "int": "an integer", "float64": "a float", "string": "a string"}
    names |= {"[]interface {}": "a list", "map[string]interface {}": "a map", "time.Time": "a time"}
    return names.get(type_name(value), "a version" if isinstance(value, Version) else "no JSON value")


def sorted_keys(value: dict[str, Value]) -> list[str]:
    """The keys in order; of a large map they are sorted in pieces."""
    if len(value) <= bounded_calls.PARTS:
        return sorted(value)
    keys = list(value)
    return [keys[at] for at in bounded_calls.order(keys, max(map(len, keys)))]


def is_storage_reference(value: Value) -> bool:
    if type(value) is not dict:
        return False
    reference = value.get(STORAGE_REFERENCE)
    return isinstance(reference, str) and reference.strip() != ""


def require_present(value: Value) -> Value:
    """The value itself, unless it is in storage."""
    if is_storage_reference(value):
        raise NeedsStoredValue(value)
    return value


def is_true(value: Value) -> bool:
    """Go's truth: false, zero, nil and empty values are not true."""
    if type(value) is dict:
        require_present(value)
    return isinstance(value, GoTime | Version) or bool(value)


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def wrap_int64(value: int) -> int:
    """The integer in 64 bits, as Go's arithmetic wraps it."""
    return (value + 2**63) % 2**64 - 2**63


def float_to_int(value: float) -> int:
    """Drop the fraction. A value without a 64-bit integer is refused: in Go the result depends on the processor."""
    if not -(2.0**63) <= value < 2.0**63:
        raise EvaluationFault(f"{value} is not in the range of 64-bit integers")
    return int(value)


def is_empty(value: Value) -> bool:
    """nil, false, zero, and texts, lists and maps without content."""
    return not is_true(value)


def to_int64(value: Value) -> int:
    if value is True or value is False:
        return int(value)
    if type(value) is int:
        return value if INT_MIN <= value <= INT_MAX else float_to_int(float(value) if abs(value) < 2**1000 else inf)
    if type(value) is float:
        return float_to_int(value)
    return _read_whole(value) if type(value) is str else 0


def _read_whole(text: str) -> int:
    match = _WHOLE.fullmatch(text) if len(text) <= LONGEST_NUMBER else None
    if match is None:
        return 0
    digits = match[2].lower()
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xbo":
        digits = "0o" + digits[1:]
    number = int(digits, 0) if digits != "0o" else 0
    number = -number if match[1] == "-" else number
    return number if INT_MIN <= number <= INT_MAX else 0
