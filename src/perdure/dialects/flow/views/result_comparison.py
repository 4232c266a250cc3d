"""Whether a Result is the one that a conformance case expects, and where it differs (MWL-602, MWL-603)."""

from collections.abc import Iterator
from typing import Any

from perdure.dialects.flow.state.failures import COMPLETION_UNMET


def differences(expected: dict[str, Any], actual: Any, at: str = "") -> Iterator[str]:
    """One line per difference; none when the Result passes."""
    if not isinstance(actual, dict) or actual.get("type") != expected["type"]:
        kind = actual.get("type") if isinstance(actual, dict) else actual
        yield f"{at}type: expected {expected['type']!r}, got {kind!r}{_reason(actual)}"
    elif expected["type"] == "success":
        yield from _unequal(expected.get("value"), actual.get("value"), f"{at}value")
    else:
        yield from _envelope(expected, actual, at)


def _envelope(expected: dict[str, Any], actual: dict[str, Any], at: str) -> Iterator[str]:
    """Members that the expectation does not name are ignored; an expected null also matches absence."""
    for name, value in expected.items():
        other = actual.get(name)
        if value is None and other is None:
            continue
        if name not in actual:
            yield f"{at}{name}: expected {_short(value)}, but it is absent"
        elif name == "previous" and isinstance(value, dict):
            yield from differences(value, other, f"{at}previous.")
        elif name == "details" and expected.get("code") == COMPLETION_UNMET and isinstance(value, dict):
            yield from _evidence(value, other, f"{at}details.")
        else:
            yield from _unequal(value, other, f"{at}{name}")


def _evidence(expected: dict[str, Any], actual: Any, at: str) -> Iterator[str]:
    """The failures of a Gather are Results themselves, and compared as such."""
    if not isinstance(actual, dict):
        yield f"{at}: expected an object, got {_short(actual)}"
        return
    for name, value in expected.items():
        other = actual.get(name)
        if name != "failures":
            yield from _unequal(value, other, f"{at}{name}")
        elif not isinstance(other, list) or len(other) != len(value):
            yield f"{at}failures: expected {len(value)} of them, got {_short(other)}"
        else:
            for place, (left, right) in enumerate(zip(value, other, strict=True)):
                yield from _unequal(left["index"], right["index"], f"{at}failures[{place}].index")
                yield from differences(left["result"], right["result"], f"{at}failures[{place}].result.")


def _unequal(expected: Any, actual: Any, at: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() | actual.keys()):
            if name not in actual:
                yield f"{at}.{name}: expected {_short(expected[name])}, but it is absent"
            elif name not in expected:
                yield f"{at}.{name}: unexpected {_short(actual[name])}"
            else:
                yield from _unequal(expected[name], actual[name], f"{at}.{name}")
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for place, (left, right) in enumerate(zip(expected, actual, strict=True)):
            yield from _unequal(left, right, f"{at}[{place}]")
    elif _kind(expected) != _kind(actual) or expected != actual:
        yield f"{at}: expected {_short(expected)}, got {_short(actual)}"


def _kind(value: Any) -> str:
    """One of the six disjoint kinds of data (MWL-086); Python takes True for 1."""
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _reason(actual: Any) -> str:
    if not isinstance(actual, dict) or "code" not in actual:
        return ""
    message = f": {actual['message']}" if actual.get("message") else ""
    return f" ({actual['code']}{message})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}…"
