"""The reference page is correct: every example on it is executed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from perdure.expressions.gotemplate import RUNTIME, ExpressionError, Limits, Structure, compile_template

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "gotemplate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def examples(language: str) -> list[tuple[str, str]]:
    lines = [line.rsplit(" => ", 1) for block in blocks(language) for line in block.splitlines()]
    return [(text.strip(), result) for text, result in lines]


DATA: dict[str, Any] = json.loads(blocks("json")[0])
FAULTS = [block.removeprefix("> ").rstrip("\n").split("\n", 1) for block in blocks("fault")]


@pytest.mark.parametrize(("text", "result"), examples("gotemplate"))
def test_a_template_gives_the_value_beside_it(text: str, result: str) -> None:
    assert compile_template(text).render(DATA) == json.loads(result)


@pytest.mark.parametrize(("text", "result"), examples("structure"))
def test_a_structure_gives_the_value_beside_it(text: str, result: str) -> None:
    assert Structure(json.loads(text)).render(DATA) == json.loads(result)


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_an_error_looks_as_shown(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        compile_template(text).render(DATA)

    assert str(raised.value) == message


@pytest.mark.parametrize("program", blocks("python"))
def test_python_on_the_page_runs(program: str) -> None:
    assert "assert " in program, "what it shows is checked by itself"
    exec(program, {})


def test_every_limit_is_on_the_page_with_its_default() -> None:
    for limit in fields(Limits):
        assert f"| `{limit.name}` | {limit.default:,} |" in PAGE


def test_every_function_is_on_the_page() -> None:
    assert {name for name in RUNTIME.functions if f"`{name}`" not in PAGE} == set()
