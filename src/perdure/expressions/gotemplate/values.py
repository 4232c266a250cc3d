"""The values templates compute with: JSON's, moments in time, versions. What they are called, and when they are true.

Integers and floats are both numbers here (STY-206): an integer is exact, prints without exponent,
and compares with a float by value. Which Go type a number would have had is not kept: every integer is an `int`.
"""

from typing import Any

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.errors import NeedsStoredValue
from perdure.expressions.gotemplate.instants import GoTime
from perdure.expressions.gotemplate.versions import Version

Value = Any  # None, bool, int, float, str, list, dict, Moment or Version

STORAGE_REFERENCE = "$bubuStorageRef"
STORAGE_PATH = "$bubuStoragePath"

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
    """As Go's `%T` says it."""
    return _TYPES.get(type(value), _UNKNOWN)[0]


def kind_name(value: Value) -> str:
    return _TYPES.get(type(value), _UNKNOWN)[1]


def describe(value: Value) -> str:
    """For sentences: what an author would call this value."""
    names = {"<nil>": "nil", "bool": "a bool", "int": "an integer", "float64": "a float", "string": "a string"}
    names |= {"[]interface {}": "a list", "map[string]interface {}": "a map", "time.Time": "a time"}
    return names.get(type_name(value), "a version" if isinstance(value, Version) else "no JSON value")


def is_storage_reference(value: Value) -> bool:
    if type(value) is not dict:
        return False
    reference = value.get(STORAGE_REFERENCE)
    return isinstance(reference, str) and reference.strip() != ""


def require_present(value: Value) -> Value:
    """The value itself, unless it lies in storage."""
    if is_storage_reference(value):
        raise NeedsStoredValue(value)
    return value


def is_true(value: Value) -> bool:
    """Go's truth: false, zero, nil and whatever is empty are not."""
    if type(value) is dict:
        require_present(value)
    return isinstance(value, GoTime | Version) or bool(value)


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def wrap_int64(value: int) -> int:
    """What is left of an integer in 64 bits, as Go's arithmetic leaves it."""
    return (value + 2**63) % 2**64 - 2**63


def float_to_int(value: float) -> int:
    """Cut off the fraction. What has no 64-bit integer is refused: Go leaves it to the processor."""
    if not -(2.0**63) <= value < 2.0**63:
        raise EvaluationFault(f"{value} is not in the range of 64-bit integers")
    return int(value)
