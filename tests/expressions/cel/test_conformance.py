"""The official CEL tests that need no protobuf messages, read from beside the repository.

A file is claimed whole: all its tests pass, apart from those listed in EXCEPTIONS with a reason.
"""

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from perdure.expressions.cel import (
    CelList,
    CelMap,
    Duration,
    ExpressionError,
    Timestamp,
    TypeValue,
    Uint,
    compile_program,
)
from perdure.expressions.cel.instants import parse_timestamp

DATA = Path(__file__).resolve().parents[4] / "shared" / "conformance" / "cel"

CLAIMED = [
    *("basic", "comparisons", "conversions", "fields", "fp_math", "integer_math", "lists", "logic", "macros"),
    *("namespace", "parse", "plumbing", "string", "timestamps", "type_deduction"),
    *("bindings_ext", "encoders_ext", "macros2", "math_ext", "optionals", "string_ext"),
]
EXCEPTIONS: dict[tuple[str, str, str], str] = {}


def _cases() -> list[Any]:
    cases = []
    for name in CLAIMED:
        if not (DATA / f"{name}.json").exists():
            continue
        for section in json.loads((DATA / f"{name}.json").read_text())["sections"]:
            for position, case in enumerate(section["tests"]):
                key = (name, section["name"], case["name"])
                marks = [pytest.mark.xfail(reason=EXCEPTIONS[key], strict=True)] if key in EXCEPTIONS else []
                cases.append(pytest.param(case, id=f"{'/'.join(key)}#{position}", marks=marks))
    return cases


pytestmark = pytest.mark.skipif(not DATA.exists(), reason="the conformance data are not beside the repository")


@pytest.mark.parametrize("case", _cases())
def test_an_official_case_gives_the_official_answer(case: dict[str, Any]) -> None:
    bindings = {name: _value(typed) for name, typed in case.get("bindings", {}).items()}
    names = frozenset(bindings) | frozenset(case.get("typeEnv", {}))

    def evaluate() -> Any:
        return compile_program(case["expr"], names, container=case.get("container", "")).evaluate(bindings)

    if "error" in case["expect"]:
        with pytest.raises(ExpressionError):
            evaluate()
    else:
        assert _same(_value(case["expect"]["value"]), evaluate())


def _value(typed: dict[str, Any]) -> Any:
    ((kind, value),) = typed.items()
    match kind:
        case "int":
            return int(value)
        case "uint":
            return Uint(value)
        case "double":
            return float(value)
        case "bytes":
            return base64.b64decode(value)
        case "list":
            return CelList(_value(item) for item in value)
        case "map":
            return CelMap.of((_value(key), _value(item)) for key, item in value)
        case "timestamp":
            return parse_timestamp(value)
        case "duration":
            whole, _, fraction = value.partition(".")
            return Duration(int(whole) * 10**9 + int(fraction.ljust(9, "0")))
        case "type":
            return TypeValue(value)
    return value


def _same(expected: Any, actual: Any) -> bool:
    """Exact types everywhere; NaN is NaN; zero keeps its sign; maps ignore order."""
    if type(expected) is not type(actual):
        return False
    match expected:
        case float():
            both_nan = expected != expected and actual != actual
            return both_nan or (expected == actual and math.copysign(1, expected) == math.copysign(1, actual))
        case list():
            return len(expected) == len(actual) and all(map(_same, expected, actual))
        case CelMap():
            theirs = {(type(key), key): value for key, value in actual.pairs()}
            ours = {(type(key), key): value for key, value in expected.pairs()}
            return ours.keys() == theirs.keys() and all(_same(value, theirs[key]) for key, value in ours.items())
        case TypeValue():
            return expected.name == str(actual)
        case Timestamp() | Duration():
            return bool(expected.nanos == actual.nanos)
    return bool(expected == actual)
