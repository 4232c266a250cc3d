"""The functions that a Story adds to Go's and Sprig's (STY-203). They handle values in storage."""

import hashlib

from perdure.expressions.errors import EvaluationFault
from perdure.expressions.gotemplate.functions.library import ANY, Function, takes
from perdure.expressions.gotemplate.values import STORAGE_PATH, STORAGE_REFERENCE, Value, describe, is_storage_reference

_NAMES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", type(None): "null"}


def length(value: Value) -> int:
    """Bytes of a text, elements of a list, entries of a map; nil has none."""
    if value is None:
        return 0
    if type(value) is str:
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, list | dict):
        return len(value)
    raise EvaluationFault(f"{describe(value)} has no length")


def hash_of(value: Value) -> str:
    if type(value) is not str:
        raise EvaluationFault(f"only a string has a hash, not {describe(value)}")
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def type_of(value: Value) -> str:
    if is_storage_reference(value):
        path = str(value.get(STORAGE_PATH) or "")
        joint = "" if path == "" or path[0] in ".[" else "."
        return f"offloaded({value[STORAGE_REFERENCE]}{joint}{path})"
    return _NAMES.get(type(value), "object")


FUNCTIONS = {
    "exists": Function(lambda value: value is not None, (ANY,), takes_references=True),
    "hash_of": takes(hash_of, ANY),
    "len": takes(length, ANY),
    "sample": takes(lambda value: value, ANY),
    "type_of": Function(type_of, (ANY,), takes_references=True),
}
