"""What counts as true in a guard (PBK-149): one rule, for the engine and for workers."""

from typing import Any

from jinja2 import Undefined

_FALSE_WORDS = frozenset({"", "false", "0", "no", "none", "null", "off"})


def is_true(value: Any) -> bool:
    """Undefined and null are false; numbers are true unless zero, containers unless empty, texts unless they say no."""
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_WORDS
    if value is None or isinstance(value, Undefined):
        return False
    return bool(value)
