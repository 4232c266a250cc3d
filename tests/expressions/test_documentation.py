"""The reference page is correct: every example on it is executed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from perdure.expressions.cel import Limits
from perdure.expressions.mwl import ExpressionFault, compile_expression
from perdure.expressions.mwl.functions import LIBRARY

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "cel.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


DATA: dict[str, Any] = json.loads(blocks("json")[0])
EXAMPLES = [line.rsplit(" // => ", 1) for block in blocks("cel") for line in block.splitlines()]
FAULTS = [block.removeprefix("> ").rstrip("\n").split("\n", 1) for block in blocks("fault")]


@pytest.mark.parametrize(("body", "value"), EXAMPLES)
def test_an_example_gives_the_value_beside_it(body: str, value: str) -> None:
    expression = compile_expression(body, frozenset(DATA))

    assert json.dumps(expression.evaluate(DATA)) == json.dumps(json.loads(value))


@pytest.mark.parametrize(("body", "message"), FAULTS)
def test_an_error_looks_as_shown(body: str, message: str) -> None:
    with pytest.raises(ExpressionFault) as raised:
        compile_expression(body, frozenset(DATA)).evaluate(DATA)

    assert str(raised.value) == message


@pytest.mark.parametrize("program", blocks("python"))
def test_python_on_the_page_runs(program: str) -> None:
    assert "assert " in program, "what it shows is checked by itself"
    exec(program, {})


def test_every_limit_is_on_the_page_with_its_default() -> None:
    limits = Limits()
    for name in ("source", "depth", "steps", "size", "memory"):
        assert f"| `{name}` | {getattr(limits, name):,} |" in PAGE


def test_every_function_is_on_the_page() -> None:
    words = set(re.findall(r"[A-Za-z0-9_]+", PAGE))
    missing = {name for name in [*LIBRARY.functions, *LIBRARY.methods] if name.split(".")[-1] not in words}

    assert {name for name in missing if not name.startswith("get")} == set()
