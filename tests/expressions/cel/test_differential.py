"""Generated expressions, evaluated here and by cel-expr-python, which binds Google's C++ implementation.

Differences that are explained are listed in `EXPLAINED` and in docs/reference/cel.md.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from tests.expressions.cel.strategies import DATA, expressions

from perdure.expressions.cel import CelMap, Duration, ExpressionError, Timestamp, Uint, compile_program

cel = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, the oracle, is not installed")

NAMES = frozenset(DATA)


def _environment() -> Any:
    from cel_expr_python.ext import (  # type: ignore[import-untyped]
        ext_bindings,
        ext_encoders,
        ext_math,
        ext_optional,
        ext_strings,
    )

    extensions = [
        ext_bindings.ExtBindings(),
        ext_encoders.ExtEncoders(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_strings.ExtStrings(),
    ]
    return cel.NewEnv(variables=dict.fromkeys(DATA, cel.Type.DYN), extensions=extensions)


ORACLE = _environment()
ERROR = "error"


def _explained(text: str, ours: Any, theirs: Any, message: str) -> str | None:
    """Why a difference is right, or None."""
    if "int(bool)" in message:
        return "the oracle converts bools to int, which the specification does not have"
    if "is too large for a double" in message:
        return "the oracle reads a number beyond the range as infinity"
    if ("string(" in text or "format(" in text) and ("timestamp" in text or "duration" in text):
        return "the oracle pads fractions of a second to groups of three digits"
    if theirs == ERROR and ("math.greatest(" in text or "math.least(" in text):
        return "the oracle refuses literals that are no numbers in math.greatest and math.least when parsing"
    if _unordered(ours) == _unordered(theirs):
        return "the oracle iterates maps in random order"
    return None


def _unordered(plain: Any) -> Any:
    return sorted(repr(_unordered(item)) for item in plain) if isinstance(plain, list) else plain


@pytest.mark.sampled(4)
@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(expressions)
def test_both_implementations_agree(text: str) -> None:
    theirs = _theirs(text)
    message = ""
    try:
        ours = _plain(compile_program(text, NAMES).evaluate(DATA))
    except ExpressionError as error:
        ours, message = ERROR, str(error)

    assert ours == theirs or _explained(text, ours, theirs, message), (text, ours, theirs, message)


def _theirs(text: str) -> Any:
    try:
        result = ORACLE.compile(text, disable_check=True).eval(data=DATA)
    except Exception:  # whatever the binding raises, it found no value
        return ERROR
    return ERROR if result.type() == cel.Type.ERROR else _plain(result.plain_value())


def _plain(value: Any) -> Any:
    """Something to compare: every scalar with its type, maps without order; uint is an int to the oracle."""
    match value:
        case CelMap():
            return {_plain(key): _plain(item) for key, item in value.pairs()}
        case dict():
            return {_plain(key): _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case Uint():
            return "int", int(value)
        case float():
            return "nan" if value != value else ("double", value, str(value))
        case bytearray():
            return "bytes", bytes(value)
        case Timestamp():
            return "timestamp", value.nanos // 1000
        case Duration():
            return "duration", int(value.nanos / 1000)
        case datetime():
            return "timestamp", (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        case timedelta():
            return "duration", value // timedelta(microseconds=1)
    return type(value).__name__, value
