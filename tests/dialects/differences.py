"""What is expected of a run and not there: members that an expectation leaves out may be anything, lists are whole."""

from collections.abc import Iterator
from typing import Any


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """What is expected and not there."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name, value in expected.items():
            if name in actual:
                yield from differences(value, actual[name], f"{path}.{name}")
            elif value is not None:
                yield f"{path}.{name}: missing, expected {value!r}"
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{path}: expected {expected!r}, found {actual!r}"
        else:
            for index, (left, other) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(left, other, f"{path}[{index}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{path}: expected {expected!r}, found {actual!r}"
